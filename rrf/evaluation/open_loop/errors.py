"""The errors of predicted action chunks on episodes that were not trained on, such as those that
training held out.

The same errors are computed for two baselines, because a small error alone proves little: always
the mean action of the training data, and holding the action that was executed last. Where actions
change slowly, the second one is hard to beat.

They are also computed for the policy with the images of another frame, half of all frames away. If
that is no worse, its images do not help: it does not look at them, or learned others by heart. A
policy in two parts, which looks less often than it acts, has its features of this frame, and beside
that the oldest ones that it may have.

An error in standard deviations leaves out dimensions that are constant in the training data: there,
rounding would be many of them.

Legend: N frames, K steps of a chunk, A action dimension.
"""

import dataclasses
import typing
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from rrf.data.dataset.held_out import held_out
from rrf.data.dataset.history import LooksSeldom, history_options, seen_at
from rrf.data.dataset.layout import read_info
from rrf.data.dataset.opening import open_dataset
from rrf.data.dataset.reader import LeRobotReader
from rrf.data.schema import ACTION, Observation
from rrf.evaluation.candidate import Candidate
from rrf.runners.checkpoints.deployable import VLA, described

POLICY, OTHER, MEAN, HOLD = "policy", "with other images", "mean action", "hold previous"
OLDEST = "with oldest features"  # only of a policy that looks less often than it acts
_CONSTANT = 1e-6  # a standard deviation below which float32 holds nothing but rounding
_HELP = 1.05  # error with other images, over the error: below this, images do not help


class Predicts(typing.Protocol):
    """A policy, of which only greedy actions are asked."""

    def sample(self, observation: Observation, *, greedy: bool) -> typing.Any: ...


@dataclasses.dataclass
class OpenLoop:
    """Mean absolute errors in physical units, over the real steps of all chunks."""

    errors: dict[str, np.ndarray]  # predictor -> float64 [K, A]
    std: np.ndarray  # float64 [A], of the training data's actions
    names: tuple[str, ...]  # of the dimensions
    units: list[str]
    num_frames: int
    episodes: list["Trace"]

    def per_dimension(self, who: str) -> np.ndarray:
        """Mean error of each dimension over the steps of the chunk, [A]."""
        return self.errors[who].mean(0)

    @property
    def varies(self) -> np.ndarray:
        """Which dimensions are not constant in the training data, bool [A]; all, if none is."""
        is_varying = self.std > _CONSTANT
        return is_varying if is_varying.any() else ~is_varying

    def per_step(self, who: str) -> np.ndarray:
        """Mean error in standard deviations of each step of the chunk, [K]."""
        return (self.errors[who] / self.std)[:, self.varies].mean(1)

    def total(self, who: str) -> float:
        """Mean error in standard deviations over everything."""
        return float(self.per_step(who).mean())

    @property
    def images_help(self) -> bool:
        """Whether the policy is worse with the images of another frame, by a twentieth or more."""
        return self.total(OTHER) >= _HELP * self.total(POLICY)

    def to_dict(self) -> dict:
        """Plain data for a JSON file."""
        return {
            "num_frames": self.num_frames,
            "dimensions": list(self.names),
            "units": self.units,
            "std": self.std.tolist(),
            "constant": [n for n, v in zip(self.names, self.varies, strict=True) if not v],
            "error_in_std": {who: self.total(who) for who in self.errors},
            "error_by_dimension": {who: self.per_dimension(who).tolist() for who in self.errors},
            "error_in_std_by_step": {who: self.per_step(who).tolist() for who in self.errors},
        }


@dataclasses.dataclass
class Trace:
    """One episode: what was demonstrated, and the first step of every predicted chunk."""

    number: int
    demonstrated: np.ndarray  # float32 [T, A]
    predicted: np.ndarray  # float32 [T, A]


