"""Scripted experts for robosuite's tasks, asked once per action. Runs where `simulator.py` runs.

An expert sees the true places of the objects. It remembers nothing: what it does next follows from
where hand and objects are. The hand points down. It turns only to open the door, which therefore
needs OSC_POSE.

Each expert answers where the hand should be (x, y, z in metres, in the frame of the world, whose
axes are those of the robot's base), its yaw, and the gripper's command. All numbers were chosen on
initial states of seed 5. Of the first 30 of these, with `action_repeat` 2 and 60 actions (100 for
Can and Bread), Lift, Stack and Door are solved in 30, 29 and 30, Bread in 25 and Can in 23.
"""

import numpy as np

_REACH_M = 0.05  # how far an action of 1 moves the controller's goal
_TURN_RAD = 0.5  # how far it turns it
_ACROSS = np.pi / 2  # yaw, from where the fingers open to the robot's sides
_UP = np.array([0.0, 0.0, 1.0])
_OPEN, _CLOSE = -1.0, 1.0
_ABOVE_M = 0.08  # how high the hand travels over what it will grasp
_NEAR_M = 0.015  # how exactly it stands over it before it goes down
_TURNED_RAD = 1.3  # of the handle: now the door can be pulled open
_AJAR_RAD = 0.05  # of the door: now the handle may turn back


def action(task, env, can_turn):
    """The expert's answer to the present state.

    Args:
        task: A key of `EXPERTS`.
        env: The environment of robosuite.
        can_turn: Whether the controller is OSC_POSE.

    Returns:
        float32 [4] or, if it can turn, [7], each in [-1, 1]; see `RobosuiteCfg`.

    Raises:
        ValueError: If the task has no expert, or needs a hand that turns.
    """
    if task not in EXPERTS:
        raise ValueError(f"{task} has no scripted expert; these have one: {', '.join(EXPERTS)}")
    if task == "Door" and not can_turn:
        raise ValueError("the expert of Door turns the hand; set controller=OSC_POSE")
    goal, yaw, gripper = EXPERTS[task](env)
    command = [(goal - _hand(env)) / _REACH_M]
    if can_turn:
        command.append(_turn_to(yaw, env) / _TURN_RAD)
    return np.clip(np.concatenate([*command, [gripper]]), -1.0, 1.0).astype(np.float32)


def _lift(env):
    cube = env.sim.data.body_xpos[env.cube_body_id]
    if _holds(env, env.cube):
        return cube + 0.1 * _UP, 0.0, _CLOSE
    return _grasp(env, cube)


def _stack(env):
    places = env.sim.data.body_xpos
    cube = places[env.cubeA_body_id]
    off = places[env.cubeB_body_id] + 0.045 * _UP - cube
    is_there = np.linalg.norm(off[:2]) < 0.015 and abs(off[2]) < 0.006
    return _put(env, env.cubeA, cube, off, is_there, 0.08)


def _bin(env):
    """Let go over the bin: at its far side the arm cannot go down with the hand upright."""
    thing = env.objects[env.object_id]
    place = env.sim.data.body_xpos[env.obj_body_id[thing.name]]
    off = env.target_bin_placements[env.object_id] + 0.06 * _UP - place
    is_there = np.linalg.norm(off[:2]) < 0.05
    return _put(env, thing, place, off, is_there, 0.17)


def _put(env, thing, place, off, is_there, over_m):
    """Grasp a thing at a place, carry it by `off`, up, across and then down, and let go of it."""
    hand, is_held = _hand(env), _holds(env, thing)
    if is_there:
        return hand + (0.0 if is_held else 0.1) * _UP, 0.0, _OPEN
    if not is_held:
        return _grasp(env, place)
    if np.linalg.norm(off[:2]) > 0.01:
        up = off[2] + over_m
        off = np.array([*off[:2], up]) if up < 0.03 else up * _UP
    return hand + off, 0.0, _CLOSE


def _door(env):
    """Go down behind the handle with closed fingers, so that the palm turns it; then pull."""
    data, hand = env.sim.data, _hand(env)
    along, inwards, _ = data.body_xmat[env.object_body_ids["door"]].reshape(3, 3).T
    handle, hinge = data.qpos[env.handle_qpos_addr], data.qpos[env.hinge_qpos_addr]
    if hinge > _AJAR_RAD or handle > _TURNED_RAD:
        return hand - 0.1 * inwards, _ACROSS, _CLOSE
    behind = env._handle_xpos + 0.04 * along + 0.037 * inwards
    off = behind - hand
    is_behind = abs(off @ inwards) < 0.03
    if is_behind if off[2] > -0.03 else np.linalg.norm(off[:2]) < 0.01:
        return behind - 0.08 * _UP, _ACROSS, _CLOSE
    is_high = off[2] < -0.05
    return np.array([*(behind if is_high else hand)[:2], behind[2] + 0.07]), _ACROSS, _CLOSE


def _grasp(env, place):
    """Move over a place, go down and close the gripper there."""
    hand = _hand(env)
    if np.linalg.norm((hand - place)[:2]) > _NEAR_M:
        return np.array([place[0], place[1], max(place[2] + _ABOVE_M, hand[2] - 0.05)]), 0.0, _OPEN
    is_down = hand[2] < place[2] + 0.01
    return np.asarray(place), 0.0, _CLOSE if is_down else _OPEN


def _hand(env):
    return env.sim.data.site_xpos[env.robots[0].eef_site_id["right"]]


def _holds(env, thing):
    return env._check_grasp(gripper=env.robots[0].gripper["right"], object_geoms=thing)


def _turn_to(yaw, env):
    """The rotation that brings the hand to a yaw, fingers down, as a vector in radians."""
    current = env.sim.data.site_xmat[env.robots[0].eef_site_id["right"]].reshape(3, 3)
    c, s = np.cos(yaw), np.sin(yaw)
    wanted = np.array([[-s, c, 0.0], [c, s, 0.0], [0.0, 0.0, -1.0]])
    off = wanted @ current.T
    axis = np.array([off[2, 1] - off[1, 2], off[0, 2] - off[2, 0], off[1, 0] - off[0, 1]]) / 2
    sine, cosine = np.linalg.norm(axis), (np.trace(off) - 1) / 2
    return axis * np.arctan2(sine, cosine) / max(sine, 1e-9)


EXPERTS = {"Lift": _lift, "Stack": _stack, "Can": _bin, "Bread": _bin, "Door": _door}
