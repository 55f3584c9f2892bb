"""Images and an instruction in addition to the state vectors, for policies that look and read.

Legend: N environments, K of them whose episode ended, H and W pixels.
"""

from collections.abc import Sequence

import numpy as np
import torch
from tensordict import TensorDict

from rrf.envs.control_env import ControlEnv, EnvState
from rrf.envs.rendering.film import TRACKING, EpisodeFilm
from rrf.envs.wrappers.wrapper import ControlEnvWrapper

IMAGE_GROUP = "image"


class MultiModal(ControlEnvWrapper):
    """Adds a group of images for each camera, uint8 [N, H, W, 3], and `extras["instruction"]`.

    The group of the camera that follows the robot is "image"; the group of a camera "front" is
    "image/front". These groups are not in `interface.observation_dims`, which holds the widths of
    vectors; `image_shapes` has them. The instruction is not a tensor, so it is a list of N strings
    in the extras of `reset` and `step`.

    If an ended episode can still be drawn before its reset (`before_reset`, as in `GymnasiumEnv`),
    `extras["final_obs"]` has its last images. Otherwise it has vectors only.
    """

    def __init__(
        self,
        env: ControlEnv,
        image_size: tuple[int, int] = (96, 96),
        cameras: Sequence[str] = (TRACKING,),
        instruction: str | None = None,
        renderer: str = "warp",
        device: str = "cpu",
    ):
        """Wrap `env` and make its renderer.

        Args:
            env: The environment to draw.
            image_size: (height, width) in pixels.
            cameras: `TRACKING`, or cameras of the MuJoCo model by name.
            instruction: The robot's instruction; None adds none.
            renderer: One of `rrf.envs.rendering.renderers.RENDERERS`.
            device: The Warp device that draws.

        Raises:
            ValueError: For an environment that cannot be drawn, or an unknown camera.
        """
        super().__init__(env)
        self.instruction = instruction
        all_envs = range(env.num_envs)
        self._film = EpisodeFilm(env, all_envs, image_size, cameras, renderer, device)
        self.image_shapes = {_group(camera): (*image_size, 3) for camera in cameras}
        self._images: dict[str, torch.Tensor] | None = None
        self._final_images: dict[str, torch.Tensor] | None = None
        self._sees_endings = hasattr(self.unwrapped, "before_reset")
        if self._sees_endings:
            self._next_hook = self.unwrapped.before_reset
            self.unwrapped.before_reset = self._draw_endings

    def get_observations(self) -> TensorDict:
        """The current vectors and images, TensorDict [N]."""
        if self._images is None:
            self._images = self._draw()
        return self._with_images(self.env.get_observations(), self._images)

    def reset(self) -> tuple[TensorDict, dict]:
        """Start a new episode in every environment."""
        observations, extras = self.env.reset()
        self._images = self._draw()
        return self._with_images(observations, self._images), extras | self._instruction_extras()

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        """See `ControlEnv.step`."""
        self._final_images = None
        observations, rewards, dones, extras = self.env.step(actions)
        extras: dict = extras | self._instruction_extras()
        final = extras.get("final_obs")
        if final is not None and self._final_images is not None:
            extras["final_obs"] = self._with_images(final, self._final_images)
        self._images = self._draw()
        return self._with_images(observations, self._images), rewards, dones, extras

    def load_state(self, state: EnvState) -> None:
        """See `ControlEnv.load_state`."""
        super().load_state(state)
        self._images = None

    def close(self) -> None:
        """Free the renderer and close the wrapped environment. Calling it twice is allowed."""
        if self._sees_endings:
            self.unwrapped.before_reset = self._next_hook
        self._film.close()
        super().close()

    def _draw(self, env_ids: Sequence[int] | None = None) -> dict[str, torch.Tensor]:
        images = self._film.images(env_ids)
        return {
            _group(camera): torch.from_numpy(np.ascontiguousarray(image)).to(self.device)
            for camera, image in images.items()
        }

    def _draw_endings(self, ended: list[int]) -> None:
        if self._next_hook is not None:
            self._next_hook(ended)
        ended_and_drawn = [index for index in ended if index < self.num_envs]
        self._final_images = self._draw(ended_and_drawn) if ended_and_drawn else None

    def _instruction_extras(self) -> dict[str, list[str]]:
        return (
            {} if self.instruction is None else {"instruction": [self.instruction] * self.num_envs}
        )

    def _with_images(self, observations: TensorDict, images: dict[str, torch.Tensor]) -> TensorDict:
        return TensorDict(
            dict(observations.items()) | images, observations.batch_size, device=observations.device
        )


def _group(camera: str) -> str:
    return IMAGE_GROUP if camera == TRACKING else f"{IMAGE_GROUP}/{camera}"
