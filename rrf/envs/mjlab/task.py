"""Makes the task of mjlab that `MjlabEnvCfg` describes: finds it, applies overrides, and makes it
faster if asked.
"""

import contextlib
import copy
import dataclasses
import io
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

from rrf.config import did_you_mean
from rrf.envs.mjlab.configs import MjlabEnvCfg
from rrf.lookup import require

_OWN_FIELDS = {
    "scene.num_envs": "num_envs",
    "seed": "seed",
    "auto_reset": None,
    "decimation": "physics",
}
_FAST = {"sim.mujoco.cone": "pyramidal", "sim.mujoco.impratio": 1.0}
_FAST_CONDIM = 3  # contacts only slide; with 4 and 6 dimensions they also twist and roll
_LONGEST = 200  # limit for a value in a message, in characters
_COUNT_SUBSTEPS = ("self_collision_cost",)


def task_config(cfg: MjlabEnvCfg, seed: int, given: typing.Any = None) -> typing.Any:
    """mjlab's `ManagerBasedRlEnvCfg` of the task.

    Args:
        given: The config to use instead of looking up the task's name.

    Raises:
        ImportError: If mjlab is not installed, with the command that installs it.
        ValueError: For an unknown task or path (the message names the closest known one); for a
            motion tracking task without a motion file; for `physics: fast` if a step cannot be
            halved or if an override changes what it sets; for `play` of a given config; for
            recorders.
    """
    require("mjlab", extra="locomotion")
    if given is not None and cfg.play:
        raise ValueError(
            f"play selects the variant for watching of mjlab's own tasks, but '{cfg.task}' has its "
            "own config. Leave play out, and use overrides to change the task for watching"
        )
    with quiet():
        task = copy.deepcopy(given) if given is not None else registered(cfg.task, cfg.play)
    apply_overrides(task, cfg.overrides)
    if task.episode_length_s <= 0:
        raise ValueError(f"episode_length_s is {task.episode_length_s}, allowed: above 0")
    if cfg.physics == "fast":
        _make_fast(task, cfg.task, cfg.overrides)
    _check_motion_files(task)
    check_recorders([name for name, term in task.recorders.items() if term is not None])
    task.scene.num_envs = cfg.num_envs
    task.seed = seed % 2**32  # the range that NumPy takes
    task.auto_reset = False
    return task


def registered(name: str, play: bool) -> typing.Any:
    """A copy of mjlab's config of the task `name`; `play` selects its variant for watching.

    Raises:
        ImportError: If mjlab is not installed, with the command that installs it.
        ValueError: For an unknown task; the message names the closest known one.
    """
    require("mjlab", extra="locomotion")
    import mjlab.tasks  # noqa: F401, registers the tasks
    from mjlab.tasks.registry import list_tasks, load_env_cfg

    if name not in list_tasks():
        raise ValueError(f"mjlab has no task '{name}'{did_you_mean(name, list_tasks())}")
    return load_env_cfg(name, play=play)


