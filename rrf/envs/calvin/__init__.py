"""CALVIN's tabletop (arXiv:2112.03227), in an interpreter of its own."""
