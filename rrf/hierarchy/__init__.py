"""A robot in three levels that run apart, at rates of their own: System 2, System 1, System 0."""
