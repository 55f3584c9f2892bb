"""What tests of real simulators in interpreters of their own share.

They run in this checkout's workspace, or that of RRF_HOME, and are skipped with the reason where
the simulator is not set up.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from rrf.envs.demonstrations.collect import CollectCfg, collect
from rrf.envs.foreign import interpreters
from rrf.envs.foreign.configs import ForeignVecEnvCfg
from rrf.envs.foreign.env import ForeignVecEnv
from rrf.envs.observations import digest
from rrf.envs.vec_env import InitialState
from tests.envs.demonstrations.test_demonstrations import demos

ROOT = Path(__file__).parents[3]
SEED = 42


@contextlib.contextmanager
def workspace_of(name: str) -> Iterator[None]:
    """The workspace in which the interpreter of this name is set up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RRF_HOME", os.environ.get("RRF_HOME", str(ROOT)))
        try:
            interpreters.interpreter(name)
        except ValueError as error:
            pytest.skip(str(error))
        yield


@contextlib.contextmanager
def built(cfg: ForeignVecEnvCfg) -> Iterator[ForeignVecEnv]:
    """The real simulator, which is closed at the end."""
    with workspace_of(cfg.interpreter):
        env = cfg.build()
        try:
            yield env
        finally:
            env.close()


def starts(index: int, *tasks: str) -> list[InitialState]:
    """The same initial state of some tasks."""
    return [InitialState(task, SEED, index) for task in tasks]


def check_says_what_to_type(cfg: ForeignVecEnvCfg, folder: Path) -> None:
    """Without its interpreter, the environment is not built."""
    lock = folder / f"configs/envs/{cfg.interpreter}.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text((ROOT / f"configs/envs/{cfg.interpreter}.lock").read_text())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RRF_HOME", str(folder))
        with pytest.raises(ValueError, match=f"type: rrf envs setup {cfg.interpreter}"):
            cfg.build()


def check_exact(
    cfg: ForeignVecEnvCfg,
    tasks: Sequence[str],
    size: float = 1.0,
    held: Mapping[int, float] = MappingProxyType({}),
) -> None:
    """An initial state is the same episode to the bit: in another slot, after other episodes, and
    in another process; another seed or index is another one.

    Args:
        cfg: Has two slots.
        tasks: What is done in the two slots.
        size: Actions are drawn up to this.
        held: What stands in some dimensions of all actions instead.
    """
    num_steps = min(4, cfg.max_episode_steps // cfg.chunk_length)
    shape = (num_steps, 2, cfg.chunk_length, cfg.action_dim)
    chunks = (size * np.random.default_rng(0).uniform(-1, 1, shape)).astype(np.float32)
    for dimension, value in held.items():
        chunks[..., dimension] = value
    asked = [InitialState(task, SEED, index) for index, task in enumerate(tasks)]
    further = [
        [dataclasses.replace(state, index=state.index + 3) for state in asked],
        [dataclasses.replace(state, seed=SEED + 1) for state in asked],
    ]
    played, others = [], []
    for order, is_used in (([0, 1], False), ([1, 0], True)):
        with built(cfg) as env:
            for states in further if is_used else ():
                begun = env.reset(states)
                others += [digest(begun, slot) for slot in (0, 1)]
                env.step(chunks[0])
            begun = env.reset([asked[number] for number in order])
            observations = [begun] + [env.step(chunk[order]).observation for chunk in chunks]
        played.append(
            [[digest(seen, order.index(number)) for seen in observations] for number in (0, 1)]
        )
    assert played[0] == played[1]
    assert len({*others, *(episode[0] for episode in played[0])}) == 6


def record(cfg: ForeignVecEnvCfg, task: str, episodes: int, folder: Path, noise: list[float]):
    """Demonstrations on initial states that no expert was made on: attempts, and what the file
    holds of each episode."""
    asked = CollectCfg(
        env=cfg, tasks=[task], episodes=episodes, seed=11, action_noise=noise, out=str(folder)
    )
    (recorded,) = collect(asked)
    assert recorded.episodes == episodes
    frames = [demo for _, demo in demos(recorded.path)]
    for demo in frames:
        length = len(demo["actions"])
        assert demo["success"].tolist() == [0] * (length - 1) + [1]
        assert {name: demo[f"obs/{name}"].shape[1] for name in cfg.state_parts} == dict(
            cfg.state_parts
        )
    return recorded.attempts, frames
