"""The common part of the training loops of state-based policies: iterate, save, resume, guard.

On a CPU, a run that was stopped or killed resumes from its last checkpoint, and its results are bit
for bit those of an undisturbed run, if its environment can save its state (`ControlEnv.state`).
Otherwise new episodes begin after resuming, and the run prints a warning.

Legend: N environments.
"""

import dataclasses
import json
import math
import time
import typing
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from tensordict import TensorDict

from rrf import atomic
from rrf.algorithms import distributed
from rrf.compiled.acceleration import accelerate
from rrf.data.dataset.sampling import mixed_seed
from rrf.envs.control_env import ControlEnv, EnvState, check_final, check_step
from rrf.envs.failure import EnvError, NotFiniteError, failed, named
from rrf.lineage import Lineage
from rrf.networks import tensor_files
from rrf.policies.control.actor_critic import Deployed
from rrf.runners import process_group
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.control import INTERFACE, interface_text, load_interface
from rrf.runners.checkpoints.deployable import deployable_digest
from rrf.runners.checkpoints.widening import widened
from rrf.runners.control.allocation import keep_freed_memory
from rrf.runners.control.configs import FREE, ControlRunnerCfg
from rrf.runners.control.divergence import DivergenceAlarm
from rrf.runners.control.episode_statistics import EpisodeStatistics
from rrf.runners.control.thread_tuning import ThreadTuner
from rrf.runners.env_failure import env_failure
from rrf.runners.interruption import Interrupted, SignalWatch
from rrf.runners.tracker import NullTracker, Tracker
from rrf.storage.rollout import ControlStep

_MADE = "while the environments were made"


@dataclasses.dataclass
class ControlProgress:
    """The data for a progress display."""

    iteration: int
    max_iterations: int
    num_steps: int
    steps_per_s: float
    eta_s: float
    metrics: dict[str, float]


