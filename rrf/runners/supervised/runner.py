"""The supervised loop: recorded frames, a loss, an optimizer, and resumable checkpoints.

All randomness of step n comes from generators seeded with (seed, n). On a CPU with the same number
of threads, a run that was stopped or killed and then resumed computes bit for bit the same results
as an undisturbed run. `rrf.runners.supervised.parallel` says how several processes share the work.
"""

import dataclasses
import math
import time
import typing
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

from rrf import atomic
from rrf.data.dataset import seen_images
from rrf.data.schema import IMAGE_PREFIX, STATE, Batch
from rrf.lineage import Lineage
from rrf.policies.vla.configs import PolicyCfg
from rrf.runners import optimizer_state, process_group
from rrf.runners.checkpoints import checkpoint, published
from rrf.runners.checkpoints.deployable import deployable_digest
from rrf.runners.checkpoints.imported import published_facts
from rrf.runners.ema import EMA
from rrf.runners.interruption import Interrupted, Position, SignalWatch
from rrf.runners.optimizers import build_adamw, freeze, set_lr
from rrf.runners.save_clock import SaveClock
from rrf.runners.schedule import schedule_factor
from rrf.runners.sharded_tensors import whole
from rrf.runners.supervised.advantage import with_advantage, with_dropout
from rrf.runners.supervised.aged_frames import with_ages
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.supervised.feature_cache import with_features
from rrf.runners.supervised.frames import Split, check_fit, fitted, split_of
from rrf.runners.supervised.out_of_memory import explained
from rrf.runners.supervised.parallel import (
    Objective,
    Part,
    exchanging,
    own_parts,
    replicate,
    shard,
    shares,
    summed,
)
from rrf.runners.supervised.parent import (
    policy_of_family,
    statistics,
    warn_of_other_inputs,
    with_parent_robots,
)
from rrf.runners.tracker import NullTracker, Tracker


@dataclasses.dataclass
class Progress:
    """The data for a progress display."""

    step: int
    max_steps: int
    loss: float
    validation_loss: float | None
    learning_rate: float
    samples_per_s: float
    eta_s: float


def build_runner(
    cfg: SupervisedRunnerCfg, run_dir: str | Path, lineage: Lineage | None = None
) -> "SupervisedRunner":
    """A runner for the datasets that `cfg` names. Raises ValueError like `split_of`."""
    cfg = with_parent_robots(cfg)
    split = split_of(cfg)
    return SupervisedRunner(fitted(cfg, split), split, run_dir, lineage)


