"""Infrastructure for the flows: the services of `make up`, deployments, and `make demo`."""
