"""Whether a candidate may become the champion: gates, verdicts, regressions."""
