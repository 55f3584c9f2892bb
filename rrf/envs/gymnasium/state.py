"""What determines how a Gymnasium environment continues, as tensors and plain data.

For MuJoCo this is the integration state (time, positions, velocities, activations, solver warm
start) and the positions of bodies and centres of mass. These positions lag one physics step behind,
and Ant and Humanoid compute their next velocity from them. For classic control it is the attribute
`state`. In both cases the environment's random generator belongs to it. All this is known for
Gymnasium's own environments only. What other environments keep is unknown.
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
    """Whether `save` covers everything that this environment keeps from step to step."""
    is_bare = env.unwrapped is env
    return is_bare and type(env.unwrapped).__module__.startswith(_PACKAGES)


def save(envs: Sequence[gymnasium.Env]) -> EnvState:
    """The state of `envs`, copies of one task for which `can_save` holds."""
    bare = [env.unwrapped for env in envs]
    kept = [_env_state(env) for env in bare]
    tensors = {}
    for name in kept[0]:
        values: list[typing.Any] = [of_env.get(name) for of_env in kept]
        if _are_alike(values):
            tensors[name] = torch.from_numpy(np.stack(values))
    attributes = [
        {name: _plain(value) for name, value in of_env.items() if name not in tensors}
        for of_env in kept
    ]
    generators = [copy.deepcopy(env.np_random.bit_generator.state) for env in bare]
    return EnvState(tensors, {"attributes": attributes, "generators": generators})


def _env_state(env: typing.Any) -> dict[str, typing.Any]:
    kept = {name: vars(env)[name] for name in _CARRIED if name in vars(env)}
    if isinstance(env, MujocoEnv):
        physics = np.empty(mujoco.mj_stateSize(env.model, _PHYSICS))
        mujoco.mj_getState(env.model, env.data, physics, _PHYSICS)
        kept |= {"physics": physics} | {name: getattr(env.data, name) for name in _LAGGING}
    return kept


def _are_alike(values: Sequence[typing.Any]) -> bool:
    """Whether all values are arrays of one dtype and shape.

    MountainCar's state is an array after a reset and a tuple after a step. The state of
    MountainCarContinuous changes its dtype.
    """
    kinds = {(v.dtype, v.shape) if isinstance(v, np.ndarray) else None for v in values}
    return len(kinds) == 1 and None not in kinds


def load(envs: Sequence[gymnasium.Env], state: EnvState) -> None:
    """Restore in `envs` the state that `save` returned."""
    arrays = {name: tensor.cpu().numpy() for name, tensor in state.tensors.items()}
    for index, env in enumerate(envs):
        bare: typing.Any = env.unwrapped
        of_env = {name: values[index].copy() for name, values in arrays.items()}
        if isinstance(bare, MujocoEnv):
            _load_physics(bare, of_env)
        attributes = state.facts["attributes"][index]
        vars(bare).update(of_env | {name: _restored(v) for name, v in attributes.items()})
        bare.np_random.bit_generator.state = state.facts["generators"][index]


def _load_physics(env: MujocoEnv, arrays: dict[str, np.ndarray]) -> None:
    """Set an environment's MjData from `arrays` and remove the used entries from `arrays`."""
    physics = arrays.pop("physics")
    mujoco.mj_setState(env.model, env.data, physics, _PHYSICS)
    mujoco.mj_forward(env.model, env.data)  # drawing needs this; it spoils the warm start
    mujoco.mj_setState(env.model, env.data, physics, _PHYSICS)
    for name in _LAGGING:
        getattr(env.data, name)[:] = arrays.pop(name)


def _plain(value: typing.Any) -> typing.Any:
    """`value` as JSON data; NumPy values and tuples are stored with their type."""
    if isinstance(value, np.ndarray | np.generic):
        return {"values": value.tolist(), "dtype": value.dtype.str}
    return {"tuple": [_plain(item) for item in value]} if isinstance(value, tuple) else value


def _restored(plain: typing.Any) -> typing.Any:
    """The inverse of `_plain`."""
    if not isinstance(plain, dict):
        return plain
    if "tuple" in plain:
        return tuple(_restored(item) for item in plain["tuple"])
    return np.array(plain["values"], plain["dtype"])[()]
