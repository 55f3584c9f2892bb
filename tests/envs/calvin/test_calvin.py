"""CALVIN in its own interpreter, and what its config refuses without it."""

import json
from pathlib import Path

import numpy as np
import pytest

from rrf.config import read_yaml
from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import DatasetCfg
from rrf.envs import ENVS
from rrf.envs.calvin.configs import CalvinCfg
from rrf.envs.demonstrations.collect import CollectCfg
from rrf.envs.foreign import interpreters
from rrf.envs.observations import digest
from rrf.envs.vec_env import InitialState
from rrf.evaluation.gates.gate import load_gate
from rrf.evaluation.protocols.files import load_protocol
from rrf.presets import resolve
from tests.data.formats.test_calvin import annotated
from tests.envs.foreign import real
from tests.envs.foreign.real import starts

ROOT = Path(__file__).parents[3]
CFG = CalvinCfg(num_envs=2, chunk_length=4, action_repeat=3, max_episode_steps=160)


def test_a_config_says_what_it_does_not_know():
    assert ENVS.get("calvin") is CalvinCfg
    assert (CFG.fps, CFG.action_dim, CFG.state_dim) == (10, 7, 15)
    assert len(CFG.tasks) == 35
    with pytest.raises(ValueError, match="no camera 'statik'; did you mean 'static'"):
        CFG.replace(cameras=["statik"])
    with pytest.raises(ValueError, match="later_starts=2"):
        CFG.replace(later_starts=2)
    with pytest.raises(ValueError, match="no CALVIN task 'open_drawr'; did you mean 'open_drawer'"):
        CFG.check_initial_state(InitialState("open_drawr", 0, 0))
    with pytest.raises(ValueError, match="has no initial state 1000"):
        CFG.check_initial_state(InitialState("chain", 0, 1000))


def test_without_its_interpreter_it_says_what_to_type(tmp_path):
    real.check_says_what_to_type(CFG, tmp_path)


def test_the_protocols_and_presets_are_those_of_the_environment():
    for name in ("calvin-demo", "calvin-chains"):
        protocol = load_protocol(ROOT / f"configs/protocols/{name}.yaml")
        cfg = protocol.environment_cfg()
        assert isinstance(cfg, CalvinCfg)
        assert cfg.fps == 10
        assert protocol.success_rule == ""
        for preset in ("compact-vla-calvin", "compact-vla-calvin-all", "calvin-grpo-compact"):
            protocol.build().check_training(resolve(preset, []))
    chains = load_protocol(ROOT / "configs/protocols/calvin-chains.yaml")
    assert chains.max_episodes_per_task == 1000
    assert chains.max_episode_steps * chains.action_repeat == 360
    assert load_gate(ROOT / "configs/gates/calvin-chains.yaml").limits["chain_length"].min == 1.0


def test_a_chain_cannot_be_recorded():
    with pytest.raises(ValueError, match="chain of CALVIN cannot be recorded: it has several"):
        CollectCfg(env=CFG, tasks=["chain"], out="out")


@pytest.fixture(scope="module")
def env():
    with real.built(CFG) as env:
        yield env


def solve(env, slot):
    """Let the expert act until the episode ends: the rewards of its actions, and the last step."""
    rewards = []
    while True:
        chunk = np.repeat(env.expert_action(slot)[None, None], CFG.chunk_length, axis=1)
        chunk[:, 1:, :6] = 0
        step = env.step(chunk, [slot])
        rewards.append(float(step.reward[0]))
        if step.terminated[0] or step.truncated[0]:
            return rewards, step


@pytest.mark.slow
def test_an_initial_state_is_the_same_episode_to_the_bit():
    real.check_exact(CFG, ["open_drawer", "turn_on_led"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["open_drawer", "lift_blue_block_table", "turn_on_lightbulb"])
def test_the_experts_solve_initial_states_they_were_not_made_on(env, name):
    for index in range(2):
        env.reset(starts(index, name), [0])
        rewards, step = solve(env, 0)
        assert step.success[0]
        assert sum(rewards) == 1.0


@pytest.mark.slow
def test_recordings_in_calvins_own_layout_are_learned_from_with_the_states_of_the_environment(
    env, tmp_path
):
    steps = []
    seen = env.reset(starts(3, "turn_on_led"), [0])
    while True:
        action = env.expert_action(0)
        steps.append((seen, action))
        step = env.step(np.repeat(action[None, None], 4, axis=1), [0])
        seen = step.observation
        if step.terminated[0]:
            break
    for number, (seen, action) in enumerate(steps):
        np.savez(
            tmp_path / f"episode_{number:07d}.npz",
            rgb_static=seen.images["static"][0],
            rgb_gripper=seen.images["gripper"][0],
            robot_obs=seen.state[0].astype(np.float64),
            rel_actions=action.astype(np.float64),
        )
    np.save(tmp_path / "ep_start_end_ids.npy", np.array([[0, len(steps) - 1]]))
    text = env.cfg.instruction("turn_on_led")
    annotated(tmp_path, texts=[text], ranges=[(0, len(steps) - 1)])
    cfg = DatasetCfg.from_dict(read_yaml(ROOT / "configs/datasets/calvin.yaml"))
    done = convert(cfg, tmp_path, tmp_path / "converted")
    assert (done.frames, done.episodes) == (len(steps), 1)
    assert cfg.schema().state.names == CalvinCfg.state_names
    assert cfg.schema().action.names == CalvinCfg.action_names


@pytest.mark.slow
def test_an_initial_state_is_the_same_after_blocks_were_pushed_about(env):
    """Where Bullet's saved states are restored instead, some of these differ."""
    press = np.zeros((1, 4, 7), np.float32)
    press[..., :3] = 0.3, 0.4, -1.0

    def pressed(slot):
        env.reset(starts(3, "lift_red_block_table"), [slot])
        return [digest(env.step(press, [slot]).observation, 0) for _ in range(3)]

    first = pressed(0)
    random = np.random.default_rng(0)
    for name in ("turn_on_led", "push_blue_block_right", "place_in_slider"):
        env.reset(starts(1, name), [0])
        for _ in range(4):
            noise = random.normal(0.0, 0.6, (1, 4, 7)).astype(np.float32)
            step = env.step(env.expert_action(0) + noise, [0])
            if step.terminated[0]:
                break
        assert pressed(0) == first
    assert pressed(1) == first


@pytest.mark.slow
def test_without_the_repository_it_says_what_to_type(env, tmp_path, monkeypatch):
    python = interpreters.interpreter("calvin")
    variables = {"CALVIN_ENV_PATH": "gone"}
    record = python.record | {"python": str(python.python), "variables": variables}
    path = tmp_path / ".rrf/envs/calvin" / interpreters.RECORD
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record))
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    broken = CFG.build()
    with pytest.raises(ValueError, match=r"is 'gone', which is no checkout .*calvin --force"):
        broken.reset(starts(0, "open_drawer"), [0])
