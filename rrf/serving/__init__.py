"""The policy server: requests of many robots in, batches through one policy, actions out."""
