"""Isaac Lab's tasks (arXiv:2511.04831) on Newton, in an interpreter of their own."""
