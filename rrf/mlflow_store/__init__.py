"""The MLflow store of this workspace, on which tracking and registry rest: a client, artifacts, and
what runs and versions have in common there."""
