"""Records the demonstrations of one task. `rrf.envs.metaworld.collect` describes them."""

import collections
import typing
from collections.abc import Callable, Generator, Iterable, Mapping

import numpy as np

from rrf.data.formats.robomimic import write_robomimic
from rrf.envs.metaworld.collect import CollectCfg
from rrf.envs.metaworld.configs import ACTION_SCALE_M, CONTROL_HZ, MetaWorldCfg
from rrf.envs.metaworld.env import MetaWorldVecEnv
from rrf.envs.metaworld.experts import Expert
from rrf.envs.metaworld.replay import Demonstration, Replay
from rrf.envs.metaworld.tasks import INSTRUCTIONS, NUM_INITIAL_STATES, TASKS
from rrf.envs.vec_env import InitialState

_SLOTS = 8
_MAX_ATTEMPTS_PER_EPISODE = 3
_TRIES_PER_DEMONSTRATION = 5  # of those that are repeated, the shortest success counts
_MAX_REPEATS_PER_EPISODE = 12  # what is repeated fails more often, and soon


class _Teacher(typing.Protocol):
    """Shows one episode."""

    def action(self, observation: np.ndarray) -> np.ndarray:
        """The action, float32 [4], for what `MetaWorldVecEnv.expert_observation` says."""
        ...


class Recorder:
    """Records tasks, either in the parent process or served by a child process."""

    def __init__(self, cfg: dict):
        self._cfg = CollectCfg.from_dict(cfg)

    def record(self, task: str) -> Generator[tuple[int, int], None, tuple[int, int, int]]:
        """Record one task into its file.

        Yields (episodes, frames) so far; returns (episodes, frames, attempts).
        """
        cfg = self._cfg
        env = MetaWorldCfg(
            num_envs=min(_SLOTS, cfg.episodes),
            chunk_length=1,
            action_repeat=cfg.action_repeat,
            max_episode_steps=cfg.max_episode_steps,
            image_size=cfg.image_size,
            cameras=cfg.cameras,
            renderer=cfg.renderer,
        ).build()
        try:
            demos, attempts = yield from _successes(cfg, task, env)
        finally:
            env.close()
        fps = CONTROL_HZ // cfg.action_repeat
        write_robomimic(cfg.path(task), demos, cfg.env_args(task), INSTRUCTIONS[task], fps)
        return len(demos), sum(len(demo["actions"]) for demo in demos), attempts


class _Attempt:
    """One episode being recorded."""

    def __init__(self, cfg: CollectCfg, task: str, number: int, teacher: _Teacher):
        self.number = number
        further = number // NUM_INITIAL_STATES if cfg.demonstrations else 0  # seeds
        self.initial_state = InitialState(task, cfg.seed + further, number % NUM_INITIAL_STATES)
        self.noise = _noise(cfg, number)
        self.observations: list[np.ndarray] = []
        self._teacher = teacher
        # Recordings without repeats stay the same to the byte.
        self._says_more = {"repeats": isinstance(teacher, Replay)} if cfg.demonstrations else {}
        self._random = np.random.default_rng([cfg.seed, TASKS.index(task), number])
        self._frames: dict[str, list] = collections.defaultdict(list)
        self._images: dict[str, list] = collections.defaultdict(list)

    def act(
        self,
        images: Mapping[str, np.ndarray],
        state: np.ndarray,
        physics: np.ndarray,
        observation: np.ndarray,
    ) -> np.ndarray:
        """Record what was seen and the teacher's answer to it; return the action to execute."""
        action = self._teacher.action(observation)
        self.observations.append(observation)
        for camera, image in images.items():
            self._images[camera].append(image)
        self._frames["state"].append(state)
        self._frames["physics"].append(physics)
        self._frames["action"].append(action)
        executed = action.copy()
        executed[:3] += self._random.normal(0.0, 1.0, 3) * self.noise
        return np.clip(executed, -1.0, 1.0)

    @property
    def is_hopeless(self) -> bool:
        return isinstance(self._teacher, Replay) and self._teacher.is_over

    @property
    def is_success(self) -> bool:
        return bool(self._frames["success"][-1])

    def result(self, reward: float, is_success: bool) -> None:
        """Record the outcome of the action."""
        self._frames["reward"].append(reward)
        self._frames["success"].append(is_success)

    def demonstration(self) -> Demonstration:
        """The episode in the form that can be repeated."""
        actions = np.stack(self._frames["action"]).astype(np.float32)
        return Demonstration(np.stack(self.observations), actions)

    def demo(self) -> dict:
        """The episode in the form that `write_robomimic` takes."""
        frames = {name: np.stack(values) for name, values in self._frames.items()}
        dones = np.zeros(len(frames["action"]), np.uint8)
        dones[-1] = 1
        return {
            "actions": frames["action"].astype(np.float32),
            "rewards": frames["reward"].astype(np.float32),
            "dones": dones,
            "states": frames["physics"],
            "success": frames["success"].astype(np.uint8),
            "obs": {
                **{f"{name}_image": np.stack(images) for name, images in self._images.items()},
                "eef_pos": frames["state"][:, :3].astype(np.float32),
                "gripper_opening": frames["state"][:, 3:].astype(np.float32),
            },
            "attrs": {
                "seed": self.initial_state.seed,
                "index": self.initial_state.index,
                "success": int(frames["success"][-1]),
                "action_noise": self.noise,
                **self._says_more,
            },
        }


