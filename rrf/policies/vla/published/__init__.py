"""Checkpoints of other projects: reading them into our policies, and writing ours as theirs."""
