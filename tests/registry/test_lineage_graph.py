"""What a version stands on, and what stands on something, from real runs, versions and a ledger."""

import dataclasses
import json
from xml.etree import ElementTree

import jsonschema
import pytest
from typer.testing import CliRunner

from rrf.cli import app
from rrf.lineage import DatasetLineage, EnvironmentLineage, Lineage
from rrf.registry import (
    lineage_formats,
    lineage_graph,
    promotion,
    registration,
    standing,
    taints,
    versions,
)
from rrf.registry.lineage_graph import standing_on
from rrf.runners.checkpoints.deployable import deployable_digest
from tests.registry.conftest import NAME, make_checkpoint, make_evaluation, new_run

FIRST, SECOND = "a" * 32 + ".dir", "b" * 32 + ".dir"
CODE = {"git_revision": "c0ffee" + "0" * 34, "git_dirty": False, "source_digest": "5" * 64}


def trained(client, home, seed: int, lineage: Lineage) -> tuple[str, str]:
    """A finished run as a training leaves it; returns its id and the digest of its checkpoint."""
    run_id = new_run(client)
    digest = deployable_digest(make_checkpoint(home / f"checkpoints/{seed}", seed, lineage))
    for key, value in lineage.tags().items():
        client.set_tag(run_id, key, value)
    client.set_tag(run_id, "checkpoint_digest", digest)
    client.set_terminated(run_id)
    return run_id, digest


@pytest.fixture
def chain(home, client) -> dict[str, str]:
    """Pretrained on one dataset, fine-tuned on another, reinforced in a simulator, registered.

    Returns the digests of the three checkpoints.
    """
    data = DatasetLineage("demo", FIRST, "raw-md5", "passed", None, True, 7, 91)
    _, pretrained = trained(client, home, 1, Lineage((data,), **CODE))
    data = DatasetLineage("fine", SECOND, "raw-2", "passed", None, True, 3, 9)
    lineage = Lineage((data,), parent_checkpoint=pretrained, **CODE)
    _, tuned = trained(client, home, 2, lineage)
    environment = EnvironmentLineage("Reach-v1", "e" * 64, {"mujoco": "3.11.0"})
    lineage = Lineage((data,), environment, parent_checkpoint=tuned, **CODE)
    run_id, reinforced = trained(client, home, 3, lineage)
    folder = home / "checkpoints/evaluation"
    report = make_evaluation(folder, home / "checkpoints/3", 18)
    gate = home / "configs/gates/g.yaml"
    registration.register(home / "checkpoints/3", NAME, run_id, lineage, folder, gate=gate)
    promotion.promote(NAME, "1")
    return {
        "pretrained": pretrained,
        "tuned": tuned,
        "reinforced": reinforced,
        "evaluation": report.digest,
    }


def test_a_version_leads_to_every_training_dataset_commit_and_verdict(chain, home):
    graph = lineage_graph.of_version(f"{NAME}@champion")
    kinds = [node.kind for node in graph.nodes.values()]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "version": 1, "promotion": 1, "evaluation": 1, "run": 3, "dataset": 2, "recordings": 2,
        "code": 1, "environment": 1,
    }  # fmt: skip
    on = {how: node for how, node in graph.below(graph.root)}
    assert set(on) == {"promoted by", "evaluated by", "trained by"}
    assert on["evaluated by"].id == f"evaluation:{chain['evaluation']}"
    assert on["evaluated by"].facts["success"] == "0.900"
    assert "gate g: pass" in on["promoted by"].facts["why"]
    last = on["trained by"]
    assert last.facts["checkpoint"] == chain["reinforced"][:12]
    (tuned,) = [node for how, node in graph.below(last.id) if how == "started from"]
    (pretrained,) = [node for how, node in graph.below(tuned.id) if how == "started from"]
    assert pretrained.facts["checkpoint"] == chain["pretrained"][:12]
    (data,) = [node for how, node in graph.below(pretrained.id) if how == "trained on"]
    assert data.id == f"dataset:demo@{FIRST}"
    assert data.facts == {
        "md5": FIRST, "validation": "passed", "num_episodes": "7", "num_frames": "91",
    }  # fmt: skip
    ((how, recordings),) = graph.below(data.id)
    assert (how, recordings.facts["md5"]) == ("made from", "raw-md5")


