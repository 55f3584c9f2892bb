"""robosuite's manipulation tasks (arXiv:2009.12293), in an interpreter of their own."""