def open_loop(
    policy: Predicts,
    frames: LeRobotReader,
    norm_stats: Mapping[str, Mapping],
    batch_size: int = 64,
    num_traces: int = 3,
    on_frames: Callable[[int, int], None] | None = None,
) -> OpenLoop:
    """Predict a chunk for every frame and compare it with what was demonstrated.

    Args:
        policy: The policy.
        frames: Episodes that it was not trained on, read with its chunk length.
        norm_stats: The statistics of its training data.
        batch_size: Frames per prediction.
        num_traces: Episodes to keep for plots, the first ones.
        on_frames: Is told (frames done, frames of all).
    """
    total, first_steps = frames.num_frames, []
    mean_a = np.asarray(norm_stats[ACTION]["mean"], np.float32)
    sums: dict[str, np.ndarray] = {}
    counts_k = np.zeros(frames.chunk_length)
    for start in range(0, total, batch_size):
        indices = np.arange(start, min(start + batch_size, total))
        batch = frames.batch(indices)
        predicted = policy.sample(batch.observation, greedy=True).actions
        elsewhere = frames.batch((indices + total // 2) % total).observation.images
        misled = dataclasses.replace(batch.observation, images=elsewhere)
        first_steps.append(predicted[:, 0])
        real_bk1 = ~batch.is_pad[..., None]
        previous_ba = frames.previous_actions(indices)
        held_ba = np.where(np.isnan(previous_ba), mean_a, previous_ba)
        guesses = {
            POLICY: predicted,
            OTHER: policy.sample(misled, greedy=True).actions,
            MEAN: np.broadcast_to(mean_a, predicted.shape),
            HOLD: np.broadcast_to(held_ba[:, None], predicted.shape),
        }
        if isinstance(policy, LooksSeldom):
            old = _seen_before(frames, batch.observation, indices, policy.max_age_steps)
            guesses[OLDEST] = policy.sample(old, greedy=True).actions
        for who, guess in guesses.items():
            error = (np.abs(guess - batch.action) * real_bk1).sum(0, dtype=np.float64)
            sums[who] = sums.get(who, 0.0) + error
        counts_k += real_bk1[..., 0].sum(0)
        if on_frames:
            on_frames(indices[-1] + 1, total)
    action = frames.schema.action
    return OpenLoop(
        errors={who: total_ka / counts_k[:, None].clip(1) for who, total_ka in sums.items()},
        std=np.maximum(np.asarray(norm_stats[ACTION]["std"], np.float64), 1e-9),
        names=action.names,
        units=action.units,
        num_frames=total,
        episodes=_traces(frames, np.concatenate(first_steps), num_traces),
    )


def _seen_before(
    frames: LeRobotReader, observation: Observation, indices: np.ndarray, steps: int
) -> Observation:
    """The observation of frames to a policy that looked so many steps before, or when the episode
    began."""
    ago = np.minimum(steps, frames.steps_since_start(indices))
    return seen_at(observation, frames.batch(indices - ago).observation.images, ago)


def _traces(frames: LeRobotReader, predicted_na: np.ndarray, count: int) -> list[Trace]:
    traces, start = [], 0
    for number in range(min(count, frames.num_episodes)):
        demonstrated = frames.actions_of(number)
        stop = start + len(demonstrated)
        traces.append(Trace(frames.episodes[number], demonstrated, predicted_na[start:stop]))
        start = stop
    return traces


_DEFAULT_FRACTION = 0.08


def evaluate_held_out(candidate: Candidate, place: str | Path) -> tuple[OpenLoop, list[int]]:
    """The errors of a policy on the episodes of a dataset that its training held out.

    A policy whose training knew no held-out episodes (reinforcement learning, or a validation
    fraction of 0) is evaluated on those that a training with the default fraction would hold out.

    Returns:
        The errors, and the numbers of the episodes.

    Raises:
        ValueError: If the policy does not see images, if it does not fit the dataset, or if there
            are no such episodes.
    """
    from rrf.policies.vla.configs import PolicyCfg
    from rrf.runners.checkpoints import checkpoint
    from rrf.runners.supervised.frames import check_fit

    if candidate.kind != VLA:
        raise ValueError(
            f"{candidate.label} is {described(candidate.kind)}; only policies that see images are "
            "evaluated on recorded episodes"
        )
    policy: typing.Any = candidate.policy or checkpoint.load_policy(candidate.checkpoint)
    cfg = PolicyCfg.from_dict(candidate.config["policy"])
    fraction = candidate.config.get("validation_fraction") or _DEFAULT_FRACTION
    total = read_info(place)["total_episodes"]
    kept = held_out(total, fraction)
    if not kept:
        raise ValueError(
            f"{place} has {total} episodes, too few to hold out {fraction:.0%} of them; give a "
            "larger dataset"
        )
    known = candidate.config.get("instructions")
    frames = open_dataset(
        place,
        cfg.chunk_length,
        known,
        kept,
        instruction_style=candidate.config.get("instruction_style"),
        **history_options(cfg.past),
    )
    check_fit(cfg, frames.schema)
    stats = checkpoint.load_norm_stats(candidate.checkpoint)
    return open_loop(policy, frames, stats), frames.episodes
