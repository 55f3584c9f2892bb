"""Scripted experts for CALVIN's tasks, asked once per action. Runs where `simulator.py` runs.

An expert sees the true places of blocks, handles, button and switch. It goes through phases; which
one it is in, it remembers in `table.memory`. All numbers were chosen on initial states of seed 5.

Places are in metres, in the frame of the world: x to the right, y away from the robot, z up. Angles
are in radians.
"""

import dataclasses
import typing

import numpy as np

_COLOURS = ("red", "blue", "pink")
_REACH_M, _TURN_RAD = 0.02, 0.05  # what an action of 1 moves the goal by, in a control step
_AHEAD_M = 0.07  # how far the goal of the controller may be from the hand
_OPEN, _CLOSED = 1.0, -1.0
_YAW = 1.5  # of the hand at the beginning of a chain
_TRAVEL_M = 0.60  # height at which the hand travels
_FRONT_M = -0.08  # y in front of the cabinet
_TILT = -0.5  # of a hand that reaches into the cabinet
_DRAWER = np.array([0.18, -0.208, 0.37])  # behind the handle of a closed drawer
_HANDLE = np.array([0.04, 0.0, 0.565])  # of a slider that is right
_BUTTON = np.array([-0.12, -0.12, 0.45])
_INTO_DRAWER = np.array([0.18, -0.07, 0.42])  # of a closed drawer
_INTO_CABINET_M = {"right": -0.24, "left": 0.07}  # x, by where the slider is


@dataclasses.dataclass
class Phase:
    """Where the hand should be."""

    goal: "np.ndarray | typing.Callable"
    """x, y, z, or what tells it from the table."""
    gripper: float
    yaw: float = _YAW
    """About the vertical."""
    tilt: float = 0.0
    """Negative towards the cabinet."""
    near_m: float = 0.02
    """How near to the goal the next phase begins."""
    wait: int = 0
    """Actions for which the hand then stays."""
    is_direct: bool = True
    """Whether the hand goes straight there."""


def action(task, table, action_repeat):
    """The expert's answer to the present state, float32 [7] in [-1, 1].

    Args:
        task: A key of `EXPERTS`.
        table: The `simulator.Table`.
        action_repeat: Control steps for which the action is held.
    """
    memory = table.memory
    if not memory:
        memory.update(phases=EXPERTS[task](table), number=0, waited=0)
    phase = memory["phases"][memory["number"]]
    robot, hand = table.env.robot, table.robot_obs[:3]
    place = phase.goal(table) if callable(phase.goal) else phase.goal
    angles = np.array([np.pi, phase.tilt, phase.yaw])
    turn = _angle(angles - table.robot_obs[3:6])
    if np.linalg.norm(place - hand) < phase.near_m and np.abs(turn).max() < 0.15:
        memory["waited"] += 1
        if memory["waited"] > phase.wait and memory["number"] + 1 < len(memory["phases"]):
            memory.update(number=memory["number"] + 1, waited=0)
    reach_m, reach_rad = _REACH_M * action_repeat, _TURN_RAD * action_repeat
    move = (place if phase.is_direct else _way(hand, place)) - robot.target_pos
    move /= max(1.0, np.abs(move).max() / reach_m)
    ahead = np.clip(robot.target_pos + move - hand, -_AHEAD_M, _AHEAD_M)
    move = hand + ahead - robot.target_pos
    spin = _angle(angles - robot.target_orn)
    command = np.concatenate([move / reach_m, spin / reach_rad, [phase.gripper]])
    return np.clip(command, -1.0, 1.0).astype(np.float32)


def _angle(rad):
    """The same angles in [-pi, pi)."""
    return (rad + np.pi) % (2 * np.pi) - np.pi


def _way(hand, place):
    """The next point on a way that keeps clear of table and cabinet."""
    if np.linalg.norm((place - hand)[:2]) < 0.025:
        return place
    if hand[2] > _TRAVEL_M - 0.03:
        return np.array([place[0], place[1], max(_TRAVEL_M, place[2])])
    if hand[1] > _FRONT_M + 0.01:
        return np.array([hand[0], _FRONT_M, hand[2] + 0.02])
    return np.array([hand[0], hand[1], _TRAVEL_M])


