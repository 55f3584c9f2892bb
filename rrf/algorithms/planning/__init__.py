"""Model-based algorithms that act by planning, and their configs."""
