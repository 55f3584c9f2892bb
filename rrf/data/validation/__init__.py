"""What a dataset holds and whether it is good: summary, differences, checks, the report."""
