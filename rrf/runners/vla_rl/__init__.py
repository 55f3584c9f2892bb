"""The loop that reinforces policies that see images."""
