"""What a policy must know about a robot of mjlab, under the names in mjlab's ONNX files."""

import math
import typing

import torch


def robot_metadata(env: typing.Any) -> dict[str, typing.Any]:
    """Plain data about an mjlab environment. Values per joint are in the order of the joints.

    The robot is the entity that the first action acts on.
    """
    actions = env.action_manager
    action = actions.get_term(actions.active_terms[0])
    robot = action._entity
    driven = {a.target.rpartition("/")[2]: a.id for a in robot.spec.actuators}
    ids = [driven[name] for name in robot.joint_names if name in driven]
    model, scale = env.sim.mj_model, getattr(action, "scale", 1.0)
    around = getattr(action, "around", None)  # of `tracking_terms.ReferenceAction`
    return {
        "joint_names": list(robot.joint_names),
        "joint_stiffness": model.actuator_gainprm[ids, 0].tolist(),
        "joint_damping": (-model.actuator_biasprm[ids, 2]).tolist(),
        "default_joint_pos": robot.data.default_joint_pos[0].tolist(),
        "command_names": list(env.command_manager.active_terms),
        **_actor_terms(env.observation_manager),
        "action_scale": scale[0].tolist() if isinstance(scale, torch.Tensor) else scale,
        **({"actions_around": around} if around else {}),
    }


def observation_terms(manager: typing.Any) -> dict[str, dict[str, int]]:
    """The widths of the terms of an observation manager of mjlab, group -> term -> width."""
    return {
        group: {
            name: math.prod(shape)
            for name, shape in zip(names, manager.group_obs_term_dim[group], strict=True)
        }
        for group, names in manager.active_terms.items()
    }


def _actor_terms(manager: typing.Any) -> dict[str, list]:
    group = "actor" if "actor" in manager.active_terms else next(iter(manager.active_terms))
    names = list(manager.active_terms[group])
    terms = [manager.get_term_cfg(group, name) for name in names]
    return {
        "observation_names": names,
        "observation_terms_scale": [1.0 if t.scale is None else _plain(t.scale) for t in terms],
        "observation_terms_flatten_history_dim": [t.flatten_history_dim for t in terms],
        "observation_terms_history_length": [t.history_length for t in terms],
        "observation_terms_clip": [list(t.clip or (-math.inf, math.inf)) for t in terms],
    }


def _plain(value: typing.Any) -> typing.Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value
