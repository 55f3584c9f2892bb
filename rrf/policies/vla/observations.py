"""Checks of what policies that see images are given."""

from collections.abc import Sequence

import numpy as np

from rrf.data.schema import IMAGE_PREFIX, STATE, Observation


def check_observation(
    observation: Observation, cameras: Sequence[str], image_size: Sequence[int], state_dim: int
) -> None:
    """Compare an observation with the training data.

    Raises:
        ValueError: For a camera that is missing, and for images or states of another shape or
            dtype.
    """
    batch = len(observation)
    for name in cameras:
        if name not in observation.images:
            have = ", ".join(sorted(observation.images)) or "none"
            raise ValueError(
                f"the policy needs {IMAGE_PREFIX}{name}, but the observation has only: {have}"
            )
        images, shape = observation.images[name], (batch, *image_size, 3)
        if images.dtype != np.uint8 or images.shape != shape:
            raise ValueError(
                f"{IMAGE_PREFIX}{name} is {images.dtype}{list(images.shape)}, but the policy "
                f"was trained on uint8{list(shape)}"
            )
    state, shape = observation.state, (batch, state_dim)
    if state.dtype != np.float32 or state.shape != shape:
        raise ValueError(
            f"{STATE} is {state.dtype}{list(state.shape)}, but the policy was trained on "
            f"float32{list(shape)}"
        )
