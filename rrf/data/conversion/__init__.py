"""From raw recordings to LeRobot v3."""
