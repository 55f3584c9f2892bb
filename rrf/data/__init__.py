"""The schema, raw readers, the LeRobot v3 writer and reader, validation, statistics. No torch."""
