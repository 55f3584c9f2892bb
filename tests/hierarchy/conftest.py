"""The three systems as checkpoints with small random weights, and a G1 on bare ground."""

import numpy as np
import pytest
import torch

from rrf.data.schema import Observation
from rrf.envs.humanoid import body, command
from rrf.envs.humanoid.configs import HumanoidCfg
from rrf.envs.humanoid.simulated_robot import SimulatedRobot, standing_data
from rrf.envs.humanoid.whole_body_configs import WholeBodyEnvCfg
from rrf.hierarchy.combination import combine
from rrf.hierarchy.configs import HierarchyCfg, SystemCfg
from rrf.lineage import Lineage
from rrf.presets import resolve
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.control import INTERFACE, interface_text
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from tests.policies.vla.test_psi0 import psi0
from tests.serving.conftest import NAMES

SENDS = ("left_elbow_joint", "right_elbow_joint", "vx", "vyaw")
UNITS = ("rad", "rad", "m/s", "rad/s")
_STATE = checkpoint.TrainerState({}, {})


def written_system0(folder, change):
    """A System 0 of random weights, of which `change` is given those of the last layer and their
    biases."""
    pytest.importorskip("mjlab", reason="the robot's model is in mjlab's wheel")
    cfg = resolve("g1-whole-body-ppo").replace(env=WholeBodyEnvCfg(num_envs=1, num_threads=0))
    env = cfg.env.build(seed=0)
    torch.manual_seed(0)
    policy = cfg.policy.build(env.interface)
    change(*list(policy.actor.backbone.parameters())[-2:])
    texts = {INTERFACE: interface_text(env.interface)}
    env.close()
    return checkpoint.save(folder, 1, cfg, policy.state_dict(), {}, _STATE, Lineage(), texts)


@pytest.fixture(scope="session")
def system0(tmp_path_factory):
    """It stands as it is."""
    return written_system0(
        tmp_path_factory.mktemp("system0"), lambda weights, biases: torch.nn.init.zeros_(weights)
    )


def written(folder, lineage=Lineage(), **changes):
    """A policy in two parts that sends `SENDS`."""
    given = {"action_dim": 4, "action_names": list(SENDS), "action_units": list(UNITS)}
    cfg = psi0("regression", **(given | changes))
    width = cfg.action_dim
    bounds = {name: 0.0 if name == "mean" else 1.0 for name in NAMES} | {"min": -1.0, "q01": -1.0}
    stats = {
        key: {name: [value] * size for name, value in bounds.items()} | {"count": [10]}
        for key, size in (("observation.state", cfg.state_dim), ("action", width))
    }
    torch.manual_seed(1)
    policy = cfg.build(stats)
    run = SupervisedRunnerCfg(policy=cfg)
    return checkpoint.save(
        folder, 1, run, policy.state_dict(), stats, _STATE, lineage, policy.assets()
    )


@pytest.fixture(scope="session")
def upper(tmp_path_factory):
    return written(tmp_path_factory.mktemp("upper"))


def written_for_table(folder, signals, **changes):
    """A policy of random weights that sees what the G1 at its table does, and sends signals."""
    return written(
        folder,
        cameras=["ego"],
        image_size=(64, 64),
        state_dim=HumanoidCfg().state_dim,
        action_dim=len(signals),
        action_names=[signal.name for signal in signals],
        action_units=[signal.unit for signal in signals],
        feature_period=2,
        **changes,
    )


@pytest.fixture(scope="session")
def at_table(system0, tmp_path_factory):
    """A combination whose policy of random weights sends all of the command."""
    folder = tmp_path_factory.mktemp("upper")
    upper = written_for_table(folder, command.COMMAND, fast_view=None)
    return combine(upper, system0, tmp_path_factory.mktemp("all") / "combined")


@pytest.fixture
def cfg(system0, upper):
    return HierarchyCfg(
        system2=SystemCfg(policy=str(upper), hz=2.0),
        system1=SystemCfg(policy=str(upper), hz=5.0),
        system0=SystemCfg(policy=str(system0), hz=50.0),
    )


@pytest.fixture(scope="session")
def model():
    return body.shown_spec().compile()


def look(model, data) -> Observation:
    """A robot that sees how high its pelvis is, as grey."""
    grey = np.full((1, 24, 32, 3), int(100 * data.qpos[2]), np.uint8)
    elbows = data.qpos[body.qpos_addresses(model, SENDS[:2])]
    state = np.array([[data.qpos[2], *elbows, data.qvel[0]]], np.float32)
    return Observation({"front": grey, "wrist": grey}, state, ["open the door"])


@pytest.fixture
def robot(model):
    return SimulatedRobot(model, standing_data(model), look)


def arm(name: str) -> int:
    """The place of a signal in the command."""
    return command.NAMES.index(name)
