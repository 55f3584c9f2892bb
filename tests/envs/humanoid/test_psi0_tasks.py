"""humanoid-psi0: 14 pick-and-place instructions as a task package."""

import pytest

from rrf.data.conversion.dataset_cfg import read_dataset_cfg
from rrf.envs import ENVS
from rrf.envs.humanoid import command
from rrf.envs.humanoid.configs import HumanoidPsi0Cfg
from rrf.envs.humanoid.tasks import TASKS
from rrf.evaluation.protocols.files import load_protocol
from rrf.presets import PRESETS
from tests.repository.structure import ROOT


def test_there_are_14_instructions_to_place_each_object_and_onto_each_plate():
    cfg = ENVS.get("humanoid-psi0")()
    tasks = [TASKS[name] for name in cfg.tasks]
    assert len({task.instruction for task in tasks}) == 14
    assert {task.verb for task in tasks} == {"place"}
    assert len({task.object for task in tasks}) == 8
    assert {task.plate for task in tasks} == {"red", "green", "blue", "yellow"}
    with pytest.raises(ValueError, match="no humanoid-psi0 task 'walk-to-table'"):
        cfg.check_task("walk-to-table")


def test_protocol_dataset_and_preset_are_of_it():
    protocol = load_protocol(ROOT / "configs/protocols/humanoid-psi0.yaml")
    assert protocol.env == "humanoid-psi0"
    assert list(protocol.tasks) == list(HumanoidPsi0Cfg().tasks)
    ours, table = (
        read_dataset_cfg(ROOT / f"configs/datasets/{name}.yaml")
        for name in ("humanoid-psi0", "g1-table-demo")
    )
    assert ours.action.names == list(command.NAMES)
    assert len(ours.state.names) == HumanoidPsi0Cfg().state_dim
    assert (ours.state, ours.action, ours.fps) == (table.state, table.action, table.fps)
    assert PRESETS.get("psi0-humanoid")().dataset == ours.name
