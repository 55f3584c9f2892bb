"""The common part of the training loops of state-based policies.

    while iteration < max_iterations:
        act and learn for one iteration             a subclass says how (`_iterate`)
        log what came of it
        save, if that is due or a signal asks the run to stop

What a run has besides is given to it: `checkpoints`, from which it resumes (`resume.py`), and
`extras`, which are called at certain points (`guard.py`, `speed.py`, `video.py`). `cfg.build` gives
it all of them.

Legend: N environments.
"""

import dataclasses
import math
import time
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from rrf.algorithms import distributed
from rrf.data.dataset.sampling import mixed_seed
from rrf.envs.control_env import ControlEnv, OwnProcess, check_final, check_step
from rrf.envs.failure import EnvError, NotFiniteError, failed, named
from rrf.lineage import Lineage
from rrf.policies.control.actor_critic import Deployed
from rrf.runners import process_group
from rrf.runners.control.configs import ControlRunnerCfg
from rrf.runners.control.episode_statistics import EpisodeStatistics
from rrf.runners.interruption import Interrupted, Position, SignalWatch
from rrf.runners.save_clock import SaveClock
from rrf.runners.tracker import NullTracker, Tracker
from rrf.storage.rollout import ControlStep


@dataclasses.dataclass
class ControlProgress:
    """The data for a progress display."""

    iteration: int
    max_iterations: int
    num_steps: int
    steps_per_s: float
    eta_s: float
    metrics: dict[str, float]


class Extra:
    """What a run may have besides its loop. The base class does nothing."""

    key = ""
    """Under this name checkpoints hold `state`; empty for extras without one."""

    def prepare(self, runner: "ControlRunner") -> None:
        """Called before the environment is made."""

    def attach(self, runner: "ControlRunner") -> None:
        """Called when policy and algorithm are made."""

    def before_iteration(self, runner: "ControlRunner") -> None: ...

    def after_iteration(self, runner: "ControlRunner", seconds: float) -> None:
        """Called with the duration of an iteration; `runner.metrics` are those after it."""

    def after_saving(self, runner: "ControlRunner", tracker: Tracker) -> None:
        """Called when an iteration is logged and saved, if that was due."""

    def recover(self, runner: "ControlRunner", error: NotFiniteError) -> bool:
        """Whether the run can go on although an iteration met a number that is not finite."""
        return False

    def failure(self, runner: "ControlRunner", error: EnvError, when: str) -> ValueError | None:
        """The error that ends a run whose environment failed, if this extra says more about it."""
        return None

    def state(self) -> dict:
        """Plain data that `load_state` needs."""
        return {}

    def load_state(self, state: dict) -> None: ...


class Checkpoints:
    """Where a run is saved and resumed. The base class keeps nothing."""

    def begin(self, runner: "ControlRunner") -> None:
        """Fill a new policy with the weights that it starts from, if the config names some.

        Raises:
            ValueError: If the weights cannot be read, as by this base class.
        """
        if runner.cfg.init_from:
            raise ValueError(
                "init_from needs a runner that reads checkpoints; make it by cfg.build(run_dir)"
            )

    def resume(self, runner: "ControlRunner") -> bool:
        """Continue from the newest checkpoint; whether there is one."""
        return False

    def save(self, runner: "ControlRunner") -> Path | None:
        """Write a checkpoint of the current iteration."""

    def result(self, runner: "ControlRunner") -> dict:
        """What to say about the last checkpoint when the run is finished."""
        return {}