def _by(x=0.0, y=0.0, z=0.0):
    return np.array([x, y, z])


def _joint(table, name):
    """How far the drawer or the slider is moved, in metres."""
    return next(d.get_state() for d in table.env.scene.doors if d.name == f"base__{name}")


def _place(table, colour):
    """Where a block is, and its yaw."""
    blocks = table.env.scene.movable_objects
    state = next(b.get_state() for b in blocks if b.name == f"block_{colour}")
    return state[:3], state[5]


def _drawer(pull_m):
    def behind(table):
        return _DRAWER - _by(y=_joint(table, "drawer"))

    return lambda table: [
        Phase(behind, _CLOSED, near_m=0.012, is_direct=False),
        Phase(lambda table: behind(table) - _by(y=pull_m), _CLOSED),
    ]


def _slider(push_m):
    def handle(table):
        return _HANDLE - _by(x=_joint(table, "slide"))

    return lambda table: [
        Phase(lambda table: handle(table) + _by(y=-0.06, z=0.03), _OPEN, is_direct=False),
        Phase(handle, _OPEN, near_m=0.012),
        Phase(lambda table: handle(table) + _by(x=push_m), _OPEN),
    ]


def _press(table):
    return [
        Phase(_BUTTON + _by(z=0.08), _CLOSED, is_direct=False),
        Phase(_BUTTON, _CLOSED),
    ]


def _switch_up(table):
    return [
        Phase(_by(0.30, -0.05, 0.53), _CLOSED, tilt=_TILT, is_direct=False),
        Phase(_by(0.30, 0.01, 0.50), _CLOSED, tilt=_TILT),
        Phase(_by(0.30, 0.06, 0.60), _CLOSED, tilt=_TILT),
    ]


def _switch_down(table):
    return [
        Phase(_by(0.30, -0.03, 0.66), _CLOSED, tilt=_TILT, is_direct=False),
        Phase(_by(0.30, 0.08, 0.66), _CLOSED, tilt=_TILT),
        Phase(_by(0.30, 0.03, 0.53), _CLOSED, tilt=_TILT),
    ]


def _grasp(table, colour, tilt=0.0):
    """The phases after which a block is held, and the turn of the hand then."""
    place, yaw = _place(table, colour)
    yaw = _YAW + (yaw - _YAW + np.pi / 2) % np.pi - np.pi / 2  # across, as near as can be
    before = _by(z=0.08) if tilt == 0.0 else _by(y=-0.08, z=0.08)
    turned = {"yaw": yaw, "tilt": tilt}

    def at(table):
        return _place(table, colour)[0]

    phases = [
        Phase(lambda table: at(table) + before, _OPEN, **turned, is_direct=False),
        Phase(at, _OPEN, **turned, near_m=0.008 if tilt == 0.0 else 0.024),
        Phase(place, _CLOSED, **turned, near_m=0.05, wait=2),
    ]
    return phases, place, turned


def _lift(colour, tilt=0.0):
    def phases(table):
        grasp, place, turned = _grasp(table, colour, tilt)
        return [*grasp, Phase(place + _by(z=0.12 if tilt == 0.0 else 0.06), _CLOSED, **turned)]

    return phases


def _rotate(colour, turn_rad):
    def phases(table):
        grasp, place, turned = _grasp(table, colour)
        yaw = turned["yaw"] + turn_rad
        return [*grasp, Phase(place, _CLOSED, yaw=yaw), Phase(place, _OPEN, yaw=yaw)]

    return phases


def _push(colour, side):
    def phases(table):
        begin = _place(table, colour)[0] - _by(x=side * 0.06)
        return [
            Phase(begin + _by(z=0.08), _CLOSED, is_direct=False),
            Phase(begin, _CLOSED),
            Phase(lambda table: _place(table, colour)[0] + _by(x=side * 0.05), _CLOSED),
        ]

    return phases


