"""An environment in a process of its own."""
