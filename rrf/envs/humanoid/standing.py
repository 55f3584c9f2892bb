"""The poses in which a robot stands, whatever its height and the orientation of its torso.

Legend: N robots, P points of a grid.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import mujoco
import numpy as np

from rrf.envs.humanoid import body
from rrf.envs.humanoid.command import SIDES


class Standing:
    """Angles of the 15 driven joints with which the robot stands still, at any height of the pelvis
    and orientation of the torso.

    The feet are flat and side by side, and the centre of mass is above the middle of the soles, the
    arms in their default pose. The waist turns the torso; where its range of pitch ends, the pelvis
    leans. This is what AMO's adapter network gives its policy; here it is computed, from a grid of
    knee angles and torso pitches.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        driven: tuple[str, ...],
        pose: dict[str, float],
        waist_limits: tuple[float, float],
        scale: float,
    ) -> None:
        """
        Args:
            model: The robot, with its soles.
            driven: Its joints of legs and waist.
            pose: Joint -> angle in the default pose, rad.
            waist_limits: How far the waist rolls and pitches, rad.
            scale: How tall the robot is, beside a G1.
        """
        self._model = model
        self._data = mujoco.MjData(self._model)
        self._observed = body.qpos_addresses(self._model, tuple(pose))
        self._legs = body.qpos_addresses(self._model, driven[:12])
        self._default = np.array(list(pose.values()))
        names = [f"{side}_sole{i}" for side in SIDES for i in range(4)]
        self._soles = [self._model.geom(name).id for name in names]
        self._sole_radius = self._model.geom_size[self._soles[0], 0]
        self._waist_pitch = body.qpos_addresses(self._model, driven[14:])[0]
        self._roll_limit, self._pitch_limit = waist_limits
        knees = np.linspace(0.0, 2.2, 12)
        self._pitches = np.linspace(-0.3, 0.9, 9)
        self._heights = scale * np.linspace(0.45, 0.79, 35)
        tables = []
        for pitch in self._pitches:
            rows = np.array(
                [self._stand(knee, pitch) for knee in knees]
            )  # [P, height and 3 angles]
            order = np.argsort(rows[:, 0])
            columns = [np.interp(self._heights, rows[order, 0], rows[order, c]) for c in (1, 2, 3)]
            tables.append(np.stack(columns, 1))
        self._table = np.stack(tables)  # [pitches, heights, hip pitch | knee | ankle pitch]

    def _stand(self, knee: float, pitch: float) -> tuple[float, float, float, float]:
        """Height of the pelvis, and the angles of hip pitch, knee and ankle pitch."""
        waist = np.clip(pitch, -self._pitch_limit, self._pitch_limit)
        lean = pitch - waist
        low, high, hip, height = -2.0, 0.6, 0.0, 0.0
        for _ in range(18):
            hip = (low + high) / 2
            ahead, height = self._balance(hip, knee, -(hip + knee + lean), waist, lean)
            low, high = (low, hip) if ahead > 0 else (hip, high)
        return height, hip, knee, -(hip + knee + lean)

    def _balance(
        self, hip: float, knee: float, ankle: float, waist: float, lean: float
    ) -> tuple[float, float]:
        """How far the centre of mass is ahead of the middle of the soles, and the pelvis' height,
        both in m.
        """
        model, data = self._model, self._data
        data.qpos[:] = 0.0
        data.qpos[3:7] = np.cos(lean / 2), 0.0, np.sin(lean / 2), 0.0
        data.qpos[self._observed] = self._default
        data.qpos[self._legs] = 2 * [hip, 0.0, 0.0, knee, ankle, 0.0]
        data.qpos[self._waist_pitch] = waist
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        soles = data.geom_xpos[self._soles]
        middle = soles[:, 0].mean() - 0.005  # a little behind: toes can push, heels cannot
        return data.subtree_com[0][0] - middle, float(-soles[:, 2].min() + self._sole_radius)

    def lean(self, pitch_n: np.ndarray) -> np.ndarray:
        """How far the pelvis leans forward for a pitch of the torso, [N], rad."""
        return pitch_n - np.clip(pitch_n, -self._pitch_limit, self._pitch_limit)

    def pose(self, height_n: np.ndarray, torso_n3: np.ndarray) -> np.ndarray:
        """Angles of the driven joints, float64 [N, 15], rad.

        Args:
            height_n: Heights of the pelvis above the ground in m, [N].
            torso_n3: Roll, pitch and yaw of the torso in rad, [N, 3].
        """
        roll_n, pitch_n, yaw_n = torso_n3.T
        i, u = _cell(self._pitches, pitch_n)
        j, v = _cell(self._heights, height_n)
        t = self._table
        near = t[i, j] * (1 - v) + t[i, j + 1] * v
        far = t[i + 1, j] * (1 - v) + t[i + 1, j + 1] * v
        hip_n, knee_n, ankle_n = (near * (1 - u) + far * u).T
        zero_n = np.zeros_like(hip_n)
        leg = [hip_n, zero_n, zero_n, knee_n, ankle_n, zero_n]
        roll_n = np.clip(roll_n, -self._roll_limit, self._roll_limit)
        waist_pitch_n = np.clip(pitch_n, -self._pitch_limit, self._pitch_limit)
        return np.stack([*leg, *leg, yaw_n, roll_n, waist_pitch_n], 1)


def _cell(grid: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cells of an even grid that values lie in, [N], and where in them, [N, 1]; clipped."""
    place = np.clip((values - grid[0]) / (grid[1] - grid[0]), 0, len(grid) - 1 - 1e-9)
    cell = place.astype(np.int64)
    return cell, (place - cell)[:, None]
