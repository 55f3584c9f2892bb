"""Meta-World: environment, scripted experts, recording of demonstrations."""
