"""Policies that see images and read an instruction: heads, the compact policy."""
