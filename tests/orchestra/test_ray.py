"""The Ray backend plays what the inline backend plays, also when actors die."""

import os
import signal

import pytest
from typer.testing import CliRunner

from rrf.cli import app
from rrf.orchestra.inline_run import build_runner
from rrf.runners.checkpoints import checkpoint
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.vla_rl.configs import RayCfg, VLARLRunnerCfg
from tests.orchestra.conftest import (
    ENV,
    POLICY,
    STATS,
    TASKS,
    assert_same,
    group_round,
    make_policy,
)

ray_processes = pytest.importorskip("rrf.orchestra.ray_processes", reason="Ray is not installed")

pytestmark = pytest.mark.slow
PLACEMENT = {"env": "0:0-1", "rollout": "0:0-1", "actor": "0"}


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """The checkpoint of a supervised run."""
    weights, state = make_policy().state_dict(), checkpoint.TrainerState({}, {})
    cfg = SupervisedRunnerCfg(policy=POLICY)
    return checkpoint.save(tmp_path_factory.mktemp("sft"), 7, cfg, weights, STATS, state, {})


@pytest.fixture
def backend(parent, tmp_path):
    cfg = VLARLRunnerCfg(
        init_from=str(parent),
        policy=POLICY,
        env=ENV,
        tasks=list(TASKS),
        inference_batch=4,
        ray=RayCfg(placement=PLACEMENT),
    )
    runner = build_runner(cfg, tmp_path)
    runner.backend.rollout.load(runner.actor.weights(), -1)
    yield runner.backend
    runner.backend.close()


def test_actors_play_what_the_inline_backend_plays(backend, one_worker_round):
    source = group_round()
    backend.play(source, (0, 7))
    assert_same(source.episodes, one_worker_round)
    assert backend.timings()["inference"] > 0
    assert backend.rollout.sync_bytes > 0


def test_killed_actors_are_replaced_and_their_episodes_are_played_again(backend, one_worker_round):
    source = group_round()
    pids, report = [*backend.pids(), *backend.rollout.pids()], source.report

    def kill_and_report(episode):
        if pids:
            os.kill(pids.pop(), signal.SIGKILL)
        report(episode)

    source.report = kill_and_report
    backend.play(source, (0, 7))
    assert_same(source.episodes, one_worker_round)
    assert backend.num_restarts >= 1
    assert backend.rollout.num_restarts >= 1


def test_a_placement_that_does_not_fit_the_cluster_is_refused(parent, tmp_path):
    where = RayCfg(placement=PLACEMENT | {"env": "0-7"})
    cfg = VLARLRunnerCfg(init_from=str(parent), policy=POLICY, env=ENV, tasks=list(TASKS))
    with pytest.raises(ValueError, match="needs resource 7, but the cluster has 1"):
        build_runner(cfg.replace(ray=where), tmp_path)


def test_a_cluster_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="no Ray cluster answers at 'auto'; start one with"):
        ray_processes.Cluster("auto")


@pytest.mark.parametrize("words", [[], ["--inline"]], ids=["Ray", "inline"])
def test_a_smoke_run_says_that_all_roles_work(words):
    result = CliRunner().invoke(app, ["orchestra", "smoke", "--rounds", "2", *words])
    assert result.exit_code == 0, result.output
    assert "round 2/2: 8 episodes" in result.output
    assert result.output.endswith("all roles work\n")
