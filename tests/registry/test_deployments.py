"""Bringing logged episodes into the workspace: whose they are, and what becomes of them."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from rrf import atomic
from rrf.cli import app
from rrf.client import EpisodeLogger, upload
from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import load_dataset_cfg
from rrf.data.formats.deployment import FACTS
from rrf.data.transport.episode_store import EpisodeStore
from rrf.registry import deployments, listing
from tests.client.logging import POLICY, logged
from tests.registry.conftest import NAME

PIPELINE = """\
vars:
  - datasets:
      # what there is
      demo: {raw: datasets/raw, with: requirements.lock}
stages: {}
"""


@pytest.fixture
def known(add):
    """What a log says of a policy that is registered."""
    add(1)
    (version,) = listing.versions(NAME)
    return {"name": NAME, "version": "1", "digest": version.checkpoint_digest}


@pytest.fixture
def store(tmp_path):
    return EpisodeStore(tmp_path / "store")


def send(tmp_path, store, **about):
    folder = logged(tmp_path / "logs", **about)
    upload(folder.parent, store)
    return folder.name


def test_episodes_become_a_dataset_that_says_who_acted(home, tmp_path, store, known):
    (home / "dvc.yaml").write_text(PIPELINE)
    failed = send(tmp_path, store, policy=known, outcome="failure", start={"place": "left"})
    solved = send(tmp_path, store, policy=known, corrected=(2, 3), first=30)
    done = deployments.bring(store, "deployed")
    assert (len(done.new), done.known, done.refused) == (2, 0, [])
    assert deployments.write_dataset_cfg("deployed") is not None
    assert deployments.add_to_pipeline("deployed")
    assert (
        "      deployed: {raw: recordings/deployed, with: requirements.lock}\n"
        in (home / "dvc.yaml").read_text()
    )
    out = tmp_path / "dataset"
    assert convert(load_dataset_cfg("deployed"), home / "recordings/deployed", out).frames == 12
    table = pd.read_parquet(next((out / "meta/episodes").rglob("*.parquet")))
    rows = table.set_index("log_episode")[[name for name in FACTS if name != "log_episode"]]
    assert rows.loc[failed].to_dict() == {
        "log_robot": "arm-1",
        "log_policy": f"{NAME}/1",
        "log_policy_digest": known["digest"],
        "log_outcome": "failure",
        "log_how": "",
        "log_interventions": 0.0,
        "log_start": '{"place": "left"}',
    }
    assert rows.loc[solved]["log_interventions"] == 1.0
    frames = pd.read_parquet(next((out / "data").rglob("*.parquet")))
    by_episode = {
        name: frames[frames["episode_index"] == row["episode_index"]]
        for name, row in table.set_index("log_episode").iterrows()
    }
    flags = {name: list(f["extra.by_operator"]) for name, f in by_episode.items()}
    assert flags == {failed: [0.0] * 6, solved: [0, 0, 1, 1, 0, 0]}
    ends = {name: bool(f["next.success"].iloc[-1]) for name, f in by_episode.items()}
    assert ends == {failed: False, solved: True}


def test_each_episode_is_brought_once_and_what_is_here_is_not_written_again(
    home, tmp_path, store, known
):
    first = send(tmp_path, store, policy=known)
    assert len(deployments.bring(store, "deployed").new) == 1
    (home / "configs/datasets").mkdir(exist_ok=True)
    (home / "configs/datasets/deployed.yaml").write_text("mine\n")
    second = send(tmp_path, store, policy=known, first=30)
    assert [s["episode"] for s in deployments.waiting(store, "deployed")] == [second]
    done = deployments.bring(store, "deployed")
    assert ([s["episode"] for s in done.new], done.known) == ([second], 1)
    assert deployments.waiting(store, "deployed") == []
    assert deployments.write_dataset_cfg("deployed") is None
    assert (home / "configs/datasets/deployed.yaml").read_text() == "mine\n"
    here = {summary["episode"] for summary in deployments.summaries_here("deployed")}
    assert here == {first, second}


def test_a_policy_that_is_not_registered_is_refused_by_name_and_the_others_come(
    home, tmp_path, store, known
):
    stranger, ours = send(tmp_path, store), send(tmp_path, store, policy=known, first=30)
    nobody = send(tmp_path, store, policy={}, first=60)
    odd = send(tmp_path, store, policy={"digest": [1]}, first=90)
    assert [summary["episode"] for summary in deployments.waiting(store, "deployed")] == [ours]
    done = deployments.bring(store, "deployed")
    assert [summary["episode"] for summary in done.new] == [ours]
    refusals = dict(line.split(": ", 1) for line in done.refused)
    assert refusals[stranger].startswith(
        "the policy 'arm-policy/3' (digest dddddddddddd) is not in the registry"
    )
    assert "--allow 'arm-policy/3'" in refusals[stranger]
    assert "the policy 'None'" in refusals[nobody]
    assert "(digest [1])" in refusals[odd]
    allowed = deployments.bring(store, "deployed", [POLICY["digest"]])
    assert [summary["episode"] for summary in allowed.new] == [stranger]


def test_what_was_changed_in_the_store_is_refused_and_not_left_here(home, tmp_path, store, known):
    name = send(tmp_path, store, policy=known)
    path = tmp_path / "store/episodes" / name / "000000.rrflog"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    (line,) = deployments.bring(store, "deployed").refused
    assert "was changed after it was written" in line
    assert list((home / "recordings").rglob("*.rrflog")) == []


def test_a_log_that_names_a_registered_digest_under_a_false_summary_is_refused(
    home, tmp_path, store, known
):
    name = send(tmp_path, store)
    path = tmp_path / "store/episodes" / name / atomic.MANIFEST
    manifest = json.loads(path.read_text())
    manifest["summary"]["policy"] = known
    path.write_text(json.dumps(manifest))
    (line,) = deployments.bring(store, "deployed").refused
    assert "the manifest says policy is" in line


def test_names_and_units_come_from_a_dataset_of_the_same_robot(home, tmp_path, store, known):
    send(tmp_path, store, policy=known)
    deployments.bring(store, "deployed")
    (home / "configs/datasets").mkdir()
    example = {
        "name": "demo",
        "source": {"format": "robomimic", "path": "datasets/raw"},
        "fps": 10,
        "image_size": [8, 8],
        "cameras": {"front": "obs/front_image"},
        "state": {"keys": ["obs/pos"], "names": ["x", "y"], "unit": "m, rad"},
        "action": {"keys": ["actions"], "names": ["dx", "dy"], "unit": "m/s", "low": [-9, -9],
                   "high": [9, 9]},
        "licence": "MIT",
        "provenance": "made by a test",
    }  # fmt: skip
    (home / "configs/datasets/demo.yaml").write_text(json.dumps(example))
    deployments.write_dataset_cfg("deployed", like="demo")
    cfg = load_dataset_cfg("deployed")
    assert (cfg.state.names, cfg.state.unit, cfg.action.high) == (["x", "y"], "m, rad", [9, 9])
    assert cfg.licence == "MIT"
    (home / "configs/datasets/deployed.yaml").unlink()
    (home / "configs/datasets/demo.yaml").write_text(
        json.dumps(example | {"state": {"keys": ["obs/pos"], "names": ["x"], "unit": "m"}})
    )
    with pytest.raises(ValueError, match="has 2 numbers, but the names are x"):
        deployments.write_dataset_cfg("deployed", like="demo")


def test_a_policy_of_states_may_call_its_only_group_as_it_likes(home, tmp_path, known):
    seen = {
        "deployed": {"policy": np.zeros(3, np.float32)},
        "both": {"arm": np.zeros(3, np.float32), "hand": np.zeros(1, np.float32)},
    }
    for name, observation in seen.items():
        with EpisodeLogger(tmp_path / name, "arm-1") as log:
            log.begin("a", 10, policy=known)
            log.step(observation, np.zeros(2, np.float32))
            log.end("success")
        store = EpisodeStore(tmp_path / "stores" / name)
        upload(tmp_path / name, store)
        assert len(deployments.bring(store, name).new) == 1
    deployments.write_dataset_cfg("deployed")
    assert load_dataset_cfg("deployed").state.keys == ["policy"]
    with pytest.raises(ValueError, match=r"no observation.state, and arm, hand in its place; let"):
        deployments.write_dataset_cfg("both")


def test_the_command_says_what_came_and_what_to_type_next(home, tmp_path, store, known):
    (home / "dvc.yaml").write_text(PIPELINE)
    send(tmp_path, store)
    words = ["logs", "ingest", "deployed", "--store", store.url]
    refused = CliRunner().invoke(app, words)
    assert isinstance(refused.exception, ValueError)
    assert "has no episode for deployed, 1 were refused" in str(refused.exception)
    send(tmp_path, store, policy=known, first=30)
    done = CliRunner().invoke(app, words)
    assert done.exception is None, done.output
    lines = done.output.splitlines()
    assert f"1 new episodes, 1 in {home}/recordings/deployed, 1 refused" in lines
    assert f"wrote {home}/configs/datasets/deployed.yaml" in lines
    assert "added deployed to dvc.yaml" in lines
    assert lines[-1] == "next: dvc repro publish@deployed"


def test_a_pipeline_without_a_list_of_datasets_says_which_line_to_write(home):
    (home / "dvc.yaml").write_text("stages: {}\n")
    with pytest.raises(ValueError, match=r"write there: deployed: \{raw: recordings/deployed"):
        deployments.add_to_pipeline("deployed")


def test_the_commands_on_a_robot(home, tmp_path, monkeypatch):
    run = CliRunner().invoke
    assert f"no episodes in {home}/robot-logs" in run(app, ["logs", "list"]).output
    missing = run(app, ["logs", "upload"])
    assert "no store is named; give --store FOLDER" in str(missing.exception)
    monkeypatch.setenv("RRF_LOG_STORE", str(tmp_path / "store"))
    folder = logged(home / "robot-logs", corrected=(1,))
    listed = run(app, ["logs", "list"]).output
    assert f"{folder.name}  drawer-open  arm-policy 3  success  6      1" in listed
    sent = run(app, ["logs", "upload"])
    assert sent.output.splitlines()[-1] == f"episodes: 1 sent to {tmp_path}/store"
    bad = logged(home / "robot-logs", first=40)
    shutil.move(bad, bad.with_name("renamed-since"))
    failed = run(app, ["logs", "upload"])
    assert "1 episodes were left alone; the last: " in str(failed.exception)
