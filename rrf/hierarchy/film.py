"""Films a hierarchy at the table: the robot from outside, what it sees, and the three signals."""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import typing
from pathlib import Path

import mujoco
import numpy as np

from rrf.envs.humanoid import body
from rrf.envs.rendering.renderers import Renderer, choose_renderer, make_renderer
from rrf.envs.rendering.video import caption, enlarge, write_video
from rrf.hierarchy.picture import Signals, panel, signals
from rrf.hierarchy.runtime import Runtime

if typing.TYPE_CHECKING:
    from rrf.envs.humanoid.simulator import HumanoidVecEnv, TableRobot

_SIZE = 320
_FPS = 10
_GOES_ON_S = 1.0  # after success


class Film:
    """Notes every tenth of a second what is to be seen, if there is a file to write, and draws it
    when the run is over: drawing takes longer than a tick. Ends the run a second after success.
    """

    def __init__(self, env: "HumanoidVecEnv", robot: "TableRobot", path: Path | None):
        self._env, self._robot, self._path = env, robot, path
        self._moments: list[tuple[float, np.ndarray, Signals]] = []  # seconds, qpos, what was sent
        self._joints = body.qpos_addresses(robot.model, body.JOINTS)

    def look(self, runtime: Runtime) -> bool:
        """Called after each tick; true a second after success."""
        ticks, hz = runtime.counts.ticks, runtime.cfg.system0.hz
        if self._path and ticks % round(hz / _FPS) == 0:
            self._moments.append((ticks / hz, self._robot.data.qpos.copy(), signals(runtime)))
        solved = self._robot.solved_at
        return solved is not None and ticks > solved + _GOES_ON_S * hz

    def close(self) -> None:
        """Draw and write the video; the robot is moved once more through what it did."""
        if not self._path or not self._moments:
            return
        world = self._env.world
        name = choose_renderer("warp", _SIZE, "cpu")
        sizes = (_SIZE, _SIZE)
        renderer = make_renderer(name, world.spec, world.model, ["outside"], sizes, 1, "cpu")
        try:
            write_video(self._path, [self._drawn(renderer, *one) for one in self._moments], _FPS)
        finally:
            renderer.close()

    def _drawn(
        self, renderer: Renderer, seconds: float, qpos: np.ndarray, sent: Signals
    ) -> np.ndarray:
        robot = self._robot
        robot.data.qpos[:] = qpos
        mujoco.mj_forward(robot.model, robot.data)
        images = robot.observe()
        [[outside]] = renderer.render([robot.data])
        ego = enlarge(images.images["ego"][0], _SIZE)
        whole = np.concatenate([outside, ego, panel(sent, qpos[self._joints], _SIZE)], axis=1)
        return caption(whole, f"{images.instruction[0]}   {seconds:.1f} s")
