"""Environments that step together in a foreign interpreter fulfil the contract of states; a process
that dies is replaced in training, and its block is played again in an evaluation.
"""

import pytest
import torch

from rrf.config import trust
from rrf.envs.process.child import ChildError, ChildValueError
from rrf.evaluation.control.configs import ControlProtocolCfg
from rrf.evaluation.control.evaluate import evaluate_control
from rrf.evaluation.protocols.limits import LimitCfg
from rrf.runners.control.configs import OnPolicyRunnerCfg
from tests.envs.contract import check_contract
from tests.envs.foreign.configs import PointsCfg

CFG = PointsCfg(num_envs=4)


@pytest.fixture(autouse=True)
def interpreter(home):
    trust("tests.envs.foreign.configs")
    return home


def right(num_envs=4, speed=1.0):
    return torch.tensor([[speed, 0.0]]).repeat(num_envs, 1)


def test_it_fulfils_the_contract():
    check_contract(lambda: CFG.build(seed=3), has_state=False)


def test_numbers_worked_by_hand():
    env = CFG.build(seed=0)
    begun = env.reset_envs([1, 3], [7, 7])["policy"][:, 0]
    assert begun[1] == begun[3] != begun[0]
    assert env.interface.observation_terms == {
        "policy": {"place": 1, "steps": 1},
        "critic": {"speed": 1},
    }
    assert (env.interface.step_dt, env.interface.robot) == (0.1, {"names": ["x"]})
    env.episode_length_buf = torch.tensor([0, 7, 0, 0])
    after, rewards, dones, extras = env.step(right())
    assert dones.tolist() == extras["time_outs"].tolist() == [False, True, False, False]
    assert rewards.tolist() == [1.0] * 4
    torch.testing.assert_close(after["policy"][[0, 2, 3], 0], begun[[0, 2, 3]] + 0.1)
    torch.testing.assert_close(extras["final_obs"]["policy"], torch.tensor([[begun[1] + 0.1, 8.0]]))
    assert env.episode_length_buf.tolist() == [1, 0, 1, 1]
    assert extras["log"] == {"env/steps": 1}
    _, _, dones, extras = env.step(right(speed=20.0))
    assert dones.tolist() == [True] * 4
    assert not extras["time_outs"].any(), "they left the track"
    env.close()
    with pytest.raises(ValueError, match="is closed"):
        env.step(right())


def test_a_process_that_dies_ends_the_environment_and_says_what_it_printed():
    env = CFG.replace(trouble_at=["dies", 2]).build()
    env.step(right())
    with pytest.raises(ChildError, match="died during 'step'") as error:
        env.step(right())
    assert any("out of memory" in note for note in error.value.__notes__)


@pytest.mark.parametrize(
    ("trouble", "said"), [("dies", "died"), ("hangs", "did not answer"), ("fails", "a solver")]
)
def test_where_it_is_allowed_another_process_takes_its_place(trouble, said):
    env = CFG.replace(trouble_at=[trouble, 3]).build(seed=5)
    env.replaces_process = True
    env.step(right())
    before, *_ = env.step(right())
    with pytest.warns(UserWarning, match=f"{said}.*replacement 1 of 3"):
        after, rewards, dones, extras = env.step(right())
    assert dones.all()
    assert extras["time_outs"].all()
    assert rewards.tolist() == [0.0] * 4
    torch.testing.assert_close(extras["final_obs"]["policy"], before["policy"])
    assert not torch.equal(after["policy"], before["policy"])
    assert env.episode_length_buf.tolist() == [0] * 4
    env.step(right())
    env.close()


def test_training_survives_the_death_of_the_process(tmp_path):
    cfg = OnPolicyRunnerCfg(
        env=CFG.replace(trouble_at=["dies", 20]), num_steps_per_env=8, max_iterations=3
    )
    with pytest.warns(UserWarning, match="another one begins new episodes"):
        result = cfg.build(tmp_path / "run").run()
    assert result["num_steps"] == 3 * 8 * 4


def test_a_block_whose_process_dies_is_played_again(tmp_path):
    OnPolicyRunnerCfg(env=CFG, num_steps_per_env=4, max_iterations=1).build(tmp_path / "run").run()
    from rrf.runners.checkpoints.control import load_control_policy

    policy = load_control_policy(tmp_path / "run" / "global_step_1")
    protocol = ControlProtocolCfg(
        name="points",
        env=CFG,
        seed=1,
        episodes_per_task=8,
        max_episode_steps=8,
        success={"length": LimitCfg(min=8)},
    )
    plain = evaluate_control(*policy, protocol)
    (tmp_path / "once").touch()
    fragile = protocol.replace(env=CFG.replace(trouble_at=["dies", str(tmp_path / "once")]))
    played = evaluate_control(*policy, fragile)
    assert [e.metrics for e in played.episodes] == [e.metrics for e in plain.episodes]
    assert not (tmp_path / "once").exists(), "it died once"
    with pytest.raises(ChildError, match="died"):
        evaluate_control(*policy, protocol.replace(env=CFG.replace(trouble_at=["dies", 3])))


def test_the_versions_there_are_a_part_of_the_protocol():
    protocol = ControlProtocolCfg(
        name="points",
        env=CFG,
        seed=1,
        episodes_per_task=4,
        max_episode_steps=8,
        success={"length": LimitCfg(min=8)},
    )
    assert "simulator_versions" not in protocol.to_dict()
    here = protocol.here()
    assert set(here.versions) == {"numpy"}
    assert here.hash != protocol.hash
    assert here.base_hash == protocol.base_hash
    with pytest.raises(ValueError, match=r"is for numpy 1\.0, but points runs with numpy"):
        protocol.replace(simulator_versions={"numpy": "1.0"}).here()


def test_robots_that_take_commands_can_be_measured():
    env = CFG.replace(task="PointsWalk").build()
    env.set_command(torch.tensor([[0.5, 0.0, 0.0]]).repeat(4, 1))
    assert env.get_observations()["policy"][:, 0].tolist() == [0.5] * 4
    env.step(right(speed=0.3))
    torch.testing.assert_close(env.body_velocity()[:, 0], torch.full((4,), 0.3))
    assert env.power().tolist() == [7.0] * 4
    assert not hasattr(CFG.build(), "set_command")


def test_a_task_that_is_not_there_is_a_mistake_of_the_user():
    with pytest.raises(ChildValueError, match="did you mean 'Points'"):
        CFG.replace(task="Pionts").build()


def test_pictures_come_from_the_simulator():
    env = CFG.build()
    assert env.pictures([2, 0], (6, 8)).shape == (2, 6, 8, 3)
    env.close()
