"""The quick reads of the registry say what MLflow's client says, on SQLite and on PostgreSQL."""

import contextlib
import subprocess
import sys

import pytest

from rrf import workspace
from rrf.mlflow_store import store
from rrf.registry import changes, listing, promotion, versions
from tests import postgres
from tests.registry.conftest import new_run, register


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def client(request, home, monkeypatch):
    """MLflow's client of a store with three versions of a model, of which one is deleted."""
    local = contextlib.nullcontext(workspace.tracking_uri())
    with postgres.server() if request.param == "postgresql" else local as uri:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        client = store.connect()
        run_id = new_run(client)
        for seed in (1, 2, 3):
            register(home, "policy", run_id, seed, solved=16 + seed)
        promotion.promote("policy", "2")
        client.delete_model_version("policy", "1")
        client.create_registered_model("other", tags={"key": "it's"}, description="another")
        client.create_registered_model("policy.change-000009", tags={changes.CLAIM: "policy"})
        yield client


def test_models_and_versions_are_those_of_mlflow_and_the_rest_mlflow_answers(client, monkeypatch):
    quick = listing.connect()
    with monkeypatch.context() as patch:
        patch.setattr(store, "connect", lambda: pytest.fail("MLflow's client was asked"))
        assert sorted(m.name for m in quick.search_registered_models()) == sorted(
            m.name for m in client.search_registered_models()
        )
        for name in ("policy", "other"):
            assert versions.exists(quick, name)
            mine, theirs = (c.get_registered_model(name) for c in (quick, client))
            assert mine.tags == theirs.tags
            assert changes.aliases_in(mine) == changes.aliases_in(theirs)
            assert versions.versions_of(quick, name) == versions.versions_of(client, name)
        assert not versions.exists(quick, "policies")
        assert [v.version for v in listing.versions("policy")] == ["3", "2"]
        assert listing.models() == ["other", "policy"]
        assert listing.problems() == []
    quick.set_registered_model_alias("policy", "champion", "3")
    assert ["@champion" in problem for problem in listing.problems()] == [True]
    with pytest.raises(Exception, match="policies"):
        quick.get_registered_model("policies")
    monkeypatch.setattr("rrf.registry.client.TABLES", "of another version")
    assert not isinstance(listing.connect(), type(quick))


def test_models_are_listed_without_mlflow(home):
    register(home, "policy", new_run(store.connect()), seed=1, solved=18)
    program = "import sys; from rrf.cli import app; sys.argv = ['rrf', 'models', 'list']; "
    check = "import atexit; atexit.register(lambda: print('mlflow' in sys.modules)); app()"
    done = subprocess.run(
        [sys.executable, "-c", program + check], capture_output=True, text=True, check=True
    )
    assert "@candidate" in done.stdout
    assert done.stdout.split()[-1] == "False"