@contextlib.contextmanager
def quiet() -> typing.Iterator[None]:
    """Hide the tables that mjlab and warp print while they start."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def apply_overrides(task: typing.Any, changes: Mapping[str, typing.Any]) -> None:
    """Set dotted paths of mjlab's config; null removes an entry of a dict or tuple.

    A path goes through attributes, keys of dicts, and names or indices of tuples
    ("scene.sensors.feet_ground_contact.num_slots").

    Raises:
        ValueError: For an unknown path, or a value of another type than the one it replaces.
    """
    for path, value in changes.items():
        if path in _OWN_FIELDS:
            field = _OWN_FIELDS[path]
            instead = f"set '{field}' of the environment instead" if field else "it is set by rrf"
            raise ValueError(f"'{path}' cannot be overridden; {instead}")
        *parents, leaf = path.split(".")
        node = holder = task
        for depth, name in enumerate(parents):
            holder, node = node, _child(node, name, ".".join(parents[: depth + 1]))
        if isinstance(node, tuple) and value is None:
            removed = _key(node, leaf, path)
            value = [item for index, item in enumerate(node) if index != removed]
            node, leaf = holder, parents[-1]
        _assign(node, leaf, value, path)


def _names(node: typing.Any) -> list[str]:
    if isinstance(node, Mapping):
        return [str(key) for key in node]
    if isinstance(node, list | tuple):
        return [str(getattr(item, "name", index)) for index, item in enumerate(node)]
    if dataclasses.is_dataclass(node):
        return [field.name for field in dataclasses.fields(node)]
    return []


def _key(node: typing.Any, name: str, path: str) -> typing.Any:
    names = _names(node)
    if not names:
        raise ValueError(f"'{path}' goes into a plain value, which has no fields")
    if name not in names:
        raise ValueError(f"mjlab's config has no '{path}'{did_you_mean(name, names)}")
    if isinstance(node, Mapping):
        return next(key for key in node if str(key) == name)
    return names.index(name) if isinstance(node, list | tuple) else name


def _child(node: typing.Any, name: str, path: str) -> typing.Any:
    key = _key(node, name, path)
    return getattr(node, key) if dataclasses.is_dataclass(node) else node[key]


def _assign(node: typing.Any, name: str, value: typing.Any, path: str) -> None:
    key = _key(node, name, path)
    if value is None and isinstance(node, dict):
        del node[key]
        return
    if isinstance(node, tuple):
        raise ValueError(f"'{path}' is an entry of a tuple; set its fields or the whole tuple")
    old = getattr(node, key) if dataclasses.is_dataclass(node) else node[key]
    if value is None and old is not None and not _may_be_none(node, name):
        raise ValueError(f"'{path}' is {_shortened(old)} and cannot be null; give it a value")
    new = _converted(old, value, path)
    if dataclasses.is_dataclass(node):
        setattr(node, key, new)
    else:
        node[key] = new


def _may_be_none(node: typing.Any, name: str) -> bool:
    """Whether None is allowed, by the declared type of a dataclass field. Lists may hold it."""
    if not dataclasses.is_dataclass(node):
        return True
    kind = type(node)
    return type(None) in typing.get_args(typing.get_type_hints(kind)[name])


def _shortened(value: typing.Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _converted(old: typing.Any, value: typing.Any, path: str) -> typing.Any:
    """`value` in the type of the value it replaces, as far as plain data can express that type."""
    if old is None or value is None:
        return value
    if isinstance(old, bool) or isinstance(value, bool):
        fits = isinstance(old, bool) and isinstance(value, bool)
    elif isinstance(old, float | int):
        fits = isinstance(value, float | int)
    elif isinstance(old, list | tuple):
        fits = isinstance(value, list | tuple)
    else:
        fits = isinstance(old, str | dict) and isinstance(value, type(old))
    if not fits:
        raise ValueError(
            f"'{path}' is {_shortened(old)} ({type(old).__name__}); {value!r} cannot replace it"
        )
    if isinstance(old, float | list | tuple):
        kind: typing.Any = type(old)
        return kind(value)
    return value


def _make_fast(task: typing.Any, name: str, overrides: Mapping[str, typing.Any]) -> None:
    """Set pyramidal friction cones without torsional and rolling friction, and half as many steps
    of twice the length.

    Stepping Go1 then costs about a quarter of the time, and contacts slide a little more. Rewards
    that count substeps get double weight. `docs/benchmarks` measures how a policy that was trained
    this way does on exact physics.
    """
    for path, value in _FAST.items():
        if overrides.get(path, value) != value:
            raise ValueError(
                f"physics=fast sets '{path}' to {value!r}, but an override sets it to "
                f"{overrides[path]!r}; leave that override out, or use physics=exact"
            )
    for path, value in overrides.items():
        condims = value.values() if isinstance(value, Mapping) else [value]
        if "condim" in path.split(".") and any(condim > _FAST_CONDIM for condim in condims):
            raise ValueError(
                f"physics=fast has contacts of {_FAST_CONDIM} dimensions at most, but an override "
                f"sets '{path}' to {value!r}; leave that override out, or use physics=exact"
            )
    if task.decimation % 2:
        raise ValueError(
            f"physics=fast cannot halve the {task.decimation} substeps of '{name}', an odd number; "
            "use physics=exact"
        )
    mujoco = task.sim.mujoco
    apply_overrides(task, _FAST)
    mujoco.timestep *= 2
    before, task.decimation = task.decimation, task.decimation // 2
    for sensor in task.scene.sensors:
        if getattr(sensor, "history_length", 0) == before:  # it covers one control step
            sensor.history_length = task.decimation
            _weigh_counts(task.rewards, sensor.name, before / task.decimation)
    for entity in task.scene.entities.values():
        entity.collisions = tuple(_sliding_only(collision) for collision in entity.collisions)
        actuators = entity.articulation.actuators if entity.articulation else ()
        if any(actuator.delay_max_lag for actuator in actuators):
            raise ValueError(
                f"the actuators of '{name}' have delays counted in substeps, which physics=fast "
                "would double; use physics=exact"
            )


def _weigh_counts(rewards: Mapping[str, typing.Any], sensor: str, factor: float) -> None:
    """Scale the rewards that count the substeps in which `sensor` has a contact."""
    for term in filter(None, rewards.values()):
        counts = getattr(term.func, "__name__", "") in _COUNT_SUBSTEPS
        if counts and term.params.get("sensor_name") == sensor:
            term.weight *= factor


def _sliding_only(collision: typing.Any) -> typing.Any:
    """mjlab's `CollisionCfg` with contacts that slide and do not twist or roll."""
    condim = collision.condim
    if isinstance(condim, dict):
        condim = {pattern: min(number, _FAST_CONDIM) for pattern, number in condim.items()}
    else:
        condim = min(condim, _FAST_CONDIM)
    return dataclasses.replace(collision, condim=condim)


def check_recorders(names: Sequence[str]) -> None:
    """Refuse recorders.

    Raises:
        ValueError: If there are any.
    """
    if names:
        raise ValueError(
            f"mjlab's recorder '{names[0]}' would not be told when episodes end, because rrf "
            f"resets ended environments; remove it by overrides: {{'recorders.{names[0]}': null}}"
        )


def _check_motion_files(task: typing.Any) -> None:
    for name, command in task.commands.items():
        file = getattr(command, "motion_file", None)
        if file is not None and not Path(file or ".").is_file():
            raise ValueError(
                f"command '{name}' tracks a motion, but there is no file '{file}'; set it by "
                f"overrides: {{'commands.{name}.motion_file': '/path/to/motion.npz'}}"
            )
