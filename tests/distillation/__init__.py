"""Students that learn from teachers."""
