"""What came before: earlier images as further views, earlier states behind the present one.

A policy that sees the past sees one observation with more in it. The view NAME@k is what camera
NAME showed k frames before, and the state is [present, 1 before, 2 before, ...]. Frames before the
beginning of the episode repeat its first one, as in lerobot's and Diffusion Policy's observations
(arXiv:2303.04137): one rule for images and states, and no frozen backbone ever sees an empty view.

Training, evaluation, reinforcement learning and robots all see the same. Frames are `stride` steps
apart. A recording has every step; an episode that is played is seen once per executed chunk, so
that the stride has to be a multiple of that.

Legend: B rows, P past frames, D state dimension.
"""

import collections
import dataclasses
import typing
from collections.abc import Mapping, Sequence

import numpy as np

from rrf.data.schema import History, Observation

_MARK = "@"


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

    Raises:
        ValueError: If the policy's frames are not among these observations.
    """

    def __init__(self, past: Past, steps: int = 1):
        if misfit := past.misfit(steps):
            raise ValueError(f"the policy {misfit}")
        self._past, self._interval = past, max(1, past.stride // steps)
        longest = max(past.images, past.states) * self._interval + 1
        self._seen: collections.deque[tuple[Mapping[str, np.ndarray], np.ndarray]] = (
            collections.deque(maxlen=longest)
        )

    def seen(self, observation: Observation) -> Observation:
        """The next observation, [1, ...], as the policy sees it."""
        if not self._past:
            return observation
        images, state = self.add(observation.images, observation.state)
        return dataclasses.replace(observation, images=images, state=state)

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

    def _before(self, k: int) -> tuple[Mapping[str, np.ndarray], np.ndarray]:
        return self._seen[max(-1 - k * self._interval, -len(self._seen))]
