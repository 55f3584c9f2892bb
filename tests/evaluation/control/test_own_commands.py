"""Tasks that draw their commands themselves and say how far a robot is from them."""

import pytest
import torch

from rrf.envs.control_env import Interface
from rrf.envs.humanoid.whole_body_configs import WholeBodyEnvCfg
from rrf.evaluation.control.configs import ControlProtocolCfg
from rrf.evaluation.control.metrics import EpisodeMeter
from rrf.evaluation.protocols.files import load_protocol
from tests.repository.structure import ROOT


class Env:
    num_envs = 2
    interface = Interface({}, 3, step_dt=0.5)


def measured(protocol, errors, ends):
    """Metrics of both robots; the second one falls after `ends` steps."""
    meter, no = EpisodeMeter(Env, protocol, None), torch.zeros(2, dtype=torch.bool)
    for step, error in enumerate(errors, start=1):
        dones = torch.tensor([False, step == ends])
        told = {"height_error": torch.tensor([error, error])}
        meter.observe(torch.zeros(2, 3), torch.zeros(2), dones, no, measured=told)
    meter.stop()
    return [meter.metrics(env) for env in (0, 1)]


@pytest.fixture(scope="module")
def protocol():
    return load_protocol(ROOT / "configs/protocols/g1-whole-body.yaml").replace(settling_s=1.0)


def test_errors_are_means_after_settling_and_falls_are_counted(protocol):
    stood, fell = measured(protocol, [9.0, 9.0, 0.1, 0.2, 0.3], ends=4)
    assert stood["height_error"] == pytest.approx(0.2)
    assert (stood["fall"], fell["fall"]) == (0.0, 1.0)
    assert fell["height_error"] == pytest.approx(0.1)


def test_who_falls_before_settling_has_no_error_and_is_no_success(protocol):
    _, fell = measured(protocol, [9.0] * 5, ends=1)
    assert "height_error" not in fell
    assert fell["fall"] == 1.0


def test_errors_of_a_task_without_commands_are_refused(protocol):
    plain = {"type": "rrf.envs.gymnasium.configs:GymnasiumEnvCfg", "task": "Pendulum-v1"}
    given = protocol.to_dict() | {"env": plain | {"num_envs": 100}}
    given["success"] = {"fall": {"max": 0.0}}
    with pytest.raises(ValueError, match="asks for fall"):
        ControlProtocolCfg.from_dict(given)
    given["success"] = {"height_error": {"max": 1.0}}
    with pytest.raises(ValueError, match="does not measure it; ask for tracking_error_xy"):
        ControlProtocolCfg.from_dict(given)
    assert "height_error" in WholeBodyEnvCfg.measures
    mine = protocol.to_dict() | {"success": {"mpjpe": {"max": 50.0}}}
    with pytest.raises(ValueError, match="Whole-Body does not measure it; ask for velocity_error,"):
        ControlProtocolCfg.from_dict(mine)


def test_a_policy_is_judged_by_all_commands_unless_velocities_are_asked_for(protocol):
    trained = {"env": WholeBodyEnvCfg().to_dict()}
    walk = load_protocol(ROOT / "configs/protocols/g1-walk.yaml")
    assert (protocol.is_about(trained), walk.is_about(trained)) == (True, False)
