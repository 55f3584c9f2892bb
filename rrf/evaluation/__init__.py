"""What a policy is worth: protocols run it, gates judge it, reports show it."""
