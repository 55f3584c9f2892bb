"""Reads LeRobot v3 datasets: what stands where, frames and action chunks, statistics."""