def _push_into_drawer(table):
    colour = _on_table(table)[0]
    begin = _place(table, colour)[0] + _by(y=0.05)
    return [
        Phase(begin + _by(z=0.08), _CLOSED, is_direct=False),
        Phase(begin, _CLOSED, near_m=0.03),
        Phase(np.array([begin[0], -0.26, begin[2]]), _CLOSED),
    ]


def _place_in_drawer(table):
    place = _INTO_DRAWER - _by(y=_joint(table, "drawer"))
    return [Phase(place, _CLOSED, is_direct=False), Phase(place, _OPEN)]


def _place_in_slider(table):
    side = "right" if _joint(table, "slide") < 0.14 else "left"
    inside = [place for c in _COLOURS if (place := _place(table, c)[0])[1] > 0.04]
    places = [np.array([_INTO_CABINET_M[side] + x, 0.07, 0.48]) for x in (0.0, -0.05, 0.05)]
    place = max(places, key=lambda p: min([0.09, *(abs(p - i)[0] for i in inside)]))
    return [
        Phase(place + _by(y=-0.17, z=0.08), _CLOSED, tilt=_TILT, is_direct=False),
        Phase(place + _by(z=0.02), _CLOSED, tilt=_TILT, near_m=0.03),
        Phase(place, _CLOSED, tilt=_TILT, near_m=0.025),
        Phase(place, _OPEN, tilt=_TILT, near_m=0.03, wait=1),
        Phase(place + _by(y=-0.15, z=0.05), _OPEN, tilt=_TILT),
    ]


def _stack(table):
    below, _ = _place(table, _on_table(table)[0])
    return [
        Phase(below + _by(z=0.10), _CLOSED, near_m=0.01, is_direct=False),
        Phase(below + _by(z=0.043), _CLOSED, near_m=0.01),
        Phase(below + _by(z=0.043), _OPEN),
    ]


def _unstack(table):
    top = max(_COLOURS, key=lambda colour: _height_on_block(table, colour))
    return _lift(top)(table)


def _on_table(table):
    """The blocks, first those on the table in front of the cabinet."""

    def is_elsewhere(colour):
        _, y, z = _place(table, colour)[0]
        return y > 0 or z > 0.48

    return sorted(_COLOURS, key=is_elsewhere)


def _height_on_block(table, colour):
    """How much higher a block is than one that it lies on; 0 if it lies on none."""
    place, _ = _place(table, colour)
    others = [_place(table, other)[0] for other in _COLOURS if other != colour]
    return max((place - o)[2] * (np.linalg.norm((place - o)[:2]) < 0.04) for o in others)


def _of_block(colour):
    return {
        f"rotate_{colour}_block_right": _rotate(colour, -1.3),
        f"rotate_{colour}_block_left": _rotate(colour, 1.3),
        f"push_{colour}_block_right": _push(colour, 1),
        f"push_{colour}_block_left": _push(colour, -1),
        f"lift_{colour}_block_table": _lift(colour),
        f"lift_{colour}_block_drawer": _lift(colour),
        f"lift_{colour}_block_slider": _lift(colour, _TILT),
    }


EXPERTS = {
    **_of_block("red"),
    **_of_block("blue"),
    **_of_block("pink"),
    "move_slider_left": _slider(-0.06),
    "move_slider_right": _slider(0.06),
    "open_drawer": _drawer(0.05),
    "close_drawer": _drawer(-0.05),
    "place_in_slider": _place_in_slider,
    "place_in_drawer": _place_in_drawer,
    "stack_block": _stack,
    "unstack_block": _unstack,
    "turn_on_lightbulb": _switch_up,
    "turn_off_lightbulb": _switch_down,
    "turn_on_led": _press,
    "turn_off_led": _press,
    "push_into_drawer": _push_into_drawer,
}
"""Task -> function(table) that returns the phases."""
