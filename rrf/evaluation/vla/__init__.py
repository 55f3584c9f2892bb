"""Evaluation of policies that see images: the protocol, its episodes and videos, baselines."""
