"""Scripted experts of the G1 at its table: phases, chosen by the present state.

    walk   towards the place in front of the table, then stop
    touch  over the object -> down on it
    push   beside the cube -> down -> along
    pick   over the object, hand open -> down around it -> close -> up
    place  pick, then over the plate -> down -> open -> up

A phase has a goal of the hand in the world's frame. The hand follows a point that moves to the goal
at a limited speed, and waits for the hand; inverse kinematics answers from where the body is at
that moment, so the body may sway. Where the arm is too short, the torso leans further. Steps move
the hand more than they help it, so the body takes some only when it has left its place. Where
something goes wrong (the object slips or rolls away), the expert begins again.

Everything is a function of what it saw of its own episode.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import math
import typing

import numpy as np

from rrf.envs.humanoid import command, hands, kinematics, scene
from rrf.envs.humanoid.success import PELVIS_AHEAD
from rrf.envs.humanoid.tasks import Task

if typing.TYPE_CHECKING:
    import mujoco

# Angles of a left hand, as `hands.pose` takes them.
_OPEN = (0.0, -0.7, 0.6, -0.75, -0.2, -0.75, -0.2)
_GRIP = (0.0, 0.0, 0.8, -1.42, -0.2, -1.42, -0.2)
_FIST = (0.0, 0.3, 0.6, -1.45, -0.3, -1.45, -0.3)
_LEAN, _MAX_LEAN, _LEAN_RAD_S = 0.2, 0.6, 0.3  # the torso's pitch at the table; more to reach far
_REACHED_M, _LAG_M = 0.008, 0.06
_OVER_M, _GRASP_M, _LIFT_M = 0.12, 0.008, 0.14  # the hand's height above the middle of the object
_TOUCH_M = -0.01
_BESIDE_M = {"left": (-0.03, -0.12), "right": (-0.03, 0.12), "forward": (-0.12, 0.0)}
_ALONG = {"left": (0.0, 1.0), "right": (0.0, -1.0), "forward": (1.0, 0.0)}
_FAST_M_S, _CARRY_M_S, _SLOW_M_S, _LOWER_M_S = 0.35, 0.2, 0.15, 0.1
_NEAR_M, _AT_M, _IN_HAND_M = 0.02, 0.012, 0.05
_TURNED_RAD = 0.2
_STAND_M = 0.12  # no steps for less: they move the hand more than they help it
_MAX_RAD_S = 1.8  # of a joint
_TURNS_WITH_ARM, _TILT = 0.6, 0.3  # rad; the fingers point down a little
_DOWN = np.array([0.0, 0.0, -1.0])


class Expert:
    """The expert of one episode."""

    def __init__(self, world: scene.World, task: Task, start: scene.Layout, dt: float):
        """`dt`: seconds between two actions."""
        self._world, self._task, self._start, self._dt = world, task, start, dt
        self.side = _hand(task, start)
        self._arm = kinematics.Arm(world.model, self.side) if task.verb != "walk" else None
        self._fingers: tuple[float, ...] = _OPEN if task.verb in ("pick", "place") else _FIST
        self._follows: np.ndarray | None = None  # the point that the hand follows
        self._angles: np.ndarray | None = None  # of the arm, as they were chosen last
        self._angle = 0.0  # of the fingers about z
        self._lean = _LEAN
        self._phase = "begin"
        self._since = 0  # actions in this phase
        self._grip = np.zeros(3)  # where the hand closed, or opened
        self._held: np.ndarray | None = None  # from the hand to the object when it was gripped

    def command(self, data: "mujoco.MjData") -> np.ndarray:
        """The 36 numbers of the command, float64, in their units, within their limits."""
        wanted = dict(zip(command.NAMES, self._world.resting, strict=True))
        wanted |= self._walk(data)
        if self._arm:
            self._since += 1
            goal, speed = getattr(self, f"_{self._task.verb}")(data)
            wanted |= self._reach(data, goal, speed)
        values = np.array([wanted[name] for name in command.NAMES])
        return np.clip(values, command.LOW, command.HIGH)

    def _walk(self, data: "mujoco.MjData") -> dict[str, float]:
        """The part of the body: keep, or come to, the place in front of the table."""
        angle = self._world.heading(data)
        ahead, left = PELVIS_AHEAD - data.qpos[0], -data.qpos[1]
        left = 0.0 if abs(left) < (0.08 if self._arm else 0.18) else left
        cos, sin = math.cos(angle), math.sin(angle)
        vx, vy = cos * ahead + sin * left, -sin * ahead + cos * left
        if math.hypot(ahead, left) < _STAND_M:
            vx = vy = 0.0
        # The table is straight ahead where the heading is 0. Who works there and is nearly turned
        # to it does not step, which would move the hand more than it helps it.
        is_turned = abs(angle) < (_TURNED_RAD if self._arm else 0.05)
        return {
            "vx": float(np.clip(0.8 * vx, -0.25, 0.4)),
            "vy": float(np.clip(0.8 * vy, -0.25, 0.25)),
            "vyaw": 0.0 if is_turned else float(np.clip(1.5 * -angle, -0.6, 0.6)),
            "target_yaw": (angle if self._arm and is_turned else 0.0) - self._start.robot[2],
            "torso_pitch": self._lean if self._arm else 0.0,
        }

    def _reach(self, data: "mujoco.MjData", goal: np.ndarray, speed: float) -> dict[str, float]:
        """The part of the arm: its joints and fingers."""
        assert self._arm
        if self._follows is None:
            self._follows = self._arm.place(data)
        if float(np.linalg.norm(self._follows - self._arm.place(data))) < _LAG_M:
            way = goal - self._follows
            self._follows += way * min(
                1.0, speed * self._dt / max(float(np.linalg.norm(way)), 1e-9)
            )
        way = self._follows[:2] - data.body(f"{self.side}_shoulder_pitch_link").xpos[:2]
        angle = _TURNS_WITH_ARM * math.atan2(way[1], way[0])
        if self._fingers == _OPEN:
            angle += self._side_of_cube(data, angle)
        most = {"carry": self._dt, "begin": math.inf, "down": math.inf, "along": math.inf}.get(
            self._phase,
            0.0,  # what is held is turned at 1 rad/s
        )
        self._angle += min(most, max(-most, angle - self._angle))
        angle = self._angle
        fingers = np.array([math.cos(angle), math.sin(angle), -math.tan(_TILT)])
        turn = kinematics.facing(self.side, fingers, _DOWN)
        angles, off = self._arm.solve(data, self._follows, turn)
        if off > _REACHED_M:
            self._lean = min(_MAX_LEAN, self._lean + _LEAN_RAD_S * self._dt)
        before = data.qpos[self._arm.qpos] if self._angles is None else self._angles
        step = angles - before
        self._angles = before + step * min(
            1.0, _MAX_RAD_S * self._dt / max(np.abs(step).max(), 1e-9)
        )
        joints = dict(zip(self._arm.joints, self._arm.targets(data, self._angles), strict=True))
        return joints | hands.pose(self.side, self._fingers)

    def _side_of_cube(self, data: "mujoco.MjData", angle: float) -> float:
        """How far to turn from an angle until the fingers are square to a cube, rad."""
        if self._task.shape != "cube":
            return 0.0
        quarter = math.pi / 2
        turn = self._world.turn(data, self._task.object) - angle
        return (turn + quarter / 2) % quarter - quarter / 2

    def _go(self, phase: str) -> None:
        self._phase, self._since = phase, 0

    def _is_at(self, data: "mujoco.MjData", goal: np.ndarray, near_m: float) -> bool:
        assert self._arm
        return float(np.linalg.norm(self._arm.place(data) - goal)) < near_m

    def _at_object(self, data: "mujoco.MjData", height: float, aside=(0.0, 0.0)) -> np.ndarray:
        return self._world.place(data, self._task.object) + np.array([*aside, height])

    def _touch(self, data: "mujoco.MjData") -> tuple[np.ndarray, float]:
        if self._phase == "begin":
            over = self._at_object(data, _OVER_M + 0.04)
            if self._is_at(data, over, _NEAR_M):
                self._go("down")
            return over, _FAST_M_S
        return self._at_object(data, _TOUCH_M), _SLOW_M_S

    def _push(self, data: "mujoco.MjData") -> tuple[np.ndarray, float]:
        aside = _BESIDE_M[self._task.direction]
        height = 0.05 if self._task.direction == "forward" else 0.12
        over, low = self._at_object(data, height, aside), self._at_object(data, 0.02, aside)
        if self._phase == "begin":
            if self._is_at(data, over, _NEAR_M):
                self._go("down")
            return over, _FAST_M_S
        if self._phase == "down":
            if self._is_at(data, low, _NEAR_M):
                self._go("along")
            return low, _SLOW_M_S
        ahead = np.array(_ALONG[self._task.direction])
        if self._since > 40:
            self._go("begin")
        return self._at_object(data, 0.02, 0.05 * ahead), _SLOW_M_S

    def _pick(self, data: "mujoco.MjData") -> tuple[np.ndarray, float]:
        assert self._arm
        hand, thing = self._arm.place(data), self._world.place(data, self._task.object)
        if self._phase in ("begin", "over", "down"):
            return self._approach(data, hand, thing)
        if self._phase == "close":
            if self._since > 0.7 / self._dt:
                self._held = thing - hand
                self._go("lift")
            return self._grip, _SLOW_M_S
        assert self._held is not None
        if float(np.linalg.norm(thing - hand - self._held)) > 0.05:  # it slipped
            self._fingers = _OPEN
            self._go("begin")
        return _above(self._grip, _LIFT_M), _CARRY_M_S

    def _approach(self, data, hand: np.ndarray, thing: np.ndarray) -> tuple[np.ndarray, float]:
        """Over the object and down around it."""
        if math.dist(hand, thing) < _IN_HAND_M and self._is_off_table(data):
            # Who else moved the hand (a policy that is corrected) holds it already.
            self._fingers, self._held = _GRIP, thing - hand
            rests = scene.TABLE_TOP + scene.rest_height(self._task.shape)
            self._grip = np.array([*hand[:2], rests + _GRASP_M])
            self._go("lift")
            return _above(self._grip, _LIFT_M), _CARRY_M_S
        self._fingers = _OPEN
        over, low = self._at_object(data, _OVER_M), self._at_object(data, _GRASP_M)
        if self._phase != "down":
            if self._is_at(data, over, _NEAR_M):
                self._go("down")
            return over, _FAST_M_S
        if math.dist(hand[:2], thing[:2]) > 0.04 or self._since > 6 / self._dt:
            self._go("begin")
        elif self._is_at(data, low, _AT_M):
            self._fingers = _GRIP
            self._grip = low
            self._go("close")
        return low, _SLOW_M_S

    def _is_off_table(self, data: "mujoco.MjData") -> bool:
        """Whether the object is higher than it would lie, on the table or on a plate."""
        return self._world.above_table(data, self._task.object) > self._world.plate_height + 0.01

    def _is_over_plate(self, thing: np.ndarray) -> bool:
        return math.dist(thing[:2], self._start.plates[self._task.plate]) < _NEAR_M

    def _place(self, data: "mujoco.MjData") -> tuple[np.ndarray, float]:
        assert self._arm
        hand, thing = self._arm.place(data), self._world.place(data, self._task.object)
        if self._phase in ("begin", "down", "close", "lift"):
            goal = self._pick(data)
            # Who else moves the hand may have carried it away without lifting it so high.
            is_off = math.dist(hand[:2], self._grip[:2]) > 0.03 or self._is_over_plate(thing)
            if self._phase == "lift" and (is_off or self._is_at(data, goal[0], 0.03)):
                self._go("carry")
            return goal
        assert self._held is not None
        rests = scene.TABLE_TOP + self._world.plate_height + scene.rest_height(self._task.shape)
        low = np.array([*self._start.plates[self._task.plate], rests + 0.004]) - self._held
        if self._phase in ("carry", "lower"):
            if float(np.linalg.norm(thing - hand - self._held)) > 0.05:
                self._go("begin")
            if self._phase == "carry":
                if self._is_over_plate(thing):
                    self._go("lower")
                return _above(low, 0.1), _CARRY_M_S
            if self._is_at(data, low, _AT_M) or self._since > 3 / self._dt:
                self._grip = low
                self._go("open")
            return low, _LOWER_M_S
        self._fingers = _OPEN
        if self._phase == "open":
            if self._since > 0.6 / self._dt:
                self._go("leave")
            return self._grip, _SLOW_M_S
        if self._since > 3 / self._dt:
            self._go("begin")
        return _above(self._grip, _LIFT_M), _SLOW_M_S


def _above(place: np.ndarray, height: float) -> np.ndarray:
    return place + np.array([0.0, 0.0, height])


def _hand(task: Task, start: scene.Layout) -> str:
    """The hand that does it: the named one, or the one on the object's side; to push to a side,
    the one that comes from the other side.
    """
    if task.hand or task.verb == "walk":
        return task.hand or "left"
    if task.direction in ("left", "right"):
        return "right" if task.direction == "left" else "left"
    return "left" if start.objects[task.object][1] > 0 else "right"
