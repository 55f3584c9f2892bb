"""Evaluation of state-based policies: the protocol, its episodes, metrics and videos."""
