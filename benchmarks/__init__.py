"""Benchmarks: one script per set of published numbers. Peers are measured in the same run."""
