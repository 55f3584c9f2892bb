"""LIBERO's manipulation tasks (arXiv:2306.03310), in an interpreter of their own."""
