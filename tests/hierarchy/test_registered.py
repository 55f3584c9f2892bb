"""A combination as a registered version: its three artifacts, and the runs that trained them."""

import os

import pytest
from typer.testing import CliRunner

from rrf.cli import app
from rrf.hierarchy.combination import combine
from rrf.lineage import DatasetLineage, EnvironmentLineage, Lineage
from rrf.registry import garbage, lineage_graph, registration, versions
from rrf.registry.lineage_graph import standing_on
from rrf.runners.checkpoints import parts
from rrf.runners.checkpoints.deployable import deployable_digest, load_lineage
from tests.hierarchy.conftest import written
from tests.registry.conftest import (
    client,  # noqa: F401 (a fixture)
    empty_store,  # noqa: F401 (a fixture of `home`)
    home,  # noqa: F401 (a fixture)
    new_run,
    write_json,
)

CODE = {"git_revision": "c0ffee" + "0" * 34, "git_dirty": False}
DATA = Lineage((DatasetLineage("demo", "a" * 32 + ".dir", validation="passed"),), **CODE)
PHYSICS = Lineage(environment=EnvironmentLineage("g1-whole-body", "e" * 64), **CODE)


def rrf(*words) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, f"{done.output}{done.exception}"
    return done.output


def trained(client, checkpoint, lineage: Lineage, name: str) -> str:  # noqa: F811
    """A finished run as a training leaves it."""
    run_id = new_run(client)
    tags = lineage.tags() | {"checkpoint_digest": deployable_digest(checkpoint)}
    for key, value in (tags | {"mlflow.runName": name}).items():
        client.set_tag(run_id, key, value)
    client.set_terminated(run_id)
    return run_id


@pytest.fixture
def combined(home, client, system0, tmp_path):  # noqa: F811
    """A combination whose System 0 is a version of its own, and the run of its upper policy."""
    upper = written(home / ".rrf/runs/psi0", DATA)
    run_id = trained(client, upper, DATA, "psi0, seed 0")
    write_json(home / ".rrf/runs/psi0/run.json", {"run_id": run_id})
    below = trained(client, system0, PHYSICS, "g1-whole-body, seed 0")
    registration.register(system0, "g1-body", below, PHYSICS)
    path = combine(upper, system0, tmp_path / "combined")
    assert "walker version 1 is @candidate" in rrf("models", "register", path, "walker")
    return path


def test_the_lineage_of_a_combination_leads_to_its_artifacts_and_their_trainings(combined):
    shown = rrf("models", "lineage", "walker/1")
    facts = load_lineage(combined)
    graph = lineage_graph.of_version("walker@candidate")
    ((how, joined),) = graph.below(graph.root)
    assert how == "joined by"
    on = {how: node for how, node in graph.below(joined.id)}
    assert set(on) == {
        *("started from", "trained on", "by the code"),
        *("sees by the System 2", "acts by the System 1", "stands by the System 0"),
    }
    assert on["started from"].title == "psi0, seed 0"
    for how, digest in (
        ("sees by the System 2", facts.system2_checkpoint),
        ("acts by the System 1", facts.system1_checkpoint),
    ):
        assert on[how].id == f"checkpoint:{digest}"
        assert [(how, node.title) for how, node in graph.below(on[how].id)] == [
            ("part of", "psi0, seed 0")
        ]
    below = on["stands by the System 0"]
    assert below.facts == {"registered as": "g1-body version 1"}
    ((how, run),) = graph.below(below.id)
    assert (how, run.title) == ("trained by", "g1-whole-body, seed 0")
    assert "g1-whole-body" in [node.title for _, node in graph.below(run.id)]
    assert "registered as g1-body version 1" in shown
    assert shown.count("part of psi0, seed 0") == 2
    assert rrf("models", "lineage", "walker/1", "--format", "svg").startswith("<svg")
    found = standing_on(checkpoint=deployable_digest(combined / "system0")[:9])
    assert {standing.version.name for standing in found} == {"walker", "g1-body"}


def test_the_same_combination_is_one_version_and_another_system_0_is_another(
    combined,
    home,  # noqa: F811
    client,  # noqa: F811
    tmp_path,
):
    rrf("models", "register", combined, "walker")
    assert [v.version for v in versions.versions_of(client, "walker")] == ["1"]
    fetched = tmp_path / "fetched"
    rrf("models", "fetch", "walker/1", "--out", fetched)
    assert deployable_digest(fetched) == deployable_digest(combined)
    system2, system1 = parts.split(home / ".rrf/runs/psi0/global_step_1", tmp_path / "parts")
    whole = parts.join(system2, system1, tmp_path / "whole", feature_period=3)
    rrf("models", "join", whole, "--system0", "g1-body/1", "--out", tmp_path / "slower")
    rrf("models", "register", tmp_path / "slower", "walker")
    graph = lineage_graph.of_version("walker/2")
    ((_, joined),) = graph.below(graph.root)
    assert joined.title.startswith(f"joined {deployable_digest(system2)[:8]} ")
    assert "psi0, seed 0" in [node.title for _, node in graph.below(joined.id)]


def test_what_a_registered_combination_was_joined_from_is_kept(combined, home):  # noqa: F811
    run = home / ".rrf/runs/psi0"
    for path in (run, *run.rglob("*")):
        os.utime(path, (0, 0))
    assert [one.name for one in garbage.find()] == []
