"""What came before: earlier images as further views, earlier states behind the present one.

A policy that sees the past sees one observation with more in it. The view NAME@k is what camera
NAME showed k frames before, and the state is [present, 1 before, 2 before, ...]. Frames before the
beginning of the episode repeat its first one, as in lerobot's and Diffusion Policy's observations
(arXiv:2303.04137): one rule for images and states, and no frozen backbone ever sees an empty view.

Training, evaluation, reinforcement learning and robots all see the same. Frames are `stride` steps
apart. A recording has every step; an episode that is played is seen once per executed chunk, so
that the stride has to be a multiple of that.

A policy of two parts (`rrf.policies.vla.psi0_configs`) may look less often than it acts. What
camera NAME showed when it looked last is the view NAME@seen, beside what it shows now, and
`Observation.seen_steps_ago` says how long ago that was.

Legend: B rows, P past frames, D state dimension.
"""

import collections
import dataclasses
import typing
from collections.abc import Mapping, Sequence

import numpy as np

from rrf.data.schema import History, Observation

_MARK = "@"
_SEEN = f"{_MARK}seen"
_ROUNDING = 1e-6  # of a rate


@dataclasses.dataclass(frozen=True)
class Past:
    """How much a policy sees of what came before."""

    images: int = 0
    """Past images of each camera."""
    states: int = 0
    """Past states."""
    stride: int = 1
    """Steps from one frame to the next."""

    def __post_init__(self):
        for name, least in (("images", 0), ("states", 0), ("stride", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"past_{name} is {getattr(self, name)}, allowed: {least} or more")

    def __bool__(self) -> bool:
        return bool(self.images or self.states)

    @classmethod
    def of(cls, policy: Mapping[str, typing.Any]) -> "Past":
        """What the saved config of a policy says."""
        fields = dataclasses.fields(cls)
        return cls(
            **{field.name: policy.get(f"past_{field.name}", field.default) for field in fields}
        )

    def views(self, cameras: Sequence[str]) -> list[str]:
        """The names of all views: the cameras now, then one frame before, and so on."""
        past = range(1, self.images + 1)
        return [*cameras, *(f"{camera}{_MARK}{k}" for k in past for camera in cameras)]

    def misfit(self, steps: int) -> str | None:
        """Why the past cannot be had from an observation every `steps` steps; None if it can."""
        if not self or self.stride % steps == 0:
            return None
        return (
            f"sees frames that are {self.stride} steps apart (past_stride), but an observation "
            f"comes every {steps} steps; the first must be a multiple of the second"
        )


NOTHING = Past()


def history_options(past: Past) -> dict[str, typing.Any]:
    """The options of `rrf.data.dataset.reader.LeRobotReader` for this past."""
    return {
        "image_history": past.images,
        "state_history": past.states,
        "history_stride": past.stride,
    }


@typing.runtime_checkable
class SeesPast(typing.Protocol):
    """A policy that sees what came before."""

    past: Past


def past_of(policy: typing.Any) -> Past:
    """What a policy sees of the past; nothing, if it does not say so."""
    return policy.past if isinstance(policy, SeesPast) else NOTHING


@typing.runtime_checkable
class LooksSeldom(typing.Protocol):
    """A policy that looks less often than it acts."""

    feature_period: int
    """It looks at each so many-th observation."""
    max_age_steps: int
    """The most steps ago that it may have looked."""
    control_hz: float
    """Steps per second, by which it knows how long ago that was."""

    def held_too_long(self, steps: int) -> str | None:
        """Why it cannot do so with an observation every `steps` steps; None if it can."""
        ...


def misfit_of(policy: typing.Any, steps: int, fps: float | None) -> str | None:
    """Why a policy, or its config, cannot be played with an observation every `steps` steps, and
    `fps` of them per second (None: not known yet); None if it can."""
    if misfit := past_of(policy).misfit(steps):
        return misfit
    if not isinstance(policy, LooksSeldom):
        return None
    hz = policy.control_hz  # 0: the dataset's, not known yet
    if hz and fps and abs(hz - fps) > _ROUNDING * fps:
        return (
            f"was trained on {hz:g} actions per second (control_hz), but the environment executes "
            f"{fps:g} (action_repeat): commands and the ages of features would be wrong"
        )
    return policy.held_too_long(steps)


def history_of(policy: typing.Any, steps: int) -> "HistoryBuffer":
    """The history of one episode for a policy.

    Raises:
        ValueError: As `HistoryBuffer`.
    """
    period = policy.feature_period if isinstance(policy, LooksSeldom) else 1
    return HistoryBuffer(past_of(policy), steps, period)


def seen_at(
    observation: Observation, images: Mapping[str, np.ndarray], steps_ago: np.ndarray
) -> Observation:
    """An observation of a policy that looked last when the cameras showed `images`."""
    seen = {f"{camera}{_SEEN}": image for camera, image in images.items()}
    return dataclasses.replace(
        observation, images={**observation.images, **seen}, seen_steps_ago=steps_ago
    )


def as_seen(observation: Observation) -> Observation:
    """What the policy saw when it looked last, as if it was now."""
    if observation.seen_steps_ago is None:
        return observation
    images = {
        view.removesuffix(_SEEN): image
        for view, image in observation.images.items()
        if view.endswith(_SEEN)
    }
    return dataclasses.replace(observation, images=images, seen_steps_ago=None)


def camera_of(view: str) -> str:
    """The camera of a view."""
    return view.partition(_MARK)[0]


def with_history(observation: Observation, history: History) -> Observation:
    """Recorded frames as a policy sees them that sees all of this history."""
    images = dict(observation.images)
    for camera, past_bp in history.images.items():
        for k in range(1, past_bp.shape[1] + 1):
            images[f"{camera}{_MARK}{k}"] = past_bp[:, -k]
    past_bpd = history.state[:, ::-1]
    state = np.concatenate([observation.state, past_bpd.reshape(len(past_bpd), -1)], axis=1)
    return dataclasses.replace(observation, images=images, state=state)


class HistoryBuffer:
    """What one episode has shown so far.

    Args:
        past: What the policy sees.
        steps: Steps from one observation to the next one.
        period: The policy looks at each so many-th observation.

    Raises:
        ValueError: If the policy's frames are not among these observations.
    """

    def __init__(self, past: Past, steps: int = 1, period: int = 1):
        if misfit := past.misfit(steps):
            raise ValueError(f"the policy {misfit}")
        self._past, self._interval = past, max(1, past.stride // steps)
        self._steps, self._period, self._count = steps, period, 0
        self._looked_at: Mapping[str, np.ndarray] = {}
        longest = max(past.images, past.states) * self._interval + 1
        self._seen: collections.deque[tuple[Mapping[str, np.ndarray], np.ndarray]] = (
            collections.deque(maxlen=longest)
        )

    def __bool__(self) -> bool:
        """Whether the policy sees anything else than the observation."""
        return bool(self._past) or self._period > 1

    def seen(self, observation: Observation) -> Observation:
        """The next observation, [1, ...], as the policy sees it."""
        shown = observation.images
        if self._past:
            images, state = self.add(shown, observation.state)
            observation = dataclasses.replace(observation, images=images, state=state)
        if self._period == 1:
            return observation
        age = self._count % self._period
        if age == 0:
            self._looked_at = shown
        self._count += 1
        return seen_at(observation, self._looked_at, np.array([age * self._steps]))

    def add(
        self, images: Mapping[str, np.ndarray], state: np.ndarray
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The views and the state [..., D * (1 + P)] of the next observation."""
        self._seen.append((images, state))
        views = {
            f"{camera}{_MARK}{k}": image
            for k in range(1, self._past.images + 1)
            for camera, image in self._before(k)[0].items()
        }
        states = [self._before(k)[1] for k in range(self._past.states + 1)]
        return {**images, **views}, np.concatenate(states, axis=-1)

    def clear(self) -> None:
        """Forget what was seen."""
        self._seen.clear()
        self._count = 0

    def _before(self, k: int) -> tuple[Mapping[str, np.ndarray], np.ndarray]:
        return self._seen[max(-1 - k * self._interval, -len(self._seen))]