class SupervisedRunner:
    """Trains `cfg.policy` on the frames of `split` and saves checkpoints in `run_dir`."""

    def __init__(
        self,
        cfg: SupervisedRunnerCfg,
        split: Split,
        run_dir: str | Path,
        lineage: Lineage | None = None,
    ):
        check_fit(cfg.policy, split.training.schema)
        self.device = process_group.join(cfg.device)
        self.cfg, self.split, self.run_dir = cfg, split, Path(run_dir)
        self.lineage = lineage or Lineage()
        parent = checkpoint.find(cfg.init_from) if cfg.init_from else None
        may_lack = ()
        cfg.check_parent()
        if parent:
            may_lack = policy_of_family(parent, cfg.policy).absent_weights
            if not process_group.rank():
                warn_of_other_inputs(parent, cfg.policy)
            self.lineage = self.lineage.replace(parent_checkpoint=deployable_digest(parent))
        begun = checkpoint.latest(self.run_dir)
        # A resumed run normalises as it began, however statistics are made by now.
        kept = checkpoint.load_norm_stats(begun) if begun else None
        self.norm_stats = kept or statistics(cfg, split, parent)
        if not kept and STATE in self.norm_stats:  # not of several robots
            own = seen_images.statistics(split.training.readers)
            others = {k: v for k, v in self.norm_stats.items() if not k.startswith(IMAGE_PREFIX)}
            self.norm_stats = others | own
        with torch.random.fork_rng():
            torch.manual_seed(cfg.seed)
            if parent:
                self.policy = cfg.policy.rebuild(self.norm_stats, parent)
            else:
                self.policy = cfg.policy.build(self.norm_stats)
        if cfg.pretrained and not parent:
            self.lineage = self.lineage.replace(published=published_facts(cfg.pretrained))
            if begun is None:  # else the weights are read from there
                published.fill(self.policy, cfg.pretrained)
        if parent:
            checkpoint.load_weights(self.policy, parent, may_lack)
        self.policy.to(self.device).train()
        if cfg.advantage:
            self.split, advantage = with_advantage(split, cfg, self.run_dir)
            self.lineage = self.lineage.replace(advantage=advantage)
        self.split = with_ages(self.split, cfg.policy, cfg.seed)
        if cfg.caches_features:
            self.split = with_features(split, self.policy, cfg, _say)
        self.algorithm = cfg.algorithm.build(self.policy, self.norm_stats)
        freeze(self.policy, cfg.lr_factors)
        self.ema = EMA(self.policy, cfg.ema.decay) if cfg.ema else None
        self._objective = self._divide()
        self.optimizer = build_adamw(self.policy, cfg.optimizer, cfg.lr_factors)
        self.step = 0
        self.metrics: dict[str, float] = {}
        self._wall_s = self._cpu_s = 0.0

    @property
    def deployed(self) -> typing.Any:
        """The policy that is validated and deployed: the averaged one, if there is averaging."""
        return self.ema.module if self.ema else self.policy

    @property
    def position(self) -> Position:
        """For the answers to Ctrl-C."""
        return Position("step", self.step, self.cfg.max_steps)

    def run(
        self,
        tracker: Tracker | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        signals: SignalWatch | None = None,
    ) -> dict:
        """Train to the end. Resumes from the newest checkpoint in `run_dir`, if there is one.

        Returns:
            checkpoint, checkpoint_digest, steps, metrics, wall_s and cpu_s. The times are summed
            over all resumptions.

        Raises:
            Interrupted: After a signal noted by `signals`, when the finished step has been saved.
            ValueError: For a loss or gradient that is not finite, or for a checkpoint of another
                config.
        """
        tracker = tracker or NullTracker()
        self._resume()
        wall, cpu = time.monotonic() - self._wall_s, time.process_time() - self._cpu_s
        window, window_start, clock = [], time.monotonic(), SaveClock()
        with torch.random.fork_rng():
            while self.step < self.cfg.max_steps:
                with explained(self.policy, self.cfg, self.device):
                    window.append(self._train_step())
                self._wall_s, self._cpu_s = time.monotonic() - wall, time.process_time() - cpu
                stop = process_group.agree(signals.received if signals else None)
                if self._is_due(self.cfg.validation_interval):
                    self.metrics.update(self.validate())
                if self._is_due(self.cfg.log_interval) or stop:
                    elapsed = time.monotonic() - window_start
                    progress = self._report(window, elapsed, tracker)
                    if on_progress:
                        on_progress(progress)
                    window, window_start = [], time.monotonic()
                is_late = process_group.agree(int(clock.is_due()))
                if self._is_due(self.cfg.save_interval) or stop or is_late:
                    with clock.saving():
                        self.save()
                if stop and self.step < self.cfg.max_steps:
                    raise Interrupted(stop, f"saved {checkpoint.latest(self.run_dir)}")
        return self._result()

    def validate(self) -> dict[str, float]:
        """The deployed policy's loss and metrics on the held-out frames, without augmentation; of
        several robots also those of each, as `validation/total/TAG`.
        """
        frames = self.split.validation
        if frames is None:
            return {}
        by_robot = self.split.validation_by_robot
        sums: dict[str, float] = {}
        was_training = self.deployed.training
        self.deployed.eval()
        with torch.no_grad():
            for robot, indices, counted in self._validation_batches(frames.num_frames):
                loss, metrics = self.deployed.loss(frames.batch(indices))
                for metric, value in {"loss/total": loss.item(), **metrics}.items():
                    name = f"validation/{metric.removeprefix('loss/')}"
                    portions = {name: counted / frames.num_frames}
                    for tag, part in by_robot.items():
                        portions[f"{name}/{tag}"] = counted / len(part) if tag == robot else 0.0
                    for name, portion in portions.items():
                        sums[name] = sums.get(name, 0.0) + (value * portion if portion else 0.0)
        self.deployed.train(was_training)
        return summed(sums)

    def _validation_batches(self, num_frames: int) -> Iterator[tuple[str, np.ndarray, int]]:
        """This process's batches of held-out frames: of which robot, the frames, how many count.

        All processes have the same number of batches, since weights may be divided among them.
        What is too many is the last batch again, and does not count.
        """
        parts = self.split.validation_by_robot or {"": range(num_frames)}
        batches = [
            (robot, np.arange(start, min(start + self.cfg.batch_size, part.stop)))
            for robot, part in parts.items()
            for start in range(part.start, part.stop, self.cfg.batch_size)
        ]
        for first in range(0, len(batches), process_group.size()):
            number = first + process_group.rank()
            robot, indices = batches[min(number, len(batches) - 1)]
            yield robot, indices, len(indices) if number < len(batches) else 0

    def save(self) -> Path:
        """Write a checkpoint of the current step and remove the oldest ones.

        All processes take part, and the first one writes.
        """
        tensors = optimizer_state.pack(self.optimizer, self.policy, self.ema)
        weights = whole(self.deployed.state_dict())
        if process_group.rank():
            process_group.wait()
            return self.run_dir
        facts = {
            "step": self.step,
            "wall_s": self._wall_s,
            "cpu_s": self._cpu_s,
            "metrics": self.metrics,
        }
        path = checkpoint.save(
            self.run_dir,
            self.step,
            self.cfg,
            weights,
            self.norm_stats,
            checkpoint.TrainerState(tensors, facts),
            self.lineage,
            self.policy.assets(),
        )
        checkpoint.prune(self.run_dir, self.cfg.num_checkpoints_kept)
        process_group.wait()
        return path

    def _divide(self) -> nn.Module:
        """The objective, ready for the processes of the group."""
        cfg, bf16 = self.cfg, self.cfg.precision == "bf16"
        if cfg.compiles_head:
            for part in self.policy.get_submodule("head").children():
                part.compile()
        if cfg.sharding is None:
            return replicate(Objective(self.algorithm, self.device.type, bf16))
        modules: list[typing.Any] = [self.policy, *([self.ema.module] if self.ema else [])]
        for module in modules:
            shard(module, module.blocks(), cfg.sharding, bf16)
        return Objective(self.algorithm, self.device.type, bf16)

    def _train_step(self) -> dict[str, float]:
        cfg = self.cfg
        lr = cfg.optimizer.lr * schedule_factor(self.step, cfg.max_steps, cfg.schedule)
        set_lr(self.optimizer, lr)
        drawn = self.split.training.draw(cfg.batch_size, cfg.seed, self.step)
        self.optimizer.zero_grad()
        metrics = self._backward(own_parts(cfg, drawn, self.step))
        norm = float(torch.nn.utils.clip_grad_norm_(self.policy.parameters(), cfg.max_grad_norm))
        self._require_finite("gradient norm", norm)
        self.optimizer.step()
        if self.ema:
            self.ema.update(self.policy)
        self.step += 1
        return {**metrics, "train/grad_norm": norm, "train/learning_rate": lr}

    def _backward(self, parts: list[Part]) -> dict[str, float]:
        """Add up the gradients of this process's parts; returns the metrics of the whole batch."""
        batches = [self._batch(part) for part in parts]
        totals: dict[str, float] = {}
        weights = shares(batches)
        for part, batch, weight in zip(parts, batches, weights, strict=True):
            torch.manual_seed(part.seed)
            with exchanging(self._objective, is_last=part is parts[-1]):
                loss, metrics = self._objective(batch, part.rng)
                # Gradients are averaged over processes, but shares add up to 1 over all of them.
                scaled = loss * (weight * process_group.size()) if weight != 1.0 else loss
                if len(parts) == process_group.size() == 1:
                    self._require_finite("loss", loss.item())
                scaled.backward()
            for name, value in {"loss/total": loss.item(), **metrics}.items():
                totals[name] = totals.get(name, 0.0) + weight * value
        totals = summed(totals)
        self._require_finite("loss", totals["loss/total"])
        return totals

    def _batch(self, part: Part) -> Batch:
        batch, advantage = self.split.training.batch(part.frames), self.cfg.advantage
        return with_dropout(batch, advantage.dropout, part.rng) if advantage else batch

    def _require_finite(self, what: str, value: float) -> None:
        if math.isfinite(value):
            return
        last = checkpoint.latest(self.run_dir)
        kept = f"the last good checkpoint is {last}" if last else "no checkpoint had been saved yet"
        raise ValueError(
            f"the {what} is {value} at step {self.step + 1} of {self.cfg.max_steps}; training "
            f"stopped before the weights changed, {kept}. Check the data (rrf data validate "
            f"{', '.join(self.cfg.datasets)}) or lower optimizer.lr ({self.cfg.optimizer.lr:g})"
        )

    def _is_due(self, interval: int) -> bool:
        return self.step % interval == 0 or self.step == self.cfg.max_steps

    def _report(
        self, window: list[dict[str, float]], elapsed_s: float, tracker: Tracker
    ) -> Progress:
        means = {name: sum(row[name] for row in window) / len(window) for name in window[0]}
        rate = len(window) * self.cfg.batch_size / elapsed_s
        self.metrics.update(means)
        tracker.log_metrics(
            {**self.metrics, "train/samples_per_s": rate, "train/cpu_s": self._cpu_s}, self.step
        )
        return Progress(
            step=self.step,
            max_steps=self.cfg.max_steps,
            loss=means["loss/total"],
            validation_loss=self.metrics.get("validation/total"),
            learning_rate=window[-1]["train/learning_rate"],
            samples_per_s=rate,
            eta_s=(self.cfg.max_steps - self.step) * elapsed_s / len(window),
        )

    def _resume(self) -> None:
        path = checkpoint.latest(self.run_dir)
        if path is None:
            return
        atomic.check_manifest(path)
        self._require_same_config(path)
        state = checkpoint.load_trainer_state(path)
        deployed = checkpoint.read_weights(path)
        optimizer_state.restore(self.optimizer, self.policy, self.ema, deployed, state.tensors)
        if self.ema:
            self.ema.num_updates = state.facts["step"]
        self.step = state.facts["step"]
        self.metrics = dict(state.facts["metrics"])
        self._wall_s, self._cpu_s = state.facts["wall_s"], state.facts["cpu_s"]

    def _require_same_config(self, path: Path) -> None:
        saved = checkpoint.load_config(path)
        if PolicyCfg.from_dict(saved.get("policy") or {}) != self.cfg.policy:
            # If the architecture differs, this error names the parameters that differ.
            checkpoint.load_weights(self.policy, path)
        # cache_dir does not change results
        free = ["cache_dir", *self.cfg.longer_than(saved)]
        if changed := checkpoint.changed_fields(path, self.cfg, free):
            raise ValueError(
                f"{path} was trained with another config ({', '.join(changed)} differ); give "
                "another --run-dir, or --no-resume to start over"
            )

    def _result(self) -> dict:
        path = checkpoint.latest(self.run_dir)
        assert path is not None
        return {
            "checkpoint": str(path),
            "checkpoint_digest": deployable_digest(path),
            "steps": self.step,
            "metrics": self.metrics,
            "wall_s": self._wall_s,
            "cpu_s": self._cpu_s,
        }


def _say(text: str) -> None:
    warnings.warn(text, stacklevel=2)
