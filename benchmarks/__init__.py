"""One script per set of published numbers, the peer measured in the same run."""
