"""Scripted experts for ManiSkill's tasks, asked once per action. Runs where `simulator.py` runs.

An expert sees the true places of the objects and remembers nothing. It says where the hand should
go from its present place, in metres, and whether to open the gripper. Nothing turns the hand: it
takes the cubes of 4 cm as they lie, since it opens by 8 cm.
"""

import numpy as np

_STEP_M = 0.1  # what an action of 1 moves the hand by
_GAIN = 0.8
_CLEAR_M = 0.07  # how far above a cube the hand travels
_IS_OVER_M = 0.012
_IS_AT_M = 0.01


def action(task, env):
    """The expert's answer to the present state, float32 [A], each in [-1, 1].

    Raises:
        ValueError: If the task has no expert.
    """
    if task not in EXPERTS:
        raise ValueError(f"{task} has no scripted expert; these have one: {', '.join(EXPERTS)}")
    move, is_open = EXPERTS[task](env, env.agent.tcp.pose.p[0].numpy())
    answer = np.zeros(env.single_action_space.shape[0], np.float32)
    answer[:3] = np.clip(_GAIN * move / _STEP_M, -1.0, 1.0)
    answer[-1] = 1.0 if is_open else -1.0
    return answer


def _pick(env, hand):
    cube = _place(env.cube)
    if not env.agent.is_grasping(env.cube)[0]:
        return _grasp(hand, cube)
    return _place(env.goal_site) - cube, False


def _stack(env, hand):
    cube, below = _place(env.cubeA), _place(env.cubeB)
    offset = cube - below
    is_over = np.linalg.norm(offset[:2]) < _IS_OVER_M
    if is_over and abs(offset[2] - 0.04) < 0.004:  # it stands there: let go, then go up
        return np.array([0.0, 0.0, 0.0 if env.agent.is_grasping(env.cubeA)[0] else 0.03]), True
    if not env.agent.is_grasping(env.cubeA)[0]:
        return _grasp(hand, cube)
    if is_over:
        return np.array([*-offset[:2], 0.04 - offset[2]]), False
    rise = 0.04 + _CLEAR_M - offset[2]
    return np.array([*(-offset[:2] if rise < 0.03 else (0.0, 0.0)), rise]), False


def _push(env, hand):
    return _shove(env, hand, -1.0)


def _pull(env, hand):
    return _shove(env, hand, 1.0)


def _shove(env, hand, side):
    """Move a cube along x with closed fingers, from its side -1 (near the robot) or 1."""
    cube = _place(env.obj)
    contact = cube + np.array([side * 0.05, 0.0, 0.0])
    is_beside = side * (hand[0] - cube[0]) > 0.025 and abs(hand[1] - cube[1]) < 0.015
    if is_beside and hand[2] < 0.04:
        goal = _place(env.goal_region)
        return np.array([goal[0] - cube[0], cube[1] - hand[1], 0.02 - hand[2]]), False
    return _approach(hand, contact), False


def _grasp(hand, cube):
    move = _approach(hand, cube)
    return move, np.linalg.norm(cube - hand) > _IS_AT_M


def _approach(hand, place):
    """Above the place first, then down."""
    move = place - hand
    if np.linalg.norm(move[:2]) < _IS_OVER_M:
        return move
    return move + np.array([0.0, 0.0, _CLEAR_M])


def _place(actor):
    return actor.pose.p[0].numpy()


EXPERTS = {
    "PickCube-v1": _pick,
    "PushCube-v1": _push,
    "PullCube-v1": _pull,
    "StackCube-v1": _stack,
}
