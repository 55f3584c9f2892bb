"""The DAgger loop (Ross et al., arXiv:1011.0686, algorithm 3.1) for policies that see images.

    validate the policy of init_from
    for round in range(max_rounds):
        record    round_N/data: episodes of the policy, mixed with the expert by beta; the expert's
                  answer to every visited state (`rrf.orchestra.recording_role`)
        train     round_N/training: the policy of the round before, on all datasets so far
        validate  greedily, on initial states never trained on -> global_step_(N+1)

The round with the best validation is the result; global_step_0 is the policy of `init_from`.

Each stage leaves its result in the run directory, all of it or nothing, and the training its
checkpoints. So a run that was stopped or killed goes on with the stage, or the training step, at
which it was, and computes the same as an undisturbed run. What is recorded depends on (seed, round,
task, initial state) and on the weights alone.

Compared with the paper: a round trains the policy of the round before further, on all data, and not
a new one; and the decision that is left to chance is a whole action chunk.
"""

import dataclasses
import time
import typing
from collections.abc import Callable, Mapping
from pathlib import Path

from rrf import atomic
from rrf.data.dataset.sampling import mixed_seed
from rrf.envs.process.child import ChildError, ChildValueError
from rrf.lineage import Lineage
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.deployable import deployable_digest
from rrf.runners.dagger.configs import DAggerRunnerCfg
from rrf.runners.dagger.recording import Recording, facts_of, initial_states
from rrf.runners.env_failure import env_failure
from rrf.runners.interruption import Interrupted, Position, SignalWatch, StopRequestedError
from rrf.runners.supervised.frames import fitted, split_of
from rrf.runners.supervised.runner import Progress, SupervisedRunner
from rrf.runners.tracker import NullTracker, Tracker
from rrf.runners.vla_rl.job_sources import JobList
from rrf.runners.vla_rl.roles import Backend
from rrf.runners.vla_rl.validation import (
    best_round,
    success_metrics,
    success_of,
    validation_states,
)

_RECORD, _VALIDATE = 0, 1  # part of the seeds: separate random streams


class OpenBackend(typing.Protocol):
    """Starts what plays episodes; see `rrf.orchestra.dagger_run.Backends`."""

    def validating(self, policy: Path) -> Backend:
        """Plays the policy in a checkpoint."""
        ...

    def recording(self, policy: Path, beta: float, stream: list[int]) -> Backend:
        """Plays it mixed with the expert, and records."""
        ...


@dataclasses.dataclass
class DAggerProgress:
    """The data for a progress display."""

    round: int  # the round at work, from 1; 0 before the first one
    max_rounds: int
    stage: typing.Literal["record", "train", "validate"]
    done: int  # episodes, or steps
    total: int
    numbers: dict[str, float]


