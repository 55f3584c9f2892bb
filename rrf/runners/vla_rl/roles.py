"""The protocols that the reinforcement-learning loop needs, and its progress data.

`rrf.orchestra` implements the protocols.
"""

import dataclasses
import typing
from collections.abc import Callable, Sequence

import torch

from rrf.runners.vla_rl.call_costs import CallCosts
from rrf.runners.vla_rl.early_stop import EarlyStop
from rrf.runners.vla_rl.job_sources import JobSource
from rrf.runners.vla_rl.timeline import Layout, Timeline
from rrf.storage.trajectories import PlayedEpisode


class Backend(typing.Protocol):
    """Plays episodes; see `rrf.orchestra.inline.InlineBackend`."""

    rollout: typing.Any
    timeline: Timeline
    calls: CallCosts
    layout: Layout
    in_process: typing.ClassVar[tuple[str, ...]]

    def play(
        self,
        source: JobSource,
        stream: Sequence[int],
        *,
        greedy: bool = ...,
        keeps: bool = ...,
        should_stop: Callable[[], bool] = ...,
        early_stop: EarlyStop | None = ...,
    ) -> None: ...

    def timings(self) -> dict[str, float]: ...

    def close(self) -> None: ...


class Actor(typing.Protocol):
    """Owns and trains the weights; see `rrf.orchestra.actor_role.ActorRole`."""

    policy: typing.Any
    algorithm: typing.Any
    offload: typing.Any

    def leave(self) -> None: ...
    def set_noise_factor(self, factor: float) -> None: ...
    def check(self, player: typing.Any, episodes: Sequence[PlayedEpisode]) -> dict[str, float]: ...
    def weights(self) -> dict[str, torch.Tensor]: ...
    def deployed_weights(self) -> dict[str, torch.Tensor]: ...
    def update(
        self,
        groups: Sequence[Sequence[PlayedEpisode]],
        horizon: int,
        round_number: int,
        lr_factor: float,
        seed: int,
    ) -> dict[str, float]: ...
    def state(self) -> tuple[dict[str, torch.Tensor], dict]: ...
    def restore(self, deployed: dict, tensors: dict, facts: dict) -> None: ...


@dataclasses.dataclass
class RoundProgress:
    """The data for a progress display."""

    round: int  # number of finished rounds
    max_rounds: int
    episodes: int
    success: dict[str, float]  # success rate of this round's episodes, by task
    validation: float | None
    metrics: dict[str, float]
    episodes_per_s: float
    eta_s: float
