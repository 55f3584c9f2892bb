"""What rollouts leave behind."""
