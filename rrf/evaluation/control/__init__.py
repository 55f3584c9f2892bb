"""State-based policies: their protocol, its episodes, metrics and videos."""
