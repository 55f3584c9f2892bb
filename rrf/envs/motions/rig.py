"""Kinematics of a robot with a free base: where its feet are, the joints that put them there, and
the motion of one robot on another with the same number of feet (`retargeted`).

Legend: T frames, J joints, F feet.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import dataclasses
import typing

import mujoco
import numpy as np

from rrf.envs.motions.clip import FRAME_PARTS, Clip, quat_conjugate, rotate

_DAMPING = 1e-3
_MAX_STEPS = 60
_CLOSE_M = 1e-4
_MAX_TURN = 0.3  # rad per iteration
_TILT_M = 0.1  # m that a radian of tilt counts as, for feet that stay level


class Rig:
    """The joints and feet of one robot in a MuJoCo model."""

    def __init__(self, model: mujoco.MjModel, feet: typing.Sequence[str], prefix: str = ""):
        """
        Args:
            feet: Names of the sites that are the feet.
            prefix: What the names in the model begin with, e.g. "robot/". It is left out of
                `joint_names`.

        Raises:
            ValueError: If there is no free joint or no such site.
        """
        self.model, self.data = model, mujoco.MjData(model)
        joints = [model.joint(i) for i in range(model.njnt)]
        joints = [joint for joint in joints if joint.name.startswith(prefix)]
        free = [j for j in joints if j.type[0] == mujoco.mjtJoint.mjJNT_FREE]
        if len(free) != 1:
            raise ValueError(f"the robot has {len(free)} free joints, expected 1: its base")
        hinges = [j for j in joints if j.type[0] != mujoco.mjtJoint.mjJNT_FREE]
        sites = {model.site(i).name.removeprefix(prefix): i for i in range(model.nsite)}
        for name in feet:
            if name not in sites:
                raise ValueError(f"the robot has no site '{name}'; it has {', '.join(sites)}")
        self.joint_names = [joint.name.removeprefix(prefix) for joint in hinges]
        self.feet = list(feet)
        self.default = model.key_qpos[0] if model.nkey else model.qpos0
        self._root = int(free[0].qposadr[0])
        self._qpos = np.array([joint.qposadr[0] for joint in hinges])
        self._dofs = np.array([joint.dofadr[0] for joint in hinges])
        self._sites = np.array([sites[name] for name in feet])
        bodies = [model.body(i).name for i in range(1, model.nbody)]
        self._bodies = [i + 1 for i, body in enumerate(bodies) if body.startswith(prefix)]
        limits = [j.range if model.jnt_limited[j.id] else (-np.inf, np.inf) for j in hinges]
        self._low, self._high = np.array(limits).T

    @property
    def default_joints(self) -> np.ndarray:
        """The joints in the model's first key frame, or else in its zero position, [J], rad."""
        return self.default[self._qpos].copy()

    def foot_positions(self, joint_pos: np.ndarray) -> np.ndarray:
        """Positions of the feet relative to the base, in its frame, [T, F, 3], m.

        Args:
            joint_pos: [T, J].
        """
        self._put_base()
        out = np.empty((len(joint_pos), len(self.feet), 3))
        for frame, joints in enumerate(joint_pos):
            self.data.qpos[self._qpos] = joints
            mujoco.mj_kinematics(self.model, self.data)
            out[frame] = self.data.site_xpos[self._sites]
        return out

    def hips(self) -> np.ndarray:
        """Where the legs begin, relative to the base, [F, 3], m: the origin of the last body with
        a joint below the base, upwards from each foot's site, that the foot is attached to.
        """
        self._put_base()
        mujoco.mj_kinematics(self.model, self.data)
        base = self.model.jnt_bodyid[self._joint_at(self._root)]
        chains = [self._chain(self.model.site_bodyid[site], base) for site in self._sites]
        return self.data.xpos[[chain[-1] for chain in chains]].copy()

    def bodies(self, clip: Clip) -> tuple[np.ndarray, np.ndarray]:
        """Positions [T, bodies, 3] (m) and orientations [T, bodies, 4] of the robot's bodies in the
        world, from the base on in the order of the model.
        """
        clip = clip.with_joints(self.joint_names)
        self._put_base()
        places, turns = [], []
        for place, turn, joints in zip(clip.root_pos, clip.root_quat, clip.joint_pos, strict=True):
            self.data.qpos[self._root : self._root + 7] = (*place, *turn)
            self.data.qpos[self._qpos] = joints
            mujoco.mj_kinematics(self.model, self.data)
            places.append(self.data.xpos[self._bodies].copy())
            turns.append(self.data.xquat[self._bodies].copy())
        return np.array(places), np.array(turns)

    def leg_lengths(self) -> np.ndarray:
        """Lengths of the stretched legs, [F], m: the sum of the distances between the joints from
        the hip to the foot.
        """
        self._put_base()
        mujoco.mj_kinematics(self.model, self.data)
        base = self.model.jnt_bodyid[self._joint_at(self._root)]
        lengths = []
        for site in self._sites:
            chain = self._chain(self.model.site_bodyid[site], base)
            points = np.vstack([self.data.site_xpos[site], self.data.xpos[chain]])
            lengths.append(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())
        return np.array(lengths)

    def joints_for(
        self, feet_tf3: np.ndarray, name: str = "the motion", *, level: bool = False
    ) -> np.ndarray:
        """Joint positions that put the feet at these places, [T, J], by damped least squares.

        Every frame begins with the joints of the frame before; the first with the default ones.
        Joints that move no foot keep their default positions.

        Args:
            feet_tf3: Positions relative to the base in its frame, [T, F, 3], m.
            level: Keep the frames of the feet's sites parallel to the base. For feet with soles.

        Raises:
            ValueError: If a foot cannot reach its place; the message names frame and foot.
        """
        self._put_base()
        joints, out = self.default_joints, []
        for frame, targets in enumerate(feet_tf3):
            joints, error = self._reach(targets, joints, level)
            if error.max() > 100 * _CLOSE_M:
                foot = int(error.argmax())
                raise ValueError(
                    f"{name}: foot '{self.feet[foot]}' misses its place in frame {frame} by "
                    f"{100 * error[foot]:.1f} cm; use shorter steps or a lower base"
                )
            out.append(joints)
        return np.array(out)

    def _reach(
        self, targets: np.ndarray, joints: np.ndarray, level: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """The joints [J], and how far each foot is from its target, [F], m."""
        moves, turns = np.zeros((2, 3, self.model.nv))
        error = np.zeros(len(targets))
        for _ in range(_MAX_STEPS):
            self.data.qpos[self._qpos] = joints
            mujoco.mj_kinematics(self.model, self.data)
            misses = targets - self.data.site_xpos[self._sites]
            if level:
                tilts = _axes(self.data.site_xmat[self._sites].reshape(-1, 3, 3))
                misses = np.hstack([misses, -_TILT_M * tilts])
            error = np.linalg.norm(misses, axis=1)
            if error.max() < _CLOSE_M:
                break
            mujoco.mj_comPos(self.model, self.data)
            rows = []
            for site in self._sites:
                mujoco.mj_jacSite(self.model, self.data, moves, turns, site)
                rows.append(moves[:, self._dofs])
                rows += [_TILT_M * turns[:, self._dofs]] * level
            j = np.vstack(rows)
            square = j @ j.T + _DAMPING**2 * np.eye(len(j))
            step = j.T @ np.linalg.solve(square, misses.ravel())
            step *= min(1.0, _MAX_TURN / max(np.abs(step).max(), 1e-9))
            joints = np.clip(joints + step, self._low, self._high)
        return joints, error

    def _put_base(self) -> None:
        """The base at the origin of the world, everything else in its default position."""
        self.data.qpos[:] = self.default
        self.data.qpos[self._root : self._root + 7] = (0, 0, 0, 1, 0, 0, 0)

    def _joint_at(self, address: int) -> int:
        return int(np.flatnonzero(self.model.jnt_qposadr == address)[0])

    def _chain(self, body: int, base: int) -> list[int]:
        """The bodies from `body` up to the one below `base`."""
        chain = [int(body)]
        while self.model.body_parentid[chain[-1]] != base:
            chain.append(int(self.model.body_parentid[chain[-1]]))
        return chain


def _axes(turns_f33: np.ndarray) -> np.ndarray:
    """The axis of each rotation times the sine of its angle, [F, 3]."""
    low, high = turns_f33[:, [2, 0, 1], [1, 2, 0]], turns_f33[:, [1, 2, 0], [2, 0, 1]]
    return (low - high) / 2


def frames(clip: Clip, rig: Rig, parts: typing.Sequence[str] = FRAME_PARTS) -> np.ndarray:
    """What an adversarial motion prior sees of every frame: these parts in this order, [T, D].

    joint_pos   [J], rad
    joint_vel   [J], rad/s
    height      [1] of the base, m
    lin_vel     [3] of the base in its own frame, m/s
    ang_vel     [3] of the base in its own frame, rad/s
    gravity     [3], its direction in the frame of the base
    feet        [3 F], positions relative to the base in its frame, m
    """
    clip = clip.with_joints(rig.joint_names)
    inverse = quat_conjugate(clip.root_quat)
    down = np.broadcast_to([0.0, 0.0, -1.0], clip.root_pos.shape)
    every = {
        "joint_pos": clip.joint_pos,
        "joint_vel": clip.joint_vel(),
        "height": clip.root_pos[:, 2:],
        "lin_vel": rotate(inverse, clip.root_lin_vel()),
        "ang_vel": clip.root_ang_vel(),
        "gravity": rotate(inverse, down),
        "feet": rig.foot_positions(clip.joint_pos).reshape(len(inverse), -1),
    }
    return np.concatenate([every[part] for part in parts], axis=1)


def retargeted(
    clip: Clip, source: Rig, target: Rig, foot_radius_m: float = 0.0, *, level: bool = False
) -> Clip:
    """The motion of `clip`, which was made for `source`, on `target`.

    The paths of the feet relative to the hips, and those of the base, are scaled by the ratio of
    the leg lengths; time is not. A foot that stands still in the source therefore stands still in
    the target. The lateral distance of a foot from its hip scales with the leg, too. Inverse
    kinematics gives the joints; joints that move no foot keep their default positions.

    Args:
        source: Its feet are in the same order as those of `target`.
        foot_radius_m: Height of a foot's site above the ground while it stands. It is the same for
            both robots and not scaled.
        level: Keep the soles of the target level.

    Raises:
        ValueError: If the clip has other joints than `source`, if the robots have different numbers
            of feet, or if a foot cannot reach its place.
    """
    if len(source.feet) != len(target.feet):
        raise ValueError(
            f"the source has {len(source.feet)} feet and the target {len(target.feet)}; give the "
            "feet that correspond, in the same order"
        )
    clip = clip.with_joints(source.joint_names)
    scale = float(target.leg_lengths().mean() / source.leg_lengths().mean())
    ground = np.array([0.0, 0.0, foot_radius_m])
    base = (clip.root_pos - ground) * scale + ground
    legs = source.foot_positions(clip.joint_pos) - source.hips()
    return dataclasses.replace(
        clip,
        joint_names=target.joint_names,
        root_pos=base,
        joint_pos=target.joints_for(target.hips() + scale * legs, clip.name, level=level),
        source=f"{clip.source}; retargeted to legs of {scale:.3f} times the length",
    )