class ControlRunner:
    """Trains in `cfg.env` and saves checkpoints in `run_dir`. Subclasses define an iteration.

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
    ):
        """
        Args:
            env: The environment to train in; built from `cfg.env` if not given.

        Raises:
            ValueError: If device, environment and networks do not fit together, or if the
                environment fails.
        """
        self.cfg, self.run_dir = cfg, Path(run_dir)
        self.lineage = lineage or Lineage()
        self.signals: SignalWatch | None = None
        self.device = process_group.join(cfg.device)
        self.threads = ThreadTuner(cfg.num_threads)
        keep_freed_memory()
        rank = process_group.rank()
        self.env = env or self._build_env(mixed_seed(cfg.seed, rank))
        self.generator = torch.Generator(self.device).manual_seed(mixed_seed(cfg.seed, 1, rank))
        self.iteration = self.num_steps = self.num_rollbacks = 0
        self.metrics: dict[str, float] = {}
        self.statistics = EpisodeStatistics(self.env.num_envs, cfg.statistics_window)
        self.all_statistics = {"episodes": self.statistics}
        self.alarm = DivergenceAlarm(cfg.guard)
        self._env_log: dict[str, list] = {}
        self._last_step: ControlStep | None = None
        self._wall_s = self._cpu_s = 0.0
        self._began = 0.0, 0.0  # readings of both clocks at which the run's times would be 0
        self._num_stepped = 0  # steps in the last iteration; a resumed one may be shorter
        with torch.random.fork_rng():
            torch.manual_seed(cfg.seed)
            self._build()
        accelerate(self.algorithm)
        self.observations = self.env.get_observations()
        if cfg.init_from:
            parent = checkpoint.find(cfg.init_from)
            self.lineage = self.lineage.replace(parent_checkpoint=deployable_digest(parent))
            self._begin_from(parent)
        self.policy.to(self.device)

    def _begin_from(self, parent: Path) -> None:
        """Fill the policy with the weights of a checkpoint, whose policy may see less."""
        weights = checkpoint.read_weights(parent)
        if (parent / INTERFACE).is_file():
            before, now = load_interface(parent), self.env.interface
            weights = widened(weights, self.policy, before, now, self.observations.cpu())
        checkpoint.fill(self.policy, weights, what=str(parent))

    def _build_env(self, seed: int) -> ControlEnv:
        try:
            return self.cfg.env.build(seed=seed, device=str(self.device))
        except (ValueError, OSError, ImportError) as error:
            if not isinstance(error, EnvError):
                raise  # of our own code: it says what is wrong with the config
            raise self._failure(error, _MADE) from error
        except Exception as error:  # the code is not ours and may raise anything
            raise self._failure(failed(f"making {self.cfg.env.task}", error), _MADE) from error

    def _build(self) -> None:
        """Set `policy`, `algorithm` and `steps_per_iteration`."""
        raise NotImplementedError

    def _iterate(self) -> dict[str, float]:
        """Act and learn for one iteration; returns metrics to log."""
        raise NotImplementedError

    def run(
        self,
        tracker: Tracker | None = None,
        on_progress: Callable[[ControlProgress], None] | None = None,
        signals: SignalWatch | None = None,
    ) -> dict:
        """Train to the end. Resumes from the newest checkpoint in `run_dir`, if there is one.

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
        return self._result()

    def _train(
        self, tracker: Tracker, on_progress: Callable[[ControlProgress], None] | None
    ) -> None:
        if not self._resume():
            self._begin()
        self._began = time.monotonic() - self._wall_s, time.process_time() - self._cpu_s
        signals = self.signals
        while self.iteration < self.cfg.max_iterations:
            begin = time.perf_counter()
            if not self._try_iteration():
                continue
            seconds = time.perf_counter() - begin
            self._read_clocks()
            self._report(seconds, tracker, on_progress)
            stop = process_group.agree(signals.received if signals else None)
            if stop or self._is_due(self.cfg.save_interval):
                self.save()
            if self.cfg.video_interval and self._is_due(self.cfg.video_interval):
                self.film(tracker)
            if stop and self.iteration < self.cfg.max_iterations:
                raise Interrupted(stop, f"saved {checkpoint.latest(self.run_dir)}")

    def _close_env(self) -> None:
        try:
            with named(f"close of {self._task}"):
                self.env.close()
        except EnvError as error:  # what came before matters more
            warnings.warn(str(error), stacklevel=2)

    def _failure(self, error: EnvError, when: str) -> ValueError:
        own = f"_rank_{process_group.rank()}" if process_group.size() > 1 else ""
        return env_failure(error, self.run_dir, when, own)

    @property
    def _task(self) -> str:
        return self.env.interface.task or "the environment"

    def _read_clocks(self) -> None:
        self._wall_s = time.monotonic() - self._began[0]
        self._cpu_s = time.process_time() - self._began[1]

    def step_env(self, actions: torch.Tensor) -> ControlStep:
        """Execute actions in all environments; checks and counts the step."""
        task = self._task
        with named(f"step of {task}"):
            result = self.env.step(actions)
            step = ControlStep.of(self.observations, actions, result)
        self._last_step = step
        check_step(step.next_observations, step.rewards, step.dones, self.env.num_envs, task)
        check_final(step.final_observations, step.dones, task)
        self.statistics.observe(step.rewards, step.dones)
        for name, value in result[3].get("log", {}).items():
            self._env_log.setdefault(name, []).append(value)
        self.observations = step.next_observations
        self.num_steps += self.env.num_envs * process_group.size()
        return step

    def save(self) -> Path:
        """Write a checkpoint of the current iteration and remove the oldest ones."""
        tensors, facts = self.algorithm.state()
        tensors = tensors | {"generator": self.generator.get_state()}
        episodes = {}
        for name, statistics in self.all_statistics.items():
            tensors[name], episodes[name] = statistics.state()
        env_state = self.env.state()
        if env_state is not None:
            tensors |= {f"env/{name}": value for name, value in env_state.tensors.items()}
        facts = {
            "iteration": self.iteration,
            "num_steps": self.num_steps,
            "num_rollbacks": self.num_rollbacks,
            "wall_s": self._wall_s,
            "cpu_s": self._cpu_s,
            "metrics": self.metrics,
            "episodes": episodes,
            "alarm": self.alarm.state(),
            "algorithm": facts,
            "env": env_state.facts if env_state is not None else None,
        }
        if process_group.rank() == 0:
            checkpoint.save(
                self.run_dir,
                self.iteration,
                self.cfg,
                self.policy.state_dict(),
                {},
                checkpoint.TrainerState(tensors, facts),
                self.lineage,
                {INTERFACE: interface_text(self.env.interface)},
            )
            checkpoint.prune(self.run_dir, self.cfg.num_checkpoints_kept)
        process_group.wait()
        return self.run_dir / f"global_step_{self.iteration}"

    def film(self, tracker: Tracker | None = None) -> Path | None:
        """Write a video of the current policy; None if the environment cannot be drawn."""
        from rrf.runners.control.video import film

        if process_group.rank() > 0:
            return None
        path = self.run_dir / "videos" / f"iteration_{self.iteration}.mp4"
        try:
            film(self.cfg.env, self.policy, path, seed=self.cfg.seed)
        except (ValueError, OSError) as error:
            warnings.warn(f"no video: {error}", stacklevel=2)
            return None
        (tracker or NullTracker()).log_artifact(path, "videos")
        return path

    def _try_iteration(self) -> bool:
        """One iteration; False if it went wrong and the run returned to its last checkpoint."""
        begin, before = time.perf_counter(), self.num_steps
        self.threads.begin()
        self._env_log = {}
        try:
            metrics = self._iterate()
            with distributed.together(self.device):
                self._require_finite(metrics)
        except NotFiniteError as error:
            self._recover(error)
            return False
        self._num_stepped = self.num_steps - before
        if self._num_stepped == self.steps_per_iteration * process_group.size():
            self.threads.end(time.perf_counter() - begin)
        self.iteration += 1
        self.metrics = self.metrics | metrics | self._env_metrics() | self.statistics.metrics()
        return True

    def _require_finite(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            if not math.isfinite(value):
                raise NotFiniteError(f"{name} is {value}")
        for name, parameter in self.policy.named_parameters():
            if not bool(torch.isfinite(parameter).all()):
                raise NotFiniteError(f"the weights {name} are no longer finite")

    def _recover(self, error: NotFiniteError) -> None:
        """Write the last step to disk, then return to the last checkpoint or stop."""
        guard, last = self.cfg.guard, checkpoint.latest(self.run_dir)
        dump = self._dump(error)
        dumped = f" The last step is in {dump}." if dump else ""
        if guard.on_nan == "stop" or last is None or self.num_rollbacks >= guard.max_rollbacks:
            kept = f"the last good checkpoint is {last}" if last else "no checkpoint was saved yet"
            advice = f"lower {self.learning_rates}"
            if guard.on_nan == "stop" and last:
                advice += (
                    ", or add guard.on_nan=rollback to the same command, which does this and goes "
                    "on from the last checkpoint"
                )
            raise ValueError(
                f"{error}, in iteration {self.iteration + 1} of {self.cfg.max_iterations}. "
                f"Training stopped before it was saved; {kept}.{dumped} If the {self.teacher} is "
                f"correct, {advice}"
            ) from error
        rollbacks = self.num_rollbacks + 1
        self._load(last)
        self.algorithm.slow_down(0.5 ** (rollbacks - self.num_rollbacks))
        self.num_rollbacks = rollbacks
        self._new_episodes()
        warnings.warn(
            f"{error}; training returned to {last.name} with half the learning rate (rollback "
            f"{rollbacks} of {guard.max_rollbacks}).{dumped}",
            stacklevel=2,
        )

    def _new_episodes(self) -> None:
        """Abandon the running episodes and begin new ones."""
        with named(f"reset of {self._task}"):
            self.observations, _ = self.env.reset()
        for statistics in self.all_statistics.values():
            statistics.forget_running()
        self.algorithm.episodes_cut()

    def _dump(self, error: Exception) -> Path | None:
        """Write the last step of every environment and the simulator's state."""
        step = self._last_step
        if step is None:
            return None
        tensors: dict[str, typing.Any] = {
            "actions": step.actions,
            "rewards": step.rewards,
            "dones": step.dones,
        }
        for kind in ("observations", "next_observations"):
            observations: TensorDict = getattr(step, kind)
            tensors |= {f"{kind}/{name}": value for name, value in observations.items()}
        state = self.env.state()
        if state is not None:
            tensors |= {f"env/{name}": value for name, value in state.tensors.items()}
        own = f"_rank_{process_group.rank()}" if process_group.size() > 1 else ""
        path = self.run_dir / f"not_finite_{self.iteration + 1}{own}"
        with atomic.directory(path) as root:
            # Cloned, because a state may share memory with a step, which safetensors refuses.
            tensors = {name: value.clone() for name, value in tensors.items()}
            tensor_files.write(root / "last_step.safetensors", tensors)
            facts = {"error": str(error), "iteration": self.iteration + 1}
            (root / "facts.json").write_text(json.dumps(facts, indent=2) + "\n")
        return path

    def _report(
        self,
        seconds: float,
        tracker: Tracker,
        on_progress: Callable[[ControlProgress], None] | None,
    ) -> None:
        cfg = self.cfg
        steps_per_s = self._num_stepped / seconds
        self.metrics |= {
            "perf/steps_per_s": steps_per_s,
            "perf/num_steps": float(self.num_steps),
            "perf/cpu_s": self._cpu_s,
        }
        if warning := self.alarm.observe(self.metrics.get("rollout/return")):
            warnings.warn(warning, stacklevel=2)
        if not self._is_due(cfg.log_interval):
            return
        tracker.log_metrics(self.metrics, self.iteration)
        if on_progress and process_group.rank() == 0:
            mean_s = self._wall_s / self.iteration
            eta_s = (cfg.max_iterations - self.iteration) * mean_s
            on_progress(
                ControlProgress(
                    self.iteration,
                    cfg.max_iterations,
                    self.num_steps,
                    steps_per_s,
                    eta_s,
                    dict(self.metrics),
                )
            )

    def _env_metrics(self) -> dict[str, float]:
        """The environment's own metrics, each the mean over the steps with a finite value."""
        means = {}
        for name, values in self._env_log.items():
            told = [value for value in map(float, values) if math.isfinite(value)]
            if told:
                means[name if "/" in name else f"env/{name}"] = sum(told) / len(told)
        return means

    def _is_due(self, interval: int) -> bool:
        return self.iteration % interval == 0 or self.iteration == self.cfg.max_iterations

    def _begin(self) -> None:
        """Called before the first iteration of a new run."""

    def _resume(self) -> bool:
        path = checkpoint.latest(self.run_dir)
        if path is None:
            return False
        atomic.check_manifest(path)
        differences = checkpoint.config_differences(
            checkpoint.load_config(path), self.cfg.to_dict(), FREE
        )
        if differences:
            # If the architecture differs, this error names the parameters that differ.
            checkpoint.load_weights(self.policy, path)
            raise ValueError(
                f"{path} was trained with another config: {'; '.join(differences)}. Give another "
                "--run-dir, or --no-resume to start over"
            )
        self._load(path)
        return True

    def _load(self, path: Path) -> None:
        state = checkpoint.load_trainer_state(path)
        facts, tensors = state.facts, dict(state.tensors)
        checkpoint.load_weights(self.policy, path)
        self.generator.set_state(tensors.pop("generator"))
        if rank := process_group.rank():  # the saved state is that of the first process
            self.generator.manual_seed(mixed_seed(self.cfg.seed, 1, rank, facts["iteration"]))
        for name, statistics in self.all_statistics.items():
            statistics.load_state(tensors.pop(name), facts["episodes"][name])
        env_names = [name for name in tensors if name.startswith("env/")]
        env_tensors = {name.removeprefix("env/"): tensors.pop(name) for name in env_names}
        self.algorithm.load_state(tensors, facts["algorithm"])
        self.iteration, self.num_steps = facts["iteration"], facts["num_steps"]
        self.num_rollbacks = facts["num_rollbacks"]
        self.metrics = dict(facts["metrics"])
        self.alarm.load_state(facts["alarm"])
        self._wall_s, self._cpu_s = facts["wall_s"], facts["cpu_s"]
        if facts["env"] is not None and process_group.size() == 1:
            self.env.load_state(EnvState(env_tensors, facts["env"]))
            self.observations = self.env.get_observations()
        else:
            self._tell_progress()
            self._new_episodes()
            warnings.warn(
                f"{self.env.interface.task} cannot resume in the middle of its episodes; new "
                "episodes have begun",
                stacklevel=2,
            )

    def _tell_progress(self) -> None:
        """Tell the environment the number of steps so far, for curricula that depend on it."""
        env = getattr(self.env, "unwrapped", self.env)
        set_progress = getattr(env, "set_progress", None)
        if set_progress is not None:
            num_envs = self.env.num_envs * process_group.size()
            where = self.num_steps, self.num_rollbacks
            seed = mixed_seed(self.cfg.seed, process_group.rank(), *where)
            set_progress(self.num_steps // num_envs, seed)

    def _result(self) -> dict:
        path = checkpoint.latest(self.run_dir)
        assert path is not None
        return {
            "checkpoint": str(path),
            "checkpoint_digest": deployable_digest(path),
            "steps": self.iteration,
            "num_steps": self.num_steps,
            "metrics": self.metrics,
            "wall_s": self._wall_s,
            "cpu_s": self._cpu_s,
        }
