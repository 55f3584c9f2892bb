"""Environments in processes of their own."""
