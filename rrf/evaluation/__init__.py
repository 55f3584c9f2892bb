"""Evaluation of policies: protocols run the episodes, gates give verdicts, reports show both."""
