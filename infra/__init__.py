"""Infrastructure for the flows: the services of `rrf services up`, deployments, and `make demo`."""
