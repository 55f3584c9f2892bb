"""OpenVLA's backbone: two vision towers, a projector and Llama."""
