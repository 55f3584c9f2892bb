"""The compiled rollout gives what MuJoCo's own gives, bit for bit."""

import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

from rrf.compiled import rollout
from tests.envs.contract import assert_equal, trajectory
from tests.envs.mjlab.mjlab_tasks import CARTPOLE, GO1, ROUGH, build

SLOW = pytest.mark.slow

pytestmark = pytest.mark.skipif(rollout.library() is None, reason="needs a C compiler")


def _runs(monkeypatch, task: str, num_steps: int, **fields):
    """The same run with the compiled code and without."""
    runs = []
    for without in (False, True):
        with monkeypatch.context() as patch:
            if without:
                patch.setattr(rollout, "library", lambda: None)
            env = build(task, num_envs=9, **fields)
        runs.append((trajectory(env, torch.Generator().manual_seed(0), num_steps), env.state()))
        env.close()
    return runs


@pytest.mark.parametrize(
    ("task", "fields"),
    [
        (GO1, {"num_threads": 2}),  # every robot has its own friction and centre of mass
        (CARTPOLE, {"num_threads": 1}),
        pytest.param(GO1, {"num_threads": 0, "physics": "fast"}, marks=SLOW),
        pytest.param(GO1, {"fresh_contacts": False}, marks=SLOW),
        pytest.param(ROUGH, {}, marks=SLOW),
        pytest.param("Mjlab-Velocity-Flat-Unitree-G1", {}, marks=SLOW),
        pytest.param("Mjlab-Lift-Cube-Yam", {}, marks=SLOW),
    ],
)
def test_the_compiled_rollout_equals_mujocos(task, fields, monkeypatch):
    (ours, ours_after), (theirs, theirs_after) = _runs(monkeypatch, task, 40, **fields)
    assert_equal(ours, theirs)
    for name, tensor in theirs_after.tensors.items():
        assert torch.equal(ours_after.tensors[name], tensor), name


def test_after_a_warning_both_give_the_same(tmp_path, monkeypatch):
    """MuJoCo warns in a substep; until the last one only a few sensors were computed."""
    monkeypatch.chdir(tmp_path)  # MuJoCo logs warnings here
    results = []
    for without in (False, True):
        with monkeypatch.context() as patch:
            if without:
                patch.setattr(rollout, "library", lambda: None)
            env = build(GO1, num_envs=3, num_threads=0)
        stepper = env.env.sim.stepper
        stepper.state_NX[1, stepper.qvel] = 1e12  # too fast: MuJoCo warns and does not go on
        controls, spec = env.env.sim._pack_inputs(slice(None))
        diverged = stepper.step(controls, spec)
        results.append((diverged, stepper.state_NX.copy(), stepper.sensors_NSY[:, -1].copy()))
        env.close()
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert results[0][0].tolist() == [False, True, False]
