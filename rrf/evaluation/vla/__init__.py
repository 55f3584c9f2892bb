"""Policies that see images: their protocol, its episodes and videos, baselines."""
