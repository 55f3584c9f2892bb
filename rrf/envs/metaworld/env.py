"""Meta-World v3 (arXiv:1910.10897) as a vector environment: any of its 50 tasks in any slot, with
fixed initial states.

The physics is native MuJoCo. Images come from `rrf.envs.rendering.renderers`, only where a chunk
ends and only for the slots asked for. An action is (dx, dy, dz, gripper) in [-1, 1], held for
`action_repeat` control steps of 80 Hz. Success is Meta-World's own signal, read at the last control
step of each action. It ends the episode (`terminated`).

The state is (eef_x, eef_y, eef_z) in metres and the gripper opening as a fraction, from 0 (closed)
to 1 (open). The scripted experts, one per task, are asked once per action.
"""

import collections
import contextlib
import ctypes
import gc
import time
import typing
import warnings
from collections.abc import Iterator, Sequence

import numpy as np

from rrf.data.schema import Observation
from rrf.envs.metaworld import shifts
from rrf.envs.metaworld.configs import ACTION_NAMES, CONTROL_HZ, STATE_NAMES, MetaWorldCfg
from rrf.envs.metaworld.tasks import INSTRUCTIONS
from rrf.envs.slots import Slots
from rrf.envs.vec_env import InitialState, Step, check_actions
from rrf.envs.wording import wording

if typing.TYPE_CHECKING:
    from rrf.envs.metaworld.engine import Episode, TaskEngine

_Scene = tuple[str, shifts.SceneChange | None]
"""A task of Meta-World, and what its picture differs in: what episodes can share an engine by."""

# Factors for the experts' commands. The experts are proportional controllers for 80 Hz. Asked only
# once per action, at 16 Hz, some overshoot: they swing around their goal, or let go of what they
# carry. Of the factors 1, 0.7, 0.6, 0.5, 0.4, 0.3, each of these solves the most of 30 initial
# states of seed 2024. Without one, 0 % (handle-pull-side) to 87 % (stick-pull) are solved.
_GAINS = {
    "basketball-v3": 0.4,
    "bin-picking-v3": 0.3,
    "handle-press-side-v3": 0.5,
    "handle-pull-side-v3": 0.4,
    "lever-pull-v3": 0.3,
    "peg-unplug-side-v3": 0.5,
    "push-back-v3": 0.5,
    "soccer-v3": 0.6,
    "stick-pull-v3": 0.5,
}


class Expert:
    """The scripted expert of one task.

    Make a new one for each episode, because some experts remember what they did.
    """

    def __init__(self, task: str):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from metaworld.policies import ENV_POLICY_MAP
        base, _ = shifts.split(task)
        self._policy = ENV_POLICY_MAP[base]()
        gain = _GAINS.get(base, 1.0)
        self._gains = np.array([gain, gain, gain, 1.0])

    def action(self, observation: np.ndarray) -> np.ndarray:
        """The action, float32 [4] in [-1, 1].

        `observation` is float64 [39], from `MetaWorldVecEnv.expert_observation`.
        """
        with warnings.catch_warnings():
            # The experts warn about every command that is outside the range; it is clipped below.
            warnings.simplefilter("ignore")
            action = self._policy.get_action(observation)
        command = np.asarray(action, np.float64) * self._gains
        return np.clip(command, -1.0, 1.0).astype(np.float32)


