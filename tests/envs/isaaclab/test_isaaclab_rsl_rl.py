"""Checkpoints of Isaac Lab's rsl_rl become ours and go back, with the same actions."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from typer.testing import CliRunner

from rrf.cli import app
from rrf.envs.foreign import interpreters
from rrf.envs.isaaclab import tasks
from rrf.runners.checkpoints.control import load_control_policy


@pytest.mark.slow
def test_a_checkpoint_of_rsl_rl_comes_and_goes(isaaclab, tmp_path):
    python = interpreters.interpreter("isaaclab").python
    script = Path(__file__).parent / "rsl_rl_run.py"
    ours = Path(tasks.__file__).parent
    subprocess.run(
        [str(python), "-s", str(script), str(ours), str(tmp_path)],
        check=True,
        capture_output=True,
        env=interpreters.foreign_environment(),
    )
    theirs, made = tmp_path / "model.pt", tmp_path / "imported"
    words = ["import", str(theirs), "--out", str(made), "--task", "Isaac-Cartpole"]
    assert CliRunner().invoke(app, words).exit_code == 0
    policy, interface = load_control_policy(made)
    assert (interface.task, interface.num_actions) == ("Isaac-Cartpole", 1)
    saved = np.load(tmp_path / "actions.npz")
    seen = TensorDict({"policy": torch.from_numpy(saved["observations"])}, [8])
    np.testing.assert_array_equal(policy.act(seen).numpy(), saved["actions"])
    back = tmp_path / "back.pt"
    assert CliRunner().invoke(app, ["export", str(made), "--rsl-rl", str(back)]).exit_code == 0
    before, after = (torch.load(path, weights_only=True) for path in (theirs, back))
    for part in ("actor_state_dict", "critic_state_dict"):
        assert before[part].keys() == after[part].keys()
        for name, value in before[part].items():
            assert torch.equal(value, after[part][name]), name