def _successes(
    cfg: CollectCfg, task: str, env: MetaWorldVecEnv
) -> Generator[tuple[int, int], None, tuple[list[dict], int]]:
    """The demonstrations of the first `cfg.episodes` successful attempts, and the number of
    attempts. If `cfg.demonstrations` are repeated, these are among them.
    """
    waiting = _attempt_numbers(cfg)
    num_attempts = 0
    demos: dict[int, dict] = {}
    teacher = _showing(task)
    if cfg.demonstrations:
        num_attempts = _TRIES_PER_DEMONSTRATION * cfg.demonstrations
        tries = [waiting.popleft() for _ in range(num_attempts)]
        shown = _shortest(cfg, task, _play(cfg, task, env, tries, teacher))
        demos |= {attempt.number: attempt.demo() for attempt in shown}
        teacher = _repeating(cfg, [attempt.demonstration() for attempt in shown])
    while len(demos) < cfg.episodes:
        numbers = [waiting.popleft() for _ in range(min(cfg.episodes - len(demos), len(waiting)))]
        if not numbers and cfg.demonstrations:
            break  # not every demonstration can be repeated as often as was asked for
        if not numbers:
            raise ValueError(
                f"{task}: the expert solved {len(demos)} of {num_attempts} attempts, but "
                f"{cfg.episodes} episodes are wanted; ask for fewer, lower action_noise="
                f"{cfg.action_noise} or raise max_episode_steps={cfg.max_episode_steps}"
            )
        num_attempts += len(numbers)
        for attempt in _play(cfg, task, env, numbers, teacher):
            if attempt.is_success:
                demos[attempt.number] = attempt.demo()
            yield len(demos), sum(len(kept["actions"]) for kept in demos.values())
    return [demos[number] for number in sorted(demos)], num_attempts


def _shortest(cfg: CollectCfg, task: str, attempts: Iterable[_Attempt]) -> list[_Attempt]:
    """The shortest successes, as many as are to be repeated: what fumbles repeats badly."""
    solved = [attempt for attempt in attempts if attempt.is_success]
    wanted = cfg.demonstrations or 0
    if len(solved) < wanted:
        raise ValueError(
            f"{task}: the expert solved {len(solved)} of {_TRIES_PER_DEMONSTRATION * wanted} "
            f"attempts, but {wanted} demonstrations are wanted; ask for fewer, or raise "
            f"max_episode_steps={cfg.max_episode_steps}"
        )
    return sorted(solved, key=lambda attempt: (len(attempt.observations), attempt.number))[:wanted]


def _showing(task: str) -> Callable[[int], _Teacher]:
    """By the number of an attempt, a fresh expert."""
    return lambda number: Expert(task)


def _repeating(cfg: CollectCfg, shown: list[Demonstration]) -> Callable[[int], _Teacher]:
    """By the number of an attempt, who repeats which of the demonstrations."""
    reach_m = ACTION_SCALE_M * cfg.action_repeat
    return lambda number: Replay(shown[number % len(shown)], reach_m)


def _attempt_numbers(cfg: CollectCfg) -> collections.deque[int]:
    """The attempts worth making. Repeated demonstrations go on with the initial states of further
    seeds; the expert plays an initial state again only if noise makes it another episode.
    """
    if cfg.demonstrations:
        first = _TRIES_PER_DEMONSTRATION * cfg.demonstrations
        return collections.deque(range(first + _MAX_REPEATS_PER_EPISODE * cfg.episodes))
    numbers = range(_MAX_ATTEMPTS_PER_EPISODE * cfg.episodes + _SLOTS)
    return collections.deque(
        number for number in numbers if number < NUM_INITIAL_STATES or _noise(cfg, number) > 0
    )


def _noise(cfg: CollectCfg, number: int) -> float:
    return cfg.action_noise[number % len(cfg.action_noise)]


def _play(
    cfg: CollectCfg,
    task: str,
    env: MetaWorldVecEnv,
    numbers: Iterable[int],
    teacher: Callable[[int], _Teacher],
) -> Generator[_Attempt, None, None]:
    """Run the attempts in all slots; a free slot takes the next one. Yield them as they end."""
    waiting = collections.deque(numbers)
    running: dict[int, _Attempt] = {}
    seen: dict[int, tuple[dict[str, np.ndarray], np.ndarray]] = {}
    while waiting or running:
        free = [slot for slot in range(env.num_envs) if slot not in running][: len(waiting)]
        if free:
            for slot in free:
                number = waiting.popleft()
                running[slot] = _Attempt(cfg, task, number, teacher(number))
            start = env.reset([running[slot].initial_state for slot in free], free)
            seen |= {
                slot: (_row_of(start.images, row), start.state[row])
                for row, slot in enumerate(free)
            }
        slots = sorted(running)
        actions = np.stack(
            [
                running[slot].act(*seen[slot], env.full_state(slot), env.expert_observation(slot))
                for slot in slots
            ]
        )
        step = env.step(actions[:, None], slots)
        for row, slot in enumerate(slots):
            running[slot].result(float(step.reward[row]), bool(step.success[row]))
            seen[slot] = (_row_of(step.observation.images, row), step.observation.state[row])
            if step.terminated[row] or step.truncated[row] or running[slot].is_hopeless:
                yield running.pop(slot)


def _row_of(images: Mapping[str, np.ndarray], row: int) -> dict[str, np.ndarray]:
    return {camera: images_bhw3[row] for camera, images_bhw3 in images.items()}
