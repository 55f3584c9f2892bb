"""What every environment of state-based control must do, as one check.

`check_contract(make)` runs it; `make()` builds a fresh environment with a fixed seed. Groups other
than those of `interface.observation_dims` (images) are not looked into.
"""

import typing
from collections.abc import Callable

import pytest
import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from rrf.envs.control_env import ControlEnv


def check_contract(
    make: Callable[[], ControlEnv], num_steps: int = 60, *, has_state: bool = True
) -> None:
    env = make()
    try:
        check_attributes(env)
        check_steps(env, num_steps)
        check_time_limit(env)
        check_bad_actions(env)
        assert (env.state() is not None) == has_state
        check_state(env, make)
    finally:
        env.close()
        env.close()
    check_repeats(make)


def random_actions(env: ControlEnv, generator: torch.Generator) -> torch.Tensor:
    """Real ones in [-1, 1], or indices."""
    if env.interface.num_choices is not None:
        high = env.interface.num_choices
        return torch.randint(high, (env.num_envs, 1), generator=generator).float().to(env.device)
    actions = torch.rand(env.num_envs, env.num_actions, generator=generator) * 2 - 1
    return actions.to(env.device)


def vectors(env: ControlEnv, observations: TensorDict) -> dict[str, torch.Tensor]:
    return {name: observations[name].clone() for name in env.interface.observation_dims}


def check_attributes(env: ControlEnv) -> None:
    assert env.num_envs >= 2, "the check needs two environments to tell rows apart"
    assert env.interface.num_actions == env.num_actions
    assert env.interface.task
    assert env.interface.step_dt > 0
    assert int(env.max_episode_length) > 1
    assert env.episode_length_buf.shape == (env.num_envs,)
    assert env.episode_length_buf.dtype == torch.int64
    for name in VecEnv.__annotations__:
        assert hasattr(env, name), f"rsl_rl's VecEnv has {name}"
    rsl_rl: typing.Any = env
    assert rsl_rl.unwrapped.step_dt == rsl_rl.step_dt == env.interface.step_dt


def check_observations(env: ControlEnv, observations: TensorDict, num_rows: int) -> None:
    assert isinstance(observations, TensorDict)
    assert observations.batch_size == torch.Size([num_rows])
    for name, width in env.interface.observation_dims.items():
        assert observations[name].shape == (num_rows, width), name
        assert observations[name].dtype == torch.float32, name
        assert torch.isfinite(observations[name]).all(), name


def check_steps(env: ControlEnv, num_steps: int) -> None:
    """Shapes and types, and that what was returned stays what it was."""
    generator = torch.Generator().manual_seed(0)
    before, extras = env.reset()
    assert isinstance(extras, dict)
    check_observations(env, before, env.num_envs)
    assert env.episode_length_buf.tolist() == [0] * env.num_envs
    for name, value in vectors(env, before).items():
        assert torch.equal(env.get_observations()[name], value), "get_observations changes nothing"
    kept = vectors(env, before)
    lengths = torch.zeros(env.num_envs, dtype=torch.int64)
    for _ in range(num_steps):
        observations, rewards, dones, extras = env.step(random_actions(env, generator))
        lengths += 1
        check_step_result(env, observations, rewards, dones, extras)
        lengths[dones.cpu()] = 0
        assert env.episode_length_buf.tolist() == lengths.tolist()
    for name, value in kept.items():
        assert torch.equal(before[name], value), "a step wrote into observations handed out before"


def check_step_result(env, observations, rewards, dones, extras) -> None:
    check_observations(env, observations, env.num_envs)
    assert rewards.shape == dones.shape == (env.num_envs,)
    assert rewards.dtype == torch.float32
    assert dones.dtype == torch.bool
    time_outs, final = extras["time_outs"], extras["final_obs"]
    assert time_outs.shape == (env.num_envs,)
    assert time_outs.dtype == torch.bool
    assert not (time_outs & ~dones).any(), "a time-out ends the episode"
    assert isinstance(extras["log"], dict)
    num_ended = int(dones.sum())
    assert (final is None) == (num_ended == 0)
    if final is not None:
        check_observations(env, final, num_ended)
        name = next(iter(env.interface.observation_dims))
        is_same = (final[name] == observations[name][dones]).all(dim=1)
        assert not is_same.any(), "final_obs is an end, not the next episode's beginning"


def check_time_limit(env: ControlEnv) -> None:
    """The lengths may be set, and decide when time is up."""
    generator = torch.Generator().manual_seed(1)
    env.reset()
    lengths = torch.zeros(env.num_envs, dtype=torch.int64, device=env.device)
    lengths[0] = int(env.max_episode_length) - 1
    env.episode_length_buf = lengths
    _, _, dones, extras = env.step(random_actions(env, generator))
    assert bool(dones[0])
    assert bool(extras["time_outs"][0])
    assert int(env.episode_length_buf[0]) == 0
    if not bool(dones[1]):
        assert int(env.episode_length_buf[1]) == 1


def check_bad_actions(env: ControlEnv) -> None:
    generator = torch.Generator().manual_seed(2)
    actions = random_actions(env, generator)
    with pytest.raises(ValueError, match="shape"):
        env.step(actions[1:])
    actions[1, 0] = float("nan")
    with pytest.raises(ValueError, match="environment 1"):
        env.step(actions)


def check_state(env: ControlEnv, make: Callable[[], ControlEnv]) -> None:
    """Where there is a state, another environment goes on from it bit for bit."""
    generator = torch.Generator().manual_seed(3)
    env.reset()
    for _ in range(7):
        env.step(random_actions(env, generator))
    state = env.state()
    if state is None:
        return
    at = generator.get_state()
    expected = trajectory(env, generator, 40)
    other = make()
    other.load_state(state)
    generator.set_state(at)
    assert_equal(trajectory(other, generator, 40), expected)
    other.close()


def check_repeats(make: Callable[[], ControlEnv]) -> None:
    """The same seed and the same actions give the same trajectories."""
    first, second = make(), make()
    runs = [trajectory(env, torch.Generator().manual_seed(4), 25) for env in (first, second)]
    assert_equal(*runs)
    first.close()
    second.close()


def trajectory(env: ControlEnv, generator: torch.Generator, num_steps: int) -> list[torch.Tensor]:
    """Everything the contract says an environment returns, in order."""
    seen = [*vectors(env, env.get_observations()).values()]
    for _ in range(num_steps):
        observations, rewards, dones, extras = env.step(random_actions(env, generator))
        seen += [*vectors(env, observations).values(), rewards.clone(), dones.clone()]
        seen.append(extras["time_outs"].clone())
        if extras["final_obs"] is not None:
            seen += [*vectors(env, extras["final_obs"]).values()]
    return seen


def assert_equal(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert len(found) == len(expected)
    for index, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert torch.equal(one, other), f"value {index} differs"
