"""rrf as a user has it: the wheel, in its own environment, in a folder that is no checkout."""
