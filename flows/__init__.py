"""Prefect flows. Each reads as a recipe; most tasks are a few lines around one `rrf` command."""
