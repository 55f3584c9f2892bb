"""The episodes of `rrf play --robot` as logs of a deployed policy (`rrf.client.EpisodeLogger`)."""

import typing
from collections.abc import Mapping

import numpy as np

from rrf.client import EpisodeLogger
from rrf.data.episode_log import FAILURE, OPERATOR, SUCCESS, UNKNOWN
from rrf.data.schema import IMAGE_PREFIX, STATE, Schema
from rrf.envs.robots.session import Result

_NOT_JUDGED = ("again", "end")


class RobotLog:
    """What a session tells of its episodes, logged; see `rrf.envs.robots.session.Witness`.

    Args:
        log: Where to.
        schema: Names of the robot's state, action and cameras, and its rate.
        instruction: What it is told.
        policy: name, version and digest of what acts.
    """

    def __init__(
        self, log: EpisodeLogger, schema: Schema, instruction: str, policy: Mapping[str, typing.Any]
    ):
        self._log, self._schema = log, schema
        self._instruction, self._policy = instruction, policy

    def begins(self, index: int) -> None:
        """An episode begins."""
        schema = self._schema
        self._log.begin(
            self._instruction,
            float(schema.fps),
            policy=self._policy,
            start={"attempt": index},
            state_names=schema.state.names,
            action_names=schema.action.names,
        )

    def saw(
        self,
        observation: Mapping[str, typing.Any],
        sent: Mapping[str, float],
        by_operator: bool,
    ) -> None:
        """A control step: what was seen, what was sent after all limits, and who acted."""
        seen = {f"{IMAGE_PREFIX}{camera}": observation[camera] for camera in self._schema.cameras}
        state = [float(observation[name]) for name in self._schema.state.names]
        action = [sent[name] for name in self._schema.action.names]
        observation = {**seen, STATE: np.array(state, np.float32)}
        by = OPERATOR if by_operator else None
        self._log.step(observation, np.array(action, np.float32), by=by)

    def ended(self, result: Result) -> None:
        """The episode is over, and was judged."""
        if result.how.startswith("stopped"):
            self._log.event("guard", reason=result.how)
        outcome = SUCCESS if result.success else FAILURE
        self._log.end(UNKNOWN if result.how in _NOT_JUDGED else outcome, result.how)
