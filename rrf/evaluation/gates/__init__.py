"""Decide whether a candidate may become the champion: gates, verdicts, regression tests."""
