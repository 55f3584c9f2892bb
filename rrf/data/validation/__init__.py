"""Checks of a converted dataset, and its report."""