def test_the_other_way_round_the_whole_chain_counts(chain):
    def found(**what) -> list[str]:
        return [standing.why for standing in standing_on(**what)]

    assert found(dataset="fine") == [f"dataset fine {SECOND}"]
    (why,) = found(dataset="demo")  # which only the first training has seen
    assert why.startswith(f"dataset demo {FIRST}, by the training of {chain['pretrained'][:12]}")
    assert found(dataset="demo", md5="aaaa") == [why]
    assert found(dataset="demo", md5="b") == []
    assert found(dataset="de*") == [why]
    assert found(commit="c0ffee") == ["commit c0ffee000000"]
    assert found(commit="dec0de") == []
    assert len(found(checkpoint=chain["pretrained"][:9])) == 1
    assert found(dataset="fine", commit="dec0de") == []


def test_what_is_not_in_the_store_is_said(chain, home, client):
    lineage = Lineage((DatasetLineage("demo", FIRST),), parent_checkpoint="f" * 64, **CODE)
    run_id, _ = trained(client, home, 4, lineage)
    registration.register(home / "checkpoints/4", NAME, run_id, lineage)
    client.delete_run(run_id)
    graph = lineage_graph.of_version(f"{NAME}/2")
    assert graph.nodes["checkpoint:" + "f" * 64].facts == {"run": "not in this store"}
    client.set_model_version_tag(NAME, "2", "lineage.dataset", "another")
    with pytest.raises(ValueError, match="the lineage of 'policy' version 2 is not the one it was"):
        lineage_graph.of_version(f"{NAME}/2")


def test_a_training_that_names_itself_ends(chain, home, client):
    run_id, digest = trained(client, home, 5, Lineage((DatasetLineage("demo", FIRST),), **CODE))
    for key, value in Lineage(parent_checkpoint=digest).tags().items():
        client.set_tag(run_id, key, value)
    registration.register(
        home / "checkpoints/5", NAME, run_id, Lineage(parent_checkpoint=digest, **CODE)
    )
    graph = lineage_graph.of_version(f"{NAME}/2")
    assert [node.kind for node in graph.nodes.values()].count("run") == 1
    assert ElementTree.fromstring(lineage_formats.svg(graph)).tag.endswith("svg")
    assert "(above)" in lineage_formats.text(graph)
    assert standing_on(dataset="nothing") == []


RUN_EVENT = {  # what the specification requires of a RunEvent and of the datasets in it
    "type": "object",
    "required": ["eventTime", "producer", "schemaURL", "run", "job"],
    "properties": {
        "eventTime": {"type": "string", "format": "date-time"},
        "producer": {"type": "string", "format": "uri"},
        "run": {
            "required": ["runId"],
            "properties": {"runId": {"type": "string", "format": "uuid"}},
        },
        "job": {"required": ["namespace", "name"]},
        "inputs": {"type": "array", "items": {"required": ["namespace", "name"]}},
        "outputs": {"type": "array", "items": {"required": ["namespace", "name"]}},
    },
}


def test_events_of_openlineage_are_those_of_its_specification(chain):
    events = lineage_formats.openlineage(lineage_graph.of_version(NAME))
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    for event in events:
        jsonschema.validate(event, RUN_EVENT, format_checker=checker)
        for facet in [f for data in event["inputs"] for f in data["facets"].values()]:
            assert {"_producer", "_schemaURL"} <= set(facet)
    assert [event["eventTime"] for event in events] == sorted(e["eventTime"] for e in events)
    assert len({event["run"]["runId"] for event in events}) == 4  # three trainings, the version
    inputs = {data["name"]: data for event in events for data in event["inputs"]}
    assert inputs[f"dataset:demo@{FIRST}"]["facets"]["version"]["datasetVersion"] == FIRST


