"""Films a hierarchy at the table: the robot from outside, what it sees, and the three signals."""

import typing
from pathlib import Path

import numpy as np

from rrf.envs.humanoid import body
from rrf.envs.rendering.renderers import Renderer, choose_renderer, make_renderer
from rrf.envs.rendering.video import caption, enlarge, write_video
from rrf.hierarchy.picture import panel
from rrf.hierarchy.runtime import Runtime

if typing.TYPE_CHECKING:
    from rrf.envs.humanoid.simulator import HumanoidVecEnv, TableRobot

_SIZE = 320
_FPS = 10
_GOES_ON_S = 1.0  # after success


class Film:
    """Takes a picture every tenth of a second, if there is a file to write; ends the run a second
    after the task is solved.
    """

    def __init__(self, env: "HumanoidVecEnv", robot: "TableRobot", path: Path | None):
        self._env, self._robot, self._path = env, robot, path
        self._frames: list[np.ndarray] = []
        self._renderer: Renderer | None = None
        self._joints = body.qpos_addresses(robot.model, body.JOINTS)

    def look(self, runtime: Runtime) -> bool:
        """Called after each tick; true a second after success."""
        ticks, hz = runtime.counts.ticks, runtime.cfg.system0.hz
        if self._path and ticks % round(hz / _FPS) == 0:
            self._frames.append(self._frame(runtime))
        solved = self._robot.solved_at
        return solved is not None and ticks > solved + _GOES_ON_S * hz

    def _frame(self, runtime: Runtime) -> np.ndarray:
        images = self._robot.observe()
        if self._renderer is None:
            world, size = self._env.world, (_SIZE, _SIZE)
            name = choose_renderer("warp", _SIZE, "cpu")
            self._renderer = make_renderer(
                name, world.spec, world.model, ["outside"], size, 1, "cpu"
            )
        [[outside]] = self._renderer.render([self._robot.data])
        ego = enlarge(images.images["ego"][0], _SIZE)
        signals = panel(runtime, self._robot.data.qpos[self._joints], _SIZE)
        seconds = runtime.counts.ticks / runtime.cfg.system0.hz
        whole = np.concatenate([outside, ego, signals], axis=1)
        return caption(whole, f"{images.instruction[0]}   {seconds:.1f} s")

    def close(self) -> None:
        """Write the video."""
        if self._renderer is not None:
            self._renderer.close()
        if self._path and self._frames:
            write_video(self._path, self._frames, _FPS)
