"""The flow `retrain-on-new-data` on a server for tests, with stand-ins for the commands: when it
trains, from what, on what, and when it is skipped."""

from pathlib import Path

import pytest
from prefect.states import State

from flows import commands
from flows.ingest_deployment import ingest_deployment
from flows.retrain_on_new_data import retrain_on_new_data
from flows.train_vla import STAGES, train_vla
from rrf import workspace
from rrf.client import upload
from rrf.data.transport.episode_store import EpisodeStore
from rrf.mlflow_store import store as mlflow
from rrf.registry import deployments, promotion, releases, versions
from rrf.run_directory import TrainingResult
from rrf.runners.checkpoints.deployable import deployable_digest
from tests.client.logging import logged
from tests.flows.test_train_vla import SFT, Commands
from tests.flows.test_train_vla import gates as gates
from tests.registry.conftest import (
    add_dataset,
    empty_store,  # noqa: F401 (a fixture of `home`)
    home,  # noqa: F401 (a fixture)
    make_checkpoint,
    write_json,
)

ASKED = {
    "model": "reach",
    "dataset": "deployed",
    "demonstrations": "demo",
    "sft": SFT,
    "min_episodes": 2,
    "min_failures": 2,
}


class Deployed(Commands):
    """Also in place of `rrf logs ingest`, and of the training that follows."""

    kind = "vla"
    """Of the champion that is fetched."""

    def __call__(self, step, command, env, stop_when=None):
        words, path = command[3:-2], command[-1]
        if words[:2] == ["logs", "ingest"]:
            self.ran.append((step, words))
            done = deployments.bring(EpisodeStore(words[words.index("--store") + 1]), words[2])
            add_dataset(self.root, words[2], f"{len(self.ran):032d}")
            result = {"new": len(done.new), "refused": done.refused}
            write_json(Path(path), {"exit_code": 0, "error": None, "result": result})
            return []
        if step == "fetch":
            self.ran.append((step, words))
            make_checkpoint(Path(words[words.index("--out") + 1]), kind=self.kind)
            write_json(Path(path), {"exit_code": 0, "error": None, "result": {}})
            return []
        return super().__call__(step, command, env)

    def _trained(self, stage):
        if stage in STAGES:
            return super()._trained(stage)
        path = self.checkpoint(stage)
        client = mlflow.connect()
        run_id = client.create_run(mlflow.experiment_id(client, stage)).info.run_id
        from rrf.registry.lineage_sources import collect_lineage

        make_checkpoint(path, 77 + self.seed, collect_lineage("demo", "deployed"))
        result = TrainingResult(str(path), deployable_digest(path), 3, {}, 1.0, 1.0, run_id)
        result.write(path.parent)
        write_json(path.parent / "run.json", {"run_id": run_id})
        return path


@pytest.fixture
def made(home, monkeypatch, gates):  # noqa: F811
    commands_made = Deployed(home)
    monkeypatch.setattr(commands, "_run", commands_made)
    return commands_made


@pytest.fixture
def champion(server, made, gates):
    assert train_vla("demo", None, SFT, None, gate=str(gates / "easy.yaml"), model="reach")[
        "promoted"
    ]
    made.ran.clear()
    return versions.find("reach@champion")


def send(tmp_path, champion, *numbers, **about):
    policy = {"name": "reach", "version": "1", "digest": champion.checkpoint_digest}
    for number in numbers:
        logged(tmp_path / "logs", policy=policy, first=10 * number, **about)
    upload(tmp_path / "logs", EpisodeStore(tmp_path / "episodes"))


@pytest.mark.slow
def test_it_is_skipped_until_enough_is_new_then_trains_the_champion_further_and_is_skipped_again(
    champion, made, tmp_path
):
    asked = ASKED | {"store": str(tmp_path / "episodes")}
    send(tmp_path, champion, 0)
    skipped = retrain_on_new_data(**asked, return_state=True)
    assert isinstance(skipped, State)
    assert (skipped.name, skipped.is_completed()) == ("Skipped", True)
    assert skipped.message == (
        "skipped: 1 of 2 new episodes, 0 of 2 new failures, and no dataset has changed"
    )
    assert made.ran == []
    send(tmp_path, champion, 1, outcome="failure")
    result = retrain_on_new_data(**asked)
    assert result["promoted"]
    assert versions.find("reach@champion").version == "2"
    fetched = workspace.relative(workspace.state() / "fetched/reach-1")
    steps = [step for step, _ in made.ran]
    assert steps[:5] == ["fetch", "dvc-repro", "ingest-deployment", "dvc-repro", "retrain"]
    assert made.ran[4][1] == [
        "train",
        SFT,
        f'init_from="{fetched}"',
        'dataset="demo"',
        'mixture={"deployed": 1.0}',
        "corrections={}",
    ]
    assert {dataset["name"] for dataset in result["lineage"]["datasets"]} == {"demo", "deployed"}
    made.ran.clear()
    assert retrain_on_new_data(**asked)["skipped"]
    assert made.ran == []


@pytest.mark.slow
def test_a_candidate_that_passes_acts_as_a_canary_and_nothing_is_trained_until_it_is_decided(
    champion, made, tmp_path
):
    asked = ASKED | {"store": str(tmp_path / "episodes"), "canary": True}
    send(tmp_path, champion, 0, 1)
    state = retrain_on_new_data(**asked, return_state=True)
    assert "reach version 2 is a canary: 20 % of the episodes beside version 1" in state.message
    result = state.result()
    assert (result["canary"], result["promoted"]) == (True, False)
    ledger = promotion.ledger_of("reach")
    assert (ledger.champion, ledger.release and ledger.release.version) == ("1", "2")
    send(tmp_path, champion, 2, 3)
    made.ran.clear()
    waiting = retrain_on_new_data(**asked)
    assert waiting["why"] == "the release of version 2 runs, and its outcomes decide"
    assert made.ran == []
    releases.stop("reach", "the operator wants it")
    made.seed = 1
    assert retrain_on_new_data(**asked)["canary"]
    release = promotion.ledger_of("reach").release
    assert release
    assert release.version == "3"


@pytest.mark.slow
def test_a_model_without_a_champion_is_named_before_anything_is_run(server, made, home):  # noqa: F811
    with pytest.raises(ValueError, match="there is no model 'reach'"):
        retrain_on_new_data(**ASKED)
    assert made.ran == []


@pytest.mark.slow
@pytest.mark.slow
def test_a_champion_whose_training_takes_one_dataset_is_refused_before_episodes_are_brought(
    champion, made, tmp_path
):
    send(tmp_path, champion, 0, 1)
    made.kind = "control"
    with pytest.raises(ValueError, match="the champion of 'reach' is a state-based policy, whose"):
        retrain_on_new_data(**ASKED, store=str(tmp_path / "episodes"))
    assert [step for step, _ in made.ran] == ["fetch"]


def test_the_flow_that_only_ingests_says_what_came(champion, made, tmp_path):
    send(tmp_path, champion, 0, 1)
    upload(logged(tmp_path / "logs", first=50).parent, EpisodeStore(tmp_path / "episodes"))
    state = ingest_deployment("deployed", str(tmp_path / "episodes"), "demo", return_state=True)
    assert state.message.startswith("deployed: 2 new episodes, 3 in all, ")
    assert state.message.endswith(", 1 refused")
