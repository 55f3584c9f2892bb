"""The pusher: a hand on a table of 64 cm, moved by at most 4 cm per control step, and two cubes.

Legend: B slots of a call, H steps in a chunk.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import mujoco
import numpy as np

from rrf.data.schema import Observation
from rrf.envs.rendering.renderers import Renderer, choose_renderer, make_renderer
from rrf.envs.slots import Slots
from rrf.envs.vec_env import InitialState, Step, check_actions

from .configs import INSTRUCTIONS, PusherCfg

STEP_M, PUSHED_M, TOUCHED_M = 0.04, 0.03, 0.01
_CUBES = {"push-red": "red", "push-blue": "blue"}
_SCENE = Path(__file__).parent / "scene.xml"


@dataclasses.dataclass
class _Episode:
    task: str
    data: mujoco.MjData
    starts: dict[str, np.ndarray]  # task -> where its cube stood, [2]
    num_actions: int = 0

    def place(self, task: str) -> np.ndarray:
        """Where the cube of a task is, [2]."""
        return self.data.body(_CUBES[task]).xpos[:2]

    @property
    def is_solved(self) -> bool:
        """Whether the named cube was pushed, and the other one not touched."""
        moved = {t: np.linalg.norm(self.place(t) - start) for t, start in self.starts.items()}
        return all((m > PUSHED_M) if t == self.task else (m < TOUCHED_M) for t, m in moved.items())


class PusherVecEnv:
    """See `rrf.envs.vec_env.VecEnv`."""

    state_dim = 2

    def __init__(self, cfg: PusherCfg):
        self.cfg = cfg
        self.num_envs, self.chunk_length = cfg.num_envs, cfg.chunk_length
        self.max_episode_steps, self.action_dim = cfg.max_episode_steps, cfg.action_dim
        self.fps = cfg.control_hz // cfg.action_repeat
        self._spec = mujoco.MjSpec.from_file(str(_SCENE))
        self._model = self._spec.compile()
        self._num_substeps = round(1 / cfg.control_hz / self._model.opt.timestep)
        self._renderer: Renderer | None = None
        self._slots = Slots(cfg.num_envs)
        self._episodes: dict[int, _Episode] = {}

    def reset(
        self, initial_states: Sequence[InitialState], env_ids: Sequence[int] | None = None
    ) -> Observation:
        """See `VecEnv.reset`."""
        slots = self._slots.check_reset(initial_states, env_ids, self.cfg.check_initial_state)
        for slot, state in zip(slots, initial_states, strict=True):
            self._episodes[slot] = self._begin(state)
        self._slots.begin(slots)
        return self._observe(slots)

    def step(self, actions: np.ndarray, env_ids: Sequence[int] | None = None) -> Step:
        """See `VecEnv.step`."""
        slots = self._slots.check(env_ids)
        check_actions(actions, slots, self.chunk_length, self.action_dim)
        self._slots.check_running(slots)
        chunks = dict(zip(slots, actions, strict=True))
        rows = [self._run(self._episodes[slot], chunk) for slot, chunk in chunks.items()]
        reward, success, truncated, steps = map(np.array, zip(*rows, strict=True))
        return self._slots.finish_step(
            slots, self._observe(slots), reward.astype(np.float32), success, truncated, steps
        )

    def expert_action(self, env_id: int) -> np.ndarray:
        """Straight to the named cube and on; see `rrf.envs.vec_env.ExpertVecEnv`."""
        episode = self._episodes[env_id]
        way = episode.place(episode.task) - episode.data.ctrl
        return np.clip(way / STEP_M, -1, 1).astype(np.float32)

    def close(self) -> None:
        """See `VecEnv.close`."""
        self._slots.close()
        if self._renderer:
            self._renderer.close()

    def _begin(self, state: InitialState) -> _Episode:
        """The episode that an initial state stands for, at its beginning."""
        hand, starts = places_of(state)
        data = mujoco.MjData(self._model)
        data.qpos[:2] = data.ctrl[:] = hand
        for task, place in starts.items():
            data.joint(_CUBES[task]).qpos[:2] = place
        mujoco.mj_forward(self._model, data)
        return _Episode(state.task, data, starts)

    def _run(self, episode: _Episode, chunk: np.ndarray) -> tuple[float, bool, bool, int]:
        """Execute a chunk until the episode ends: reward, success, truncated, steps."""
        began, data, success, truncated = episode.num_actions, episode.data, False, False
        low, high = self._model.actuator_ctrlrange.T
        for action in np.clip(chunk, -1, 1):
            for _ in range(self.cfg.action_repeat):
                data.ctrl[:] = np.clip(data.ctrl + STEP_M * action, low, high)
                mujoco.mj_step(self._model, data, self._num_substeps)
            mujoco.mj_forward(self._model, data)  # poses as of now, for what is read and drawn
            episode.num_actions += 1
            success = episode.is_solved
            truncated = not success and episode.num_actions >= self.cfg.horizon(episode.task)
            if success or truncated:
                break
        return float(success), success, truncated, episode.num_actions - began

    def _observe(self, slots: Sequence[int]) -> Observation:
        episodes = [self._episodes[slot] for slot in slots]
        state = np.stack([episode.data.qpos[:2] for episode in episodes]).astype(np.float32)
        instructions = [INSTRUCTIONS[episode.task] for episode in episodes]
        return Observation(self._draw(episodes), state, instructions)

    def _draw(self, episodes: Sequence[_Episode]) -> dict[str, np.ndarray]:
        """Camera -> images, uint8 [B, size, size, 3]."""
        cameras, size = self.cfg.cameras, self.cfg.image_size
        if not cameras:
            return {}
        if self._renderer is None:  # only now: who wants no images waits for no renderer
            name = choose_renderer(self.cfg.renderer, size)
            self._renderer = make_renderer(
                name, self._spec, self._model, cameras, (size, size), min(8, self.num_envs)
            )
        images = self._renderer.render([episode.data for episode in episodes])
        return dict(zip(cameras, images, strict=True))


def places_of(state: InitialState) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Where hand and cubes are at the beginning, each [2] in metres.

    The straight way to either cube is free of the other one.
    """
    rng = np.random.default_rng([state.seed, state.index, list(INSTRUCTIONS).index(state.task)])
    while True:
        hand, red, blue = rng.uniform(-0.2, 0.2, (3, 2))
        to_red, to_blue = np.linalg.norm(red - hand), np.linalg.norm(blue - hand)
        cos_between = np.dot(red - hand, blue - hand) / (to_red * to_blue)
        are_apart = min(to_red, to_blue) > 0.14 and np.linalg.norm(red - blue) > 0.2
        if are_apart and cos_between < 0.7:
            return hand, {"push-red": red, "push-blue": blue}
