"""Converts raw recordings to LeRobot v3."""
