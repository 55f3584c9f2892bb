"""Algorithms that learn from recorded transitions; some go on learning from new ones."""