def test_commands_show_it(chain, home):
    def said(*words: str) -> str:
        done = CliRunner().invoke(app, ["models", *words])
        return done.output if done.exit_code == 0 else str(done.exception)

    tree = said("lineage", NAME)
    assert tree.splitlines()[0].startswith("policy version 1: checkpoint ")
    assert tree.count("started from") == 2
    assert (
        json.loads(said("lineage", f"{NAME}/1", "--format", "json"))["root"] == "version:policy/1"
    )
    picture = home / "lineage.svg"
    assert "is in" in said("lineage", NAME, "--out", str(picture))
    words = {e.text for e in ElementTree.parse(picture).iter() if e.tag.endswith("text")}
    assert {"policy version 1", "dataset demo", "Reach-v1"} <= words
    assert "did you mean 'openlineage'" in said("lineage", NAME, "--format", "openlinage")
    assert "policy 1 @champion: dataset demo" in said("standing-on", "--dataset", "demo@aaa")
    assert said("standing-on", "--commit", "dec0de") == "0 versions stand on it\n"
    assert "say on what: --dataset NAME@VERSION" in said("standing-on")
    assert versions.champion(NAME) is not None


@pytest.mark.slow
def test_a_taint_reaches_systems_teachers_and_merged_data_and_a_clean_run_hides_nothing(
    home, client
):
    data = DatasetLineage("demo", FIRST, "raw-md5", "passed", None, True, 7, 91)
    _, balance = trained(client, home, 1, Lineage((data,), **CODE))
    _, teacher = trained(client, home, 2, Lineage((data,), **CODE))
    run_id = new_run(client)  # newer than the training, and of the same checkpoint
    client.set_tag(run_id, "checkpoint_digest", teacher)
    parts = f"datasets/other {SECOND}, datasets/demo {FIRST}"
    merged = DatasetLineage("both", "c" * 32, parts, "passed")
    unknown = Lineage((data, DatasetLineage("fresh")), **CODE)
    for number, lineage in enumerate(
        [
            Lineage(system0_checkpoint=balance, **CODE),
            Lineage(teacher_checkpoint=teacher, **CODE),
            Lineage((merged,), **CODE),
            unknown,
            Lineage((dataclasses.replace(data, md5=SECOND),), **CODE),
        ],
        start=3,
    ):
        run_id, _ = trained(client, home, number, lineage)
        registration.register(home / f"checkpoints/{number}", NAME, run_id, lineage)
    taints.add("demo", "aaaa", [3], "a loose gripper")
    known = {v.version: taints.problem(client, v) for v in versions.versions_of(client, NAME)}
    assert f"demo {FIRST}, by the training of {balance[:12]} that made its System 0" in known["1"]
    assert f"demo {FIRST}, by the training of {teacher[:12]} that taught it" in known["2"]
    assert f"it stands on dataset demo {FIRST}, a part of both" in known["3"]
    assert "it stands on dataset demo of an unknown version" in known["4"]
    assert known["5"] == ""


def test_nothing_is_promoted_that_stands_on_tainted_data_and_a_champion_is_flagged(chain, home):
    def said(*words: str) -> str:
        done = CliRunner().invoke(app, ["models", *words])
        return done.output if done.exit_code == 0 else str(done.exception)

    assert standing.flagged() == {}
    assert "give their numbers" in said("taint", "demo", "--reason", "-", "--episodes", "3;4")
    assert "a taint needs a reason" in said("taint", "demo", "--reason", " ")
    assert not (home / taints.FILE).exists()
    other = said("taint", "demo@bbbb", "--reason", "another version")
    assert other == "demo@bbbb is tainted; commit configs/tainted.yaml\n"
    flagged = said("taint", "demo@aaaa", "--reason", "a loose gripper", "--episodes", "3, 17")
    assert "warning: the champion 'policy' version 1: it stands on dataset demo aaaa" in flagged
    assert "which is tainted since" in flagged
    assert taints.load().data[1].episodes == [3, 17]
    promotion.withdraw(NAME, "until it is trained again")
    with pytest.raises(
        promotion.NotPromotedError, match=r"tainted since .*: a loose gripper; train"
    ):
        promotion.promote(NAME, "1", "let me")
    (home / taints.FILE).write_text(
        "data:\n- {dataset: demo, reason: -, date: today, episode: 3}\n"
    )
    with pytest.raises(
        ValueError, match=r"(?s)tainted.yaml: .*no field 'episode'; did you mean 'episodes'"
    ):
        promotion.promote(NAME, "1", "let me")
    (home / taints.FILE).unlink()
    assert promotion.promote(NAME, "1", "let me").champion == "1"
