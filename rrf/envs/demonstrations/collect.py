"""Selects the demonstrations of a simulator's scripted experts, and records them in parallel.

`rrf.envs.demonstrations.recorder` records one task into one robomimic HDF5 file of rendered images,
states, actions and, if the simulator gives them, its full states. The expert is asked once per
action. With action noise (DART, arXiv:1703.09327) the executed action is the expert's plus Gaussian
noise on the config's `noisy_dimensions`, most often dx, dy, dz. The recorded action is the expert's
own answer to the state that was really visited, so that a cloned policy sees how to recover. With
`demonstrations`, the expert shows that many episodes only; the others repeat them in other initial
states (`rrf.envs.metaworld.replay`). Where the hand must go then, the simulator says or, with
`trials`, trial and error (`rrf.envs.demonstrations.trials`). Attempts are numbered, and the
successful ones with the lowest numbers are kept. An episode ends with the action that solves the
task: the frame of this action has success = 1 and done = 1, and no frame follows it.

The same configuration gives the same bytes. The noise depends on (seed, task, attempt) alone.
Neither the number of processes nor the number of slots changes an episode.
"""

import collections
import dataclasses
import multiprocessing.connection
import typing
from collections.abc import Callable, Generator
from pathlib import Path

from rrf import atomic
from rrf.config import Cfg, configclass, did_you_mean
from rrf.envs import ENVS
from rrf.envs.configs import VecEnvCfg
from rrf.envs.process.child import Child, ChildValueError, close_all

_HANDS = ("eef_pos", "tcp_pos")  # names of a state's first part, where it is the hand's place
_MESSAGE_TIMEOUT_S = 600.0  # the first image rendered on a machine compiles kernels


@configclass
class CollectCfg(Cfg):
    """Which demonstrations to record."""

    env: VecEnvCfg
    """The simulator, with cameras, image size, horizon and renderer. How many slots it has and how
    long its chunks are is for the recorder to say."""
    tasks: list[str]
    """Names of tasks."""
    episodes: int = 25
    """Successful episodes to keep per task."""
    demonstrations: int | None = None
    """Episodes per task that the expert shows, the shortest of five times as many. All others
    repeat one of them in another initial state, and are kept if they succeed; where too few do,
    there are fewer episodes. null: the expert shows all."""
    trials: int | None = None
    """With `demonstrations`: find how the demonstration must be bent in an initial state by trying
    at random, at most this often, until the task is solved (`rrf.envs.demonstrations.trials`).
    null: the simulator says where object and goal are."""
    seed: int = 777
    """Seed of the initial states and of the noise. Where repeats need more initial states, they go
    on with those of seed + 1, seed + 2, …"""
    action_noise: list[float] = [0.0, 0.4]
    """Standard deviation of the noise on `noisy_dimensions`; attempts take the entries in turn."""
    out: str
    """Directory for <task>.hdf5."""
    num_workers: int = 2
    """Processes; each records whole tasks."""
    force: bool = False
    """Record a task again even if its file exists."""

    def __post_init__(self):
        env = self.env
        if not env.has_expert:
            raise ValueError(f"{env.simulator} has no scripted experts")
        missing = [name for name in ("control_hz", "state_parts") if not hasattr(env, name)]
        if missing:
            raise ValueError(
                f"{env.simulator} cannot be recorded: {type(env).__name__} lacks the class "
                f"variables {' and '.join(missing)}; rrf/envs/configs.py says what they mean"
            )
        for task in self.tasks:
            if task not in env.tasks:
                near = did_you_mean(task, env.tasks)
                raise ValueError(f"no {env.simulator} task '{task}'{near}")
            if task not in env.expert_tasks:
                raise ValueError(
                    f"{task} of {env.simulator} cannot be recorded: it has several instructions in "
                    "a row; record the tasks that it consists of"
                )
        if not self.tasks or len(set(self.tasks)) != len(self.tasks):
            raise ValueError(f"tasks={self.tasks} must name at least one task, and no task twice")
        if self.episodes < 1 or self.num_workers < 1:
            raise ValueError(
                f"episodes={self.episodes} and num_workers={self.num_workers} must be at least 1"
            )
        if self.demonstrations is not None and not 1 <= self.demonstrations <= self.episodes:
            raise ValueError(
                f"demonstrations={self.demonstrations} must lie in 1..{self.episodes} (episodes)"
            )
        has_hand = next(iter(env.state_parts)) in _HANDS
        if self.demonstrations is not None and not (has_hand if self.trials else env.can_repeat):
            other = "give trials too, or " if has_hand else ""
            raise ValueError(
                f"demonstrations of {env.simulator} cannot be repeated in other initial states; "
                f"{other}leave demonstrations out, then the expert shows all episodes"
            )
        if self.trials is not None and (self.trials < 1 or self.demonstrations is None):
            raise ValueError(
                f"trials={self.trials} needs demonstrations to bend, and must be at least 1; give "
                "demonstrations=1 too, or leave trials out"
            )
        if not self.action_noise or min(self.action_noise) < 0:
            raise ValueError(f"action_noise={self.action_noise} must be a list of numbers >= 0")
        is_shown, num_states = self.demonstrations is None, env.num_initial_states
        if is_shown and self.episodes > num_states and 0 in self.action_noise:
            raise ValueError(
                f"episodes={self.episodes}: a seed has {num_states} initial states, and "
                "without noise a second round would record the same episodes again; use fewer "
                "episodes, or only numbers > 0 in action_noise"
            )
        if len(set(env.cameras)) != len(env.cameras):
            raise ValueError(f"cameras={env.cameras} names one twice")

    def env_args(self, task: str) -> dict:
        """The metadata of a recording: how to rebuild its environment, and how it was made."""
        env = self.env
        single, multiple = {"camera": [*env.cameras, ""][0]}, {"cameras": list(env.cameras)}
        counts = {"demonstrations": self.demonstrations, "trials": self.trials}
        repeated = {name: count for name, count in counts.items() if count is not None}
        return {
            "env_name": task,
            "type": ENVS.name_of(type(env)),
            "env_kwargs": {
                "image_size": env.image_size,
                **(single if len(env.cameras) == 1 else multiple),
                "action_repeat": env.action_repeat,
                "control_hz": env.control_hz,
                **_unusual(env),
            },
            "recording": {
                "episodes": self.episodes,
                **repeated,
                "seed": self.seed,
                "action_noise": list(self.action_noise),
                "max_episode_steps": env.max_episode_steps,
                "renderer": env.renderer,
            },
        }

    def path(self, task: str) -> Path:
        """The file of a task's recording."""
        return Path(self.out) / f"{task}.hdf5"


