"""Prefect flows: each reads as a recipe, and a task is a few lines around one `rrf` command."""
