"""What a robot has seen since its episode began, for policies that see past frames
(`rrf.data.dataset.history`)."""

import typing
from collections.abc import Mapping

import numpy as np

from rrf.data.dataset.history import HistoryBuffer, Past
from rrf.data.schema import IMAGE_PREFIX, STATE


class RobotHistory:
    """Adds to each observation what the policy sees of earlier ones.

    The robot keeps it, not the server: a connection that breaks loses nothing.

    Args:
        past: What the policy sees, as the server's metadata say (`past`); None for nothing.
    """

    def __init__(self, past: Mapping[str, int] | None = None):
        self._past = Past(**(past or {}))
        self.reset()

    def reset(self) -> None:
        """Forget everything: a new episode begins."""
        self._buffer = HistoryBuffer(self._past)

    def seen(self, observation: Mapping[str, typing.Any]) -> dict[str, typing.Any]:
        """This step's observation as the policy sees it. Call it once in every step.

        Args:
            observation: Has observation.state and observation.images.NAME, without a batch
                dimension.

        Raises:
            ValueError: If there is no observation.state.
        """
        if not self._past:
            return dict(observation)
        if STATE not in observation:
            raise ValueError(
                f"the policy sees past frames, for which an observation needs '{STATE}' and "
                f"'{IMAGE_PREFIX}NAME'; it has: {', '.join(map(str, observation))}"
            )
        images = {name: v for name, v in observation.items() if name.startswith(IMAGE_PREFIX)}
        views, state = self._buffer.add(images, np.asarray(observation[STATE], np.float32))
        return {**observation, **views, STATE: state}
