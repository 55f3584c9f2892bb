"""Where models registered up to November 2026 look for code that lies elsewhere now."""
