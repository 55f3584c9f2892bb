"""The Ray backend plays what the inline backend plays, also when actors die."""

import os
import signal
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from rrf.cli import app
from rrf.runners.checkpoints import checkpoint
from rrf.runners.vla_rl import timeline
from rrf.runners.vla_rl.configs import RayCfg
from tests.orchestra import toy
from tests.orchestra.conftest import assert_same

pytest.importorskip("ray", reason="Ray is not installed")

pytestmark = pytest.mark.slow
PLACEMENT = {"env": "0:0-1", "rollout": "0:0-1", "actor": "0"}


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    return toy.save_parent(tmp_path_factory.mktemp("sft"))


@pytest.fixture(scope="module")
def one_worker(parent, tmp_path_factory):
    return toy.inline_episodes(parent, tmp_path_factory.mktemp("inline"))


@pytest.fixture(scope="module")
def backend(parent, tmp_path_factory):
    backend = toy.runner_of(parent, tmp_path_factory.mktemp("ray"), PLACEMENT).backend
    yield backend
    backend.close()


def test_actors_play_what_the_inline_backend_plays(backend, one_worker):
    assert_same(toy.play(backend), one_worker)
    assert backend.timings()["inference"] > 0
    assert backend.rollout.sync_bytes > 0


def test_a_cluster_that_a_run_starts_lets_nobody_in_without_its_token(backend):
    import ray

    address = ray.get_runtime_context().gcs_address
    program = f"import ray; ray.init('{address}', log_to_driver=False); print('is in')"
    for changes, printed in (({}, "is in\n"), ({"RAY_AUTH_TOKEN": "x" * 64}, "")):
        command = [sys.executable, "-c", program]
        env = {**os.environ, **changes}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.stdout == printed, done.stderr


def test_killed_actors_are_replaced_and_their_episodes_are_played_again(backend, one_worker):
    pids = [*backend.pids(), *backend.rollout.pids()]

    def kill_one():
        if pids:
            os.kill(pids.pop(), signal.SIGKILL)

    assert_same(toy.play(backend, kill_one), one_worker)
    assert backend.num_restarts >= 1
    assert backend.rollout.num_restarts >= 1


def test_roles_that_take_turns_on_a_device_learn_the_same(parent, tmp_path):
    def learned(name, ray):
        runner = toy.run_cfg(parent, ray=ray).build(tmp_path / name)
        return runner.run()

    away = learned("away", RayCfg(placement=PLACEMENT, offload=True))
    here = learned("here", None)
    one, other = (checkpoint.read_weights(run["checkpoint"]) for run in (away, here))
    assert all(torch.equal(one[name], other[name]) for name in other)
    assert away["metrics"]["actor/offload_mb"] > 0
    assert away["metrics"]["rollout/offload_mb"] > 0
    assert away["metrics"]["time/offload"] > 0
    rows = {span.process for span in timeline.load(tmp_path / "away").spans}
    assert rows == {"env 0", "env 1", "rollout 0", "rollout 1", "actor", "driver"}


def test_several_actors_learn_what_one_learns_up_to_the_order_of_sums(parent, tmp_path):
    def learned(name, ray):
        return toy.run_cfg(parent, ray=ray, max_rounds=1).build(tmp_path / name).run()

    where = RayCfg(placement={"env": "0:0-1", "rollout": "0", "actor": "0:0-1"})
    group, one = learned("group", where), learned("one", None)
    theirs, ours = (checkpoint.read_weights(run["checkpoint"]) for run in (group, one))
    for name, value in ours.items():
        assert (theirs[name] - value).abs().max() <= 1e-5 * value.abs().max().clamp(min=1), name
    assert group["metrics"]["env/return"] == one["metrics"]["env/return"]


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        ({"env": "0-7"}, r"needs resource 7, but the cluster has 1: 0: [\d.]+ \(\d+ cores\)"),
        ({"env": "0:0-2"}, "ray.pipeline_stage_num=3; set num_envs=3 or 6"),
        ({"env": {"node_group": "node", "placement": "1"}}, "needs resource 1, but .* has 1: 0"),
    ],
)
def test_a_placement_that_does_not_fit_is_refused(parent, tmp_path, placement, message):
    with pytest.raises(ValueError, match=message):
        toy.runner_of(parent, tmp_path, PLACEMENT | placement)


def test_stages_divide_the_slots_of_a_process(parent, tmp_path, one_worker):
    where = RayCfg(placement=PLACEMENT | {"env": "0"}, pipeline_stage_num=2)
    runner = toy.run_cfg(parent, ray=where).build(tmp_path)
    runner.backend.rollout.load(runner.actor.weights(), -1)
    try:
        assert len(runner.backend.pids()) == 2
        assert_same(toy.play(runner.backend), one_worker)
    finally:
        runner.backend.close()


def test_several_actors_cannot_leave_their_devices(parent, tmp_path):
    where = RayCfg(placement=PLACEMENT | {"actor": "0:0-1"}, offload=True)
    with pytest.raises(ValueError, match="has 2 actor processes, which divide their memory"):
        toy.run_cfg(parent, ray=where).build(tmp_path)


@pytest.mark.parametrize("words", [[], ["--inline"]], ids=["Ray", "inline"])
def test_a_smoke_run_says_that_all_roles_work(words):
    result = CliRunner().invoke(app, ["orchestra", "smoke", "--rounds", "2", *words])
    assert result.exit_code == 0, result.output
    assert "round 2/2: 8 episodes" in result.output
    assert result.output.endswith("all roles work\n")
