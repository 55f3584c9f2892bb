"""Demonstrations of scripted experts, recorded in parallel, one file per task."""
