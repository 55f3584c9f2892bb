"""What decides how a Gymnasium environment goes on, as tensors and plain data.

For MuJoCo that is its integration state (time, positions, velocities, activations, solver warm
start), and the body and centre-of-mass positions, which lag one physics step behind and from which
Ant and Humanoid measure their next velocity; for classic control its `state`. With either goes the
environment's random generator. It is known for Gymnasium's own environments only; of others
nobody can tell what they keep.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import copy
import typing
from collections.abc import Sequence

import gymnasium
import mujoco
import numpy as np
import torch
from gymnasium.envs.mujoco import MujocoEnv

from rrf.envs.control_env import EnvState

_PHYSICS = mujoco.mjtState.mjSTATE_INTEGRATION
_LAGGING = ("xpos", "xipos")
_PACKAGES = ("gymnasium.envs.mujoco.", "gymnasium.envs.classic_control.")
_CARRIED = (
    *("state", "steps_beyond_terminated", "last_u"),  # classic control
    *("goal", "goal_pos", "cylinder_pos", "init_qpos", "init_qvel"),  # MuJoCo; Pusher edits them
)


def can_save(env: gymnasium.Env) -> bool:
    """Whether `save` knows all that this environment keeps from step to step."""
    is_bare = env.unwrapped is env
    return is_bare and type(env.unwrapped).__module__.startswith(_PACKAGES)


def save(envs: Sequence[gymnasium.Env]) -> EnvState:
    """The state of `envs`, copies of one task for which `can_save` holds."""
    bare = [env.unwrapped for env in envs]
    arrays: dict[str, list[np.ndarray]] = {}
    attributes = []
    for env in bare:
        kept = {name: vars(env)[name] for name in _CARRIED if name in vars(env)}
        if isinstance(env, MujocoEnv):
            physics = np.empty(mujoco.mj_stateSize(env.model, _PHYSICS))
            mujoco.mj_getState(env.model, env.data, physics, _PHYSICS)
            kept |= {"physics": physics} | {name: getattr(env.data, name) for name in _LAGGING}
        plain = {}
        for name, value in kept.items():
            if isinstance(value, np.ndarray):
                arrays.setdefault(name, []).append(value)
            else:
                plain[name] = _plain(value)
        attributes.append(plain)
    tensors = {name: torch.from_numpy(np.stack(values)) for name, values in arrays.items()}
    generators = [copy.deepcopy(env.np_random.bit_generator.state) for env in bare]
    return EnvState(tensors, {"attributes": attributes, "generators": generators})


def load(envs: Sequence[gymnasium.Env], state: EnvState) -> None:
    """Bring `envs` to what `save` saw."""
    arrays = {name: tensor.cpu().numpy() for name, tensor in state.tensors.items()}
    for index, env in enumerate(envs):
        bare: typing.Any = env.unwrapped
        of_env = {name: values[index].copy() for name, values in arrays.items()}
        if isinstance(bare, MujocoEnv):
            _load_physics(bare, of_env)
        vars(bare).update(of_env | state.facts["attributes"][index])
        bare.np_random.bit_generator.state = state.facts["generators"][index]


def _load_physics(env: MujocoEnv, arrays: dict[str, np.ndarray]) -> None:
    """Set an environment's MjData from the entries of `arrays` that belong there; they are taken
    out.
    """
    physics = arrays.pop("physics")
    mujoco.mj_setState(env.model, env.data, physics, _PHYSICS)
    mujoco.mj_forward(env.model, env.data)  # for whoever draws it; it spoils the warm start
    mujoco.mj_setState(env.model, env.data, physics, _PHYSICS)
    for name in _LAGGING:
        getattr(env.data, name)[:] = arrays.pop(name)


def _plain(value) -> typing.Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