class DAggerRunner:
    """Trains the policy of `parent`; saves a checkpoint of each round in `run_dir`."""

    def __init__(
        self,
        cfg: DAggerRunnerCfg,
        parent: Path,
        backends: OpenBackend,
        run_dir: str | Path,
        lineage: Lineage | None = None,
    ):
        self.cfg, self.run_dir = cfg, Path(run_dir).resolve()
        self._parent, self._backends = parent, backends
        lineage = lineage or Lineage()
        self.lineage = lineage.replace(parent_checkpoint=deployable_digest(parent))
        self.round = 0  # finished rounds
        self.metrics: dict[str, float] = {}
        self.validations: list[dict] = []  # {"round", "success", "by_task"}
        self.recorded: list[dict] = []  # `facts_of` the rounds
        self._wall_s = self._cpu_s = 0.0
        self._tracker: Tracker = NullTracker()
        self._show: Callable[[DAggerProgress], None] = lambda progress: None
        self._should_stop: Callable[[], bool] = lambda: False

    @property
    def position(self) -> Position:
        """For the answers to Ctrl-C."""
        return Position("round", self.round, self.cfg.max_rounds, finishes=False)

    def run(
        self,
        tracker: Tracker | None = None,
        on_progress: Callable[[DAggerProgress], None] | None = None,
        signals: SignalWatch | None = None,
    ) -> dict:
        """Train to the end. Goes on where an earlier attempt in `run_dir` was stopped or killed.

        Returns:
            checkpoint (the one with the best validation), checkpoint_digest, steps (rounds),
            metrics, validations, recorded, wall_s and cpu_s. The times are summed over all
            resumptions, without the parts of rounds that were interrupted.

        Raises:
            Interrupted: After a signal noted by `signals`.
            ValueError: For a checkpoint of another config, if datasets, policy and environment do
                not fit together, or if the environment or its expert fails.
        """
        self._tracker = tracker or NullTracker()
        self._show = on_progress or self._show
        self._should_stop = lambda: signals is not None and signals.received is not None
        self._resume()
        at = f"in round {self.round + 1} of {self.cfg.max_rounds}"
        try:
            if not self.validations:
                self._finish_round(self._parent)
            while self.round < self.cfg.max_rounds:
                at = f"in round {self.round + 1} of {self.cfg.max_rounds}"
                self._play_round(signals)
        except StopRequestedError:
            assert signals is not None
            assert signals.received is not None
            raise Interrupted(signals.received, f"{at}; finished stages are kept") from None
        except (ChildError, ChildValueError) as error:
            raise env_failure(error, self.run_dir, at) from error
        return self._result()

    def data(self, round_number: int) -> Path:
        """The dataset of a round."""
        return self.run_dir / f"round_{round_number}" / "data"

    def _play_round(self, signals: SignalWatch | None) -> None:
        began = time.monotonic(), time.process_time()
        policy = checkpoint.steps(self.run_dir)[self.round]
        if not self.data(self.round).is_dir():
            self._record(policy)
        facts = facts_of(self.data(self.round))
        self.recorded = [*self.recorded[: self.round], facts]
        trained = self._train(policy, signals)
        self.metrics |= {
            f"dagger/{name}": float(facts[name])
            for name in ("beta", "episodes", "frames", "success", "expert_share")
        }
        self.round += 1
        self._finish_round(trained, began)
        self._discard_trainings()

    def _record(self, policy: Path) -> None:
        cfg, number = self.cfg, self.round
        states = initial_states(cfg, number)
        schema = dataclasses.replace(
            split_of(cfg).training.schema, has_reward=True, has_success=True
        )
        begin, outcomes = time.perf_counter(), []

        def on_episode(episode) -> None:
            outcomes.append(episode.success)
            rate = len(outcomes) / (time.perf_counter() - begin)
            self.metrics["dagger/episodes_per_s"] = rate
            success = sum(outcomes) / len(outcomes)
            self._tell("record", len(outcomes), len(states), success=success, episodes_per_s=rate)

        source = Recording(states, schema, on_episode)
        stream = [cfg.seed, _RECORD, number]
        backend = self._backends.recording(policy, cfg.beta(number), stream)
        self._play(backend, source, stream)
        source.write(self.data(number), {"round": number, "beta": cfg.beta(number)})

    def _train(self, policy: Path, signals: SignalWatch | None) -> Path:
        """The checkpoint of the trained policy."""
        cfg, number = self.cfg, self.round
        training = cfg.training(str(policy), mixed_seed(cfg.seed, number))
        split = split_of(training, [self.data(n) for n in range(number + 1)])
        runner = SupervisedRunner(
            fitted(training, split),
            split,
            self.data(number).with_name("training"),
            self._lineage(),
        )

        def show(at: Progress) -> None:
            self._tell("train", at.step, at.max_steps, loss=at.loss, samples_per_s=at.samples_per_s)

        result = runner.run(_Shifted(self._tracker, number * cfg.max_steps), show, signals)
        self.metrics |= result["metrics"]
        return Path(result["checkpoint"])

    def _finish_round(self, policy: Path, began: tuple[float, float] | None = None) -> None:
        """Validate the policy in a checkpoint, and save it as the result of the round."""
        wall, cpu = began or (time.monotonic(), time.process_time())
        texts = self._validate(policy)
        self._wall_s += time.monotonic() - wall
        self._cpu_s += time.process_time() - cpu
        self._tracker.log_metrics(self.metrics, self.round * self.cfg.max_steps)
        self._save(policy, texts)

    def _validate(self, policy: Path) -> dict[str, str]:
        """Measure the greedy success of a policy on held-out initial states; returns its assets."""
        cfg, states = self.cfg, validation_states(self.cfg)
        source = JobList(states)
        self._tell("validate", 0, len(states))
        backend = self._backends.validating(policy)
        self._play(backend, source, [cfg.seed, _VALIDATE, self.round])
        success = success_of(source.episodes, cfg.tasks)
        self.validations.append({"round": self.round, **success})
        self.metrics |= success_metrics(success)
        self._tell("validate", len(states), len(states), success=success["success"])
        return backend.rollout.policy.assets()

    def _play(self, backend: Backend, source: JobList, stream: list[int]) -> None:
        try:
            backend.play(source, stream, greedy=True, keeps=False, should_stop=self._should_stop)
            spent = backend.timings()
        finally:
            backend.close()
        self._cpu_s += sum(seconds for name, seconds in spent.items() if name != "inference")

    def _save(self, policy: Path, texts: Mapping[str, str]) -> None:
        facts = {
            "round": self.round,
            "metrics": self.metrics,
            "validations": self.validations,
            "recorded": self.recorded,
            "wall_s": self._wall_s,
            "cpu_s": self._cpu_s,
        }
        checkpoint.save(
            self.run_dir,
            self.round,
            self.cfg,
            checkpoint.read_weights(policy),
            checkpoint.load_norm_stats(policy),
            checkpoint.TrainerState({}, facts),
            self._lineage(),
            texts,
        )
        checkpoint.prune(
            self.run_dir, self.cfg.num_checkpoints_kept, keep=(best_round(self.validations),)
        )

    def _lineage(self) -> Lineage:
        return self.lineage.replace(recorded=tuple(self.recorded))

    def _discard_trainings(self) -> None:
        """Remove the optimizer states of finished rounds."""
        for number in range(self.round):
            folder = self.data(number).with_name("training")
            if folder.is_dir():
                atomic.remove(folder)

    def _resume(self) -> None:
        path = checkpoint.latest(self.run_dir)
        if path is None:
            return
        atomic.check_manifest(path)
        free = ("init_from", "cache_dir", "max_rounds", "trackers", "experiment_name")
        if changed := checkpoint.changed_fields(path, self.cfg, free):
            raise ValueError(
                f"{path} was trained with another config ({', '.join(changed)} differ); give "
                "another --run-dir, or --no-resume to start over"
            )
        facts = checkpoint.load_trainer_state(path).facts
        self.round, self.metrics = facts["round"], dict(facts["metrics"])
        self.validations, self.recorded = list(facts["validations"]), list(facts["recorded"])
        self._wall_s, self._cpu_s = facts["wall_s"], facts["cpu_s"]
        self._discard_trainings()

    def _tell(
        self,
        stage: typing.Literal["record", "train", "validate"],
        done: int,
        total: int,
        **numbers: float,
    ) -> None:
        at = self.round if stage == "validate" else self.round + 1
        self._show(DAggerProgress(at, self.cfg.max_rounds, stage, done, total, numbers))

    def _result(self) -> dict:
        best = checkpoint.steps(self.run_dir)[best_round(self.validations)]
        return {
            "checkpoint": str(best),
            "checkpoint_digest": deployable_digest(best),
            "steps": self.round,
            "metrics": self.metrics,
            "validations": self.validations,
            "recorded": self.recorded,
            "wall_s": self._wall_s,
            "cpu_s": self._cpu_s,
        }


class _Shifted(NullTracker):
    """Passes on the metrics of one round, with their steps counted from the run's beginning."""

    def __init__(self, tracker: Tracker, first_step: int):
        self._tracker, self._first_step = tracker, first_step

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self._tracker.log_metrics(metrics, self._first_step + step)
