"""The loops that train state-based policies."""