class MetaWorldVecEnv:
    """The environment contract of `rrf.envs.vec_env` for Meta-World, with its scripted experts."""

    action_dim = len(ACTION_NAMES)
    state_dim = len(STATE_NAMES)

    def __init__(self, cfg: MetaWorldCfg):
        self.cfg = cfg
        self.num_envs = cfg.num_envs
        self.chunk_length = cfg.chunk_length
        self.max_episode_steps = cfg.max_episode_steps
        self.fps = CONTROL_HZ // cfg.action_repeat
        self._slots = Slots(cfg.num_envs, cfg.ignore_terminations)
        self._episodes: dict[int, Episode] = {}
        self._experts: dict[int, Expert] = {}  # of the episodes whose expert was asked
        self._engines: dict[_Scene, TaskEngine] = {}  # least recently used first
        self._renderer: str | None = None
        self.cpu_s: dict[str, float] = {"reset": 0.0, "physics": 0.0, "rendering": 0.0}
        """CPU-seconds that this process has spent so far, by activity."""

    def reset(
        self, initial_states: Sequence[InitialState], env_ids: Sequence[int] | None = None
    ) -> Observation:
        """Start episodes; see `VecEnv.reset`."""
        check = self.cfg.check_initial_state
        slots = self._slots.check_reset(initial_states, env_ids, check)
        for slot in slots:
            if slot in self._episodes:
                episode = self._episodes.pop(slot)
                self._experts.pop(slot, None)
                self._engine(episode.initial_state).retire(episode)
        with self._timed("reset"):
            for slot, initial_state in zip(slots, initial_states, strict=True):
                self._episodes[slot] = self._engine(initial_state).begin(initial_state)
        self._slots.begin(slots)
        return self._observe(slots, np.ones(len(slots), bool))

    def step(self, actions: np.ndarray, env_ids: Sequence[int] | None = None) -> Step:
        """Execute one chunk per slot; see `VecEnv.step`.

        `extras["final_obs"]` has the rows of the episodes that ended, in order.
        """
        slots = self._slots.check(env_ids)
        actions = np.asarray(actions)
        check_actions(actions, slots, self.chunk_length, self.action_dim)
        self._slots.check_running(slots)
        ends = not self.cfg.ignore_terminations
        reward = np.zeros(len(slots), np.float32)
        rewards = np.zeros((len(slots), self.chunk_length), np.float32)
        success, at_end, truncated = np.zeros((3, len(slots)), bool)
        steps = np.zeros(len(slots), np.int64)
        with self._timed("physics"):
            for row, slot in enumerate(slots):
                episode = self._episodes[slot]
                state = episode.initial_state
                horizon = self.cfg.horizon(state.task)
                outcomes = self._engine(state).advance(episode, actions[row], horizon, ends)
                gained, solved = zip(*outcomes, strict=True)
                reward[row], rewards[row, : len(gained)] = sum(gained), gained
                success[row], at_end[row] = any(solved), solved[-1]
                steps[row] = len(gained)
                truncated[row] = not (ends and success[row]) and episode.num_steps >= horizon
        is_drawn = ~(ends & success | truncated) | self.cfg.draws_final
        observation = self._observe(slots, is_drawn)
        return self._slots.finish_step(
            slots, observation, reward, success, truncated, steps, rewards, at_end
        )

    def close(self) -> None:
        """Free every engine. Calling it twice is allowed."""
        self._slots.close()
        self._episodes.clear()
        while self._engines:
            self._engines.popitem()[1].close()
        _return_memory()

    def full_state(self, env_id: int) -> np.ndarray:
        """float64 [S], MuJoCo's integration state of a slot (its size depends on the task)."""
        episode = self._episode(env_id)
        return self._engine(episode.initial_state).physics_state(episode)

    def expert_observation(self, env_id: int) -> np.ndarray:
        """What the scripted experts see, float64 [39]: now, one action before, the goal."""
        return self._episode(env_id).observation.copy()

    def expert_action(self, env_id: int) -> np.ndarray:
        """The scripted expert's answer, float32 [4]; see `rrf.envs.vec_env.ExpertVecEnv`."""
        observation = self.expert_observation(env_id)
        if env_id not in self._experts:
            self._experts[env_id] = Expert(self._episodes[env_id].initial_state.task)
        return self._experts[env_id].action(observation)

    @contextlib.contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        begin = time.process_time()
        yield
        self.cpu_s[what] += time.process_time() - begin

    def _episode(self, env_id: int) -> "Episode":
        (slot,) = self._slots.check([env_id])
        self._slots.check_has_episode(slot)
        return self._episodes[slot]

    def _engine(self, state: InitialState) -> "TaskEngine":
        scene = _scene_of(state)
        if scene in self._engines:
            self._engines[scene] = self._engines.pop(scene)  # now the most recently used
            return self._engines[scene]
        from rrf.envs.metaworld.engine import TaskEngine

        self._drop_idle_engines()
        base, change = scene
        self._engines[scene] = TaskEngine(base, self.cfg.action_repeat, self.cfg.cameras, change)
        return self._engines[scene]

    def _drop_idle_engines(self) -> None:
        """Make room for one more engine: close the least recently used ones.

        A scene with a running episode stays loaded.
        """
        in_use = {_scene_of(episode.initial_state) for episode in self._episodes.values()}
        idle = [scene for scene in self._engines if scene not in in_use]
        excess = max(0, len(self._engines) + 1 - self.cfg.max_engines)
        for scene in idle[:excess]:
            self._engines.pop(scene).close()
        if idle[:excess]:
            _return_memory()

    def _observe(self, slots: Sequence[int], is_drawn: np.ndarray) -> Observation:
        episodes = [self._episodes[slot] for slot in slots]
        size = self.cfg.image_size
        images = {
            name: np.zeros((len(slots), size, size, 3), np.uint8) for name in self.cfg.cameras
        }
        rows_of_scene = collections.defaultdict(list)
        for row in np.flatnonzero(is_drawn) if images else ():
            rows_of_scene[_scene_of(episodes[row].initial_state)].append(row)
        for rows in rows_of_scene.values():
            with self._timed("rendering"):
                drawn = self._draw([episodes[row] for row in rows])
            for camera, images_of_scene in drawn.items():
                images[camera][rows] = images_of_scene
        state = np.empty((len(slots), self.state_dim), np.float32)
        for row, episode in enumerate(episodes):
            state[row] = episode.observation[: self.state_dim]
        return Observation(images, state, [_instruction(each.initial_state) for each in episodes])

    def _draw(self, episodes: "Sequence[Episode]") -> dict[str, np.ndarray]:
        """Images of episodes of one scene."""
        cfg = self.cfg
        if self._renderer is None:
            from rrf.envs.rendering.renderers import choose_renderer

            self._renderer = choose_renderer(cfg.renderer, cfg.image_size, cfg.device)
        max_batch = min(cfg.render_batch, self.num_envs)
        return self._engine(episodes[0].initial_state).images(
            episodes, self._renderer, cfg.image_size, max_batch, cfg.device
        )


def _scene_of(state: InitialState) -> _Scene:
    return shifts.split(state.task)[0], shifts.scene_change(state)


def _instruction(state: InitialState) -> str:
    return wording(state, INSTRUCTIONS[shifts.split(state.task)[0]])


def _return_memory() -> None:
    """Return the memory of dropped engines to the operating system.

    An engine is a reference cycle of about 50 MB. Without the trim, glibc keeps the freed memory:
    running 20 tasks one after another then grew the process by 700 MB.
    """
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
