"""Checks of a converted dataset, and the report about them."""