def _unusual(env: VecEnvCfg) -> dict[str, typing.Any]:
    """The fields of a simulator's own that are not at their defaults."""
    common = {field.name for field in dataclasses.fields(VecEnvCfg)}
    usual = type(env)().to_dict()
    return {
        name: value
        for name, value in env.to_dict().items()
        if name not in common and value != usual[name]
    }


@dataclasses.dataclass(frozen=True)
class Progress:
    """How much of one task has been recorded so far."""

    task: str
    episodes: int
    wanted: int
    frames: int


@dataclasses.dataclass(frozen=True)
class Recorded:
    """The recording of one task."""

    task: str
    path: Path
    episodes: int
    frames: int
    attempts: int  # 0 if the file existed already
    is_reused: bool


def collect(
    cfg: CollectCfg, on_progress: Callable[[Progress], None] = lambda progress: None
) -> list[Recorded]:
    """Record `cfg.tasks`. A file that already exists with the same settings is kept.

    Raises:
        ValueError: Before anything is recorded, if a file exists that was recorded with other
            settings (`force` replaces it), or the simulator is not set up. Once all others are
            recorded, if the experts of some tasks do not succeed often enough.
    """
    reused = {} if cfg.force else _existing(cfg)
    for done in reused.values():
        on_progress(Progress(done.task, done.episodes, cfg.episodes, done.frames))
    waiting = [task for task in cfg.tasks if task not in reused]
    if waiting:
        cfg.env.versions([])  # says what is not set up before a process is started for it
    recorded = {done.task: done for done in _record_all(cfg, waiting, on_progress)} | reused
    return [recorded[task] for task in cfg.tasks]


def _record_all(
    cfg: CollectCfg, tasks: list[str], on_progress: Callable[[Progress], None]
) -> Generator[Recorded, None, None]:
    num_workers = min(cfg.num_workers, len(tasks))
    waiting, failed = collections.deque(tasks), {}
    arguments = {"cfg": cfg.to_dict()}
    children = [
        Child(
            "rrf.envs.demonstrations.recorder:Recorder",
            f"recorder {n + 1} of {num_workers}",
            arguments,
            _MESSAGE_TIMEOUT_S,
        )
        for n in range(num_workers)
    ]
    try:
        busy: dict[typing.Any, tuple[Child, str]] = {}

        def begin(child: Child) -> None:
            task = waiting.popleft()
            busy[child.connection] = (child, task)
            child.send("record", task)
            on_progress(Progress(task, 0, cfg.episodes, 0))  # the simulator may start for a minute

        for child in children:
            begin(child)
        while busy:
            ready = multiprocessing.connection.wait(list(busy), timeout=_MESSAGE_TIMEOUT_S)
            for connection in ready or list(busy):
                child, task = busy[connection]
                try:
                    kind, value = child.receive()
                    if kind == "progress":
                        on_progress(Progress(task, value[0], cfg.episodes, value[1]))
                        continue
                    yield Recorded(task, cfg.path(task), *value, is_reused=False)
                except ChildValueError as error:
                    failed[task] = error
                del busy[connection]
                if waiting:
                    begin(child)
    finally:
        close_all(children)
    if failed:
        raise _failure(cfg, failed)


def _failure(cfg: CollectCfg, failed: dict[str, ChildValueError]) -> ChildValueError:
    """The first error, which says what became of the other tasks."""
    error, *others = failed.values()
    if len(cfg.tasks) > 1:
        also = f"; {', '.join([*failed][1:])} failed, too" if others else ""
        recorded = f"{len(cfg.tasks) - len(failed)} of {len(cfg.tasks)}"
        error.args = (f"{error}{also}; recorded in {cfg.out}: {recorded}",)
    return error


def _existing(cfg: CollectCfg) -> dict[str, Recorded]:
    """The tasks whose files exist already.

    Raises:
        ValueError: For a file that was recorded with other settings.
    """
    import h5py

    recorded = {}
    for task in cfg.tasks:
        path = cfg.path(task)
        if not path.exists():
            continue
        try:
            with h5py.File(path) as file:
                data: typing.Any = file["data"]
                attributes = {key: str(value) for key, value in data.attrs.items()}
                episodes = len(data)
            env_args, frames = atomic.parse_json(attributes["env_args"]), int(attributes["total"])
        except (OSError, KeyError, ValueError) as error:
            raise ValueError(
                f"{path} was not recorded by rrf ({error}); move it away, or replace it by --force"
            ) from error
        if env_args != cfg.env_args(task):
            raise ValueError(
                f"{path} was recorded with other settings: {env_args}, but these were asked for: "
                f"{cfg.env_args(task)}; choose another --out, or replace it by --force"
            )
        recorded[task] = Recorded(task, path, episodes, frames, attempts=0, is_reused=True)
    return recorded
