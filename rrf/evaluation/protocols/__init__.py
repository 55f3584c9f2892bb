"""The contract of evaluation protocols, and loading them from files."""