class ControlRunner:
    """Trains in `cfg.env`. Subclasses define an iteration.

    Attributes:
        policy: The module whose weights are deployed.
        algorithm: The learning algorithm, with `state` and `load_state`.
    """

    policy: Deployed
    algorithm: typing.Any
    steps_per_iteration: int
    learning_rates = "algorithm.learning_rate"  # name of the setting in advice
    teacher = "environment"  # what gives the numbers that are learned from

    def __init__(
        self,
        cfg: ControlRunnerCfg,
        run_dir: str | Path,
        lineage: Lineage | None = None,
        env: ControlEnv | None = None,
        checkpoints: Checkpoints | None = None,
        extras: Sequence[Extra] = (),
    ):
        """
        Args:
            run_dir: The directory of the run.
            lineage: What the run depends on.
            env: The environment to train in; built from `cfg.env` if not given.
            checkpoints: Saves and resumes the run; None for a run that is not kept.
            extras: Called in this order.

        Raises:
            ValueError: If device, environment and networks do not fit together, or if the
                environment fails.
        """
        self.cfg, self.run_dir = cfg, Path(run_dir)
        self.lineage = lineage or Lineage()
        self.checkpoints, self.extras = checkpoints or Checkpoints(), list(extras)
        self.signals: SignalWatch | None = None
        self.device = process_group.join(cfg.device)
        for extra in self.extras:
            extra.prepare(self)
        rank = process_group.rank()
        self.env = env or self._build_env(mixed_seed(cfg.seed, rank))
        if isinstance(self.env, OwnProcess):
            self.env.replaces_process = True
        self.generator = torch.Generator(self.device).manual_seed(mixed_seed(cfg.seed, 1, rank))
        self.iteration = self.num_steps = self.num_rollbacks = 0
        self.metrics: dict[str, float] = {}
        self.statistics = EpisodeStatistics(self.env.num_envs, cfg.statistics_window)
        self.all_statistics = {"episodes": self.statistics}
        self.last_step: ControlStep | None = None
        self.num_stepped = 0  # steps in the last iteration; a resumed one may be shorter
        self._env_log: dict[str, list] = {}
        self.wall_s = self.cpu_s = 0.0
        self._began = 0.0, 0.0  # readings of both clocks at which the run's times would be 0
        with torch.random.fork_rng():
            torch.manual_seed(cfg.seed)
            self._build()
        for extra in self.extras:
            extra.attach(self)
        self.observations = self.env.get_observations()
        self.checkpoints.begin(self)
        self.policy.to(self.device)

    # ------------------------------------------------------------------ what subclasses define

    def _build(self) -> None:
        """Set `policy`, `algorithm` and `steps_per_iteration`."""
        raise NotImplementedError

    def _begin(self) -> None:
        """Called before the first iteration of a new run."""

    def _iterate(self) -> dict[str, float]:
        """Act and learn for one iteration; returns metrics to log."""
        raise NotImplementedError

    # ------------------------------------------------------------------ the loop

    def run(
        self,
        tracker: Tracker | None = None,
        on_progress: Callable[[ControlProgress], None] | None = None,
        signals: SignalWatch | None = None,
    ) -> dict:
        """Train to the end. Resumes from the newest checkpoint, if there is one.

        Returns:
            checkpoint, checkpoint_digest, steps (iterations), num_steps (of all environments),
            metrics, wall_s and cpu_s. The times are summed over all resumptions.

        Raises:
            Interrupted: After a signal noted by `signals`, when the progress has been saved.
            ValueError: For a number that is not finite, for an environment that fails, or for a
                checkpoint of another config.
        """
        tracker = tracker if tracker and process_group.rank() == 0 else NullTracker()
        self.signals = signals
        try:
            self._train(tracker, on_progress)
        except EnvError as error:
            when = f"in iteration {self.iteration + 1} of {self.cfg.max_iterations}"
            raise self._failure(error, when) from error
        finally:
            self._close_env()
        return self.checkpoints.result(self) | {
            "steps": self.iteration,
            "num_steps": self.num_steps,
            "metrics": self.metrics,
            "wall_s": self.wall_s,
            "cpu_s": self.cpu_s,
        }

    def _train(
        self, tracker: Tracker, on_progress: Callable[[ControlProgress], None] | None
    ) -> None:
        if not self.checkpoints.resume(self):
            self._begin()
        self._began = time.monotonic() - self.wall_s, time.process_time() - self.cpu_s
        signals, clock = self.signals, SaveClock()
        while self.iteration < self.cfg.max_iterations:
            if not self._try_iteration():
                continue
            if self.is_due(self.cfg.log_interval):
                self._report(tracker, on_progress)
            stop = process_group.agree(signals.received if signals else None)
            is_late, saved = process_group.agree(int(clock.is_due())), None
            if stop or is_late or self.is_due(self.cfg.save_interval):
                with clock.saving():
                    saved = self.save()
            for extra in self.extras:
                extra.after_saving(self, tracker)
            if stop and self.iteration < self.cfg.max_iterations:
                raise Interrupted(stop, f"saved {saved}")

    @property
    def position(self) -> Position:
        """For the answers to Ctrl-C."""
        return Position("iteration", self.iteration, self.cfg.max_iterations)

    def _try_iteration(self) -> bool:
        """One iteration; False if it went wrong and the run returned to its last checkpoint."""
        begin, before = time.perf_counter(), self.num_steps
        for extra in self.extras:
            extra.before_iteration(self)
        self._env_log = {}
        try:
            metrics = self._iterate()
            with distributed.together(self.device):
                self.require_finite(metrics)
        except NotFiniteError as error:
            if not any(extra.recover(self, error) for extra in self.extras):
                raise
            return False
        seconds = time.perf_counter() - begin
        self.num_stepped = self.num_steps - before
        self.iteration += 1
        self.read_clocks()
        self.metrics = self.metrics | metrics | self._env_metrics() | self.statistics.metrics()
        self.metrics |= {
            "perf/steps_per_s": self.num_stepped / seconds,
            "perf/num_steps": float(self.num_steps),
            "perf/cpu_s": self.cpu_s,
        }
        for extra in self.extras:
            extra.after_iteration(self, seconds)
        return True

    def step_env(self, actions: torch.Tensor) -> ControlStep:
        """Execute actions in all environments; checks and counts the step."""
        task = self.task
        with named(f"step of {task}"):
            result = self.env.step(actions)
            step = ControlStep.of(self.observations, actions, result)
        self.last_step = step
        check_step(step.next_observations, step.rewards, step.dones, self.env.num_envs, task)
        check_final(step.final_observations, step.dones, task)
        self.statistics.observe(step.rewards, step.dones)
        for name, value in result[3].get("log", {}).items():
            self._env_log.setdefault(name, []).append(value)
        self.observations = step.next_observations
        self.num_steps += self.env.num_envs * process_group.size()
        return step

    def save(self) -> Path | None:
        """Write a checkpoint of the current iteration; returns its place."""
        return self.checkpoints.save(self)

    def is_due(self, interval: int) -> bool:
        """Whether something that happens every `interval` iterations, and at last, is due."""
        return self.iteration % interval == 0 or self.iteration == self.cfg.max_iterations

    def require_finite(self, metrics: Mapping[str, float]) -> None:
        """Raise NotFiniteError for a metric or a weight that is not finite."""
        for name, value in metrics.items():
            if not math.isfinite(value):
                raise NotFiniteError(f"{name} is {value}")
        for name, parameter in self.policy.named_parameters():
            if not bool(torch.isfinite(parameter).all()):
                raise NotFiniteError(f"the weights {name} are no longer finite")

    def new_episodes(self) -> None:
        """Abandon the running episodes and begin new ones."""
        with named(f"reset of {self.task}"):
            self.observations, _ = self.env.reset()
        for statistics in self.all_statistics.values():
            statistics.forget_running()
        self.algorithm.episodes_cut()

    @property
    def task(self) -> str:
        """The task's name in messages."""
        return self.env.interface.task or "the environment"

    def read_clocks(self) -> None:
        """Update `wall_s` and `cpu_s`, the times of the run and all its resumptions."""
        self.wall_s = time.monotonic() - self._began[0]
        self.cpu_s = time.process_time() - self._began[1]

    def _report(
        self, tracker: Tracker, on_progress: Callable[[ControlProgress], None] | None
    ) -> None:
        tracker.log_metrics(self.metrics, self.iteration)
        if on_progress and process_group.rank() == 0:
            num_left = self.cfg.max_iterations - self.iteration
            on_progress(
                ControlProgress(
                    self.iteration,
                    self.cfg.max_iterations,
                    self.num_steps,
                    self.metrics["perf/steps_per_s"],
                    num_left * self.wall_s / self.iteration,
                    dict(self.metrics),
                )
            )

    def _env_metrics(self) -> dict[str, float]:
        """The environment's own metrics, each the mean over the steps with a finite value."""
        means = {}
        for name, values in self._env_log.items():
            finite = [value for value in map(float, values) if math.isfinite(value)]
            if finite:
                means[name if "/" in name else f"env/{name}"] = sum(finite) / len(finite)
        return means

    # ------------------------------------------------------------------ the environment's code

    def _build_env(self, seed: int) -> ControlEnv:
        when = "while the environments were made"
        try:
            return self.cfg.env.build(seed=seed, device=str(self.device))
        except (ValueError, OSError, ImportError) as error:
            if not isinstance(error, EnvError):
                raise  # of our own code: it says what is wrong with the config
            raise self._failure(error, when) from error
        except Exception as error:  # the code is not ours and may raise anything
            raise self._failure(failed(f"making {self.cfg.env.task}", error), when) from error

    def _close_env(self) -> None:
        try:
            with named(f"close of {self.task}"):
                self.env.close()
        except EnvError as error:  # what came before matters more
            warnings.warn(str(error), stacklevel=2)

    def _failure(self, error: EnvError, when: str) -> ValueError:
        reports = (extra.failure(self, error, when) for extra in self.extras)
        return next((report for report in reports if report), ValueError(f"{error}, {when}"))
