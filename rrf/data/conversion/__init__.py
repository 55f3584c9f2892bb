"""Converts raw recordings to LeRobot v3, merges and edits datasets, and has their configs."""
