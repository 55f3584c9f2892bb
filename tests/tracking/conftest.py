"""The repository with a store of the registry's tests."""

from tests.registry.conftest import client, empty_store, home, run_id  # noqa: F401
