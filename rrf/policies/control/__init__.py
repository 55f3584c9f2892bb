"""Policies that see states: actors, critics, distributions, normalisers, memories."""
