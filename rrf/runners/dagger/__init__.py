"""DAgger: experts relabel what a policy does, and the policy learns from all of it."""
