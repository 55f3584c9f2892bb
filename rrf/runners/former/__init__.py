"""Old module names of code that has moved, for models registered up to November 2026."""
