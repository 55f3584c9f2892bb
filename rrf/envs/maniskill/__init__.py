"""ManiSkill3's tabletop tasks (arXiv:2410.00425), in an interpreter of their own."""
