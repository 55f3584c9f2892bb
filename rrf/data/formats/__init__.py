"""Readers of raw formats, one file per format."""
