"""Makes an environment of Isaac Lab without Isaac Sim. Runs where `simulator.py` runs.

One process can have one environment only.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportArgumentType=false, reportPossiblyUnboundVariable=false

import contextlib
import copy
import difflib
import logging
import os
import sys
from pathlib import Path

os.environ.setdefault("ISAACSIM_ASSET_ROOT", str(Path(sys.prefix, "assets")))

import gymnasium
import isaaclab_tasks  # noqa: F401 (registers the tasks)
import numpy as np
import torch
from isaaclab.actuators import DCMotorCfg
from isaaclab.app import launch_simulation
from isaaclab.envs.mdp.recorders.recorders_cfg import ActionStateRecorderManagerCfg
from isaaclab.managers import ObservationTermCfg
from isaaclab.sensors import CameraCfg
from isaaclab.sim import PinholeCameraCfg
from isaaclab_newton.renderers import NewtonWarpRendererCfg
from isaaclab_tasks.utils import parse_env_cfg

_LOG = logging.getLogger(__name__)
_VIEW_SIZE = (180, 240)
ENDS = ("terminated", "survived")
"""What `success` can ask for besides the terms of a task's terminations."""
# Networks of actuators are on NVIDIA's server. Where they are not in the asset folder, these motors
# stand in: Isaac Lab's own of Unitree's Go2, and its simple model of ANYmal's drives.
_MOTORS = {
    "Unitree": {
        **{"effort_limit": 23.5, "saturation_effort": 23.5, "velocity_limit": 30.0},
        **{"stiffness": 25.0, "damping": 0.5},
    },
    "ANYbotics": {
        **{"effort_limit": 80.0, "saturation_effort": 120.0, "velocity_limit": 7.5},
        **{"stiffness": 40.0, "damping": 5.0},
    },
}


def make(task, physics, overrides, is_seeded, num_envs, seed, device, change=lambda cfg: None):
    """An environment that was not reset yet, and what closes the simulator.

    Args:
        physics: Isaac Lab's preset of the physics.
        overrides: Dotted path -> value; None removes a term.
        is_seeded: Whether an episode is a function of its seed alone.
        change: Called with Isaac Lab's config before the environment is made.
    """
    if task not in gymnasium.registry:
        near = difflib.get_close_matches(task, gymnasium.registry, 1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise ValueError(f"Isaac Lab has no task '{task}'{hint}")
    try:
        cfg = parse_env_cfg(
            task, device=device, num_envs=num_envs, overrides=[f"physics={physics}"]
        )
    except (KeyError, ValueError) as error:
        raise ValueError(f"{task}: physics={physics}: {error}") from error
    cfg.seed = seed
    if not hasattr(cfg, "compute_final_obs") or hasattr(cfg, "possible_agents"):
        raise ValueError(f"{task} has several agents, for which there is no policy here")
    cfg.compute_final_obs = True
    _replace_missing_networks(cfg)
    for path, value in overrides.items():
        _override(cfg, task, path, value)
    if is_seeded:
        cfg.scene.env_spacing = 0.0
        for name, term in list(vars(getattr(cfg, "events", None) or object).items()):
            if getattr(term, "mode", None) in ("startup", "prestartup"):
                setattr(cfg.events, name, None)
    change(cfg)
    stack = contextlib.ExitStack()
    try:
        stack.enter_context(launch_simulation(cfg, {"device": device, "visualizer": "none"}))
        env = gymnasium.make(task, cfg=cfg).unwrapped
        stack.callback(env.close)
    except FileNotFoundError as error:
        stack.close()
        raise ValueError(
            f"{task} needs an asset that is not in {os.environ['ISAACSIM_ASSET_ROOT']}: {error}. "
            "Set ISAACSIM_ASSET_ROOT to a copy of Isaac Sim's assets"
        ) from error
    except BaseException:
        stack.close()
        raise
    return env, stack


def show(cfg, task, group):
    """Show the policy another group of observations."""
    groups = [name for name, value in vars(cfg.observations).items() if value is not None]
    if group not in groups:
        raise ValueError(f"{task} has no observations '{group}'; it has {', '.join(groups)}")
    cfg.observations.policy = copy.deepcopy(getattr(cfg.observations, group))


def calm(cfg):
    """Let nothing random happen within an episode, and show every term of the policy by itself."""
    for group in vars(cfg.observations).values():
        if group is not None:
            group.enable_corruption = False
    cfg.observations.policy.concatenate_terms = False
    for name, term in list(vars(getattr(cfg, "events", None) or object).items()):
        if getattr(term, "mode", None) == "interval":
            setattr(cfg.events, name, None)


def begin(env, envs, seed=None):
    """Begin new episodes in some environments; the observations of all of them."""
    ids = torch.tensor(envs, dtype=torch.int64, device=env.device)
    if hasattr(env, "observation_manager"):
        return env.reset(env_ids=ids, seed=seed)[0]
    if seed is not None:
        env.seed(seed)
    env._reset_idx(ids.int())
    env.scene.write_data_to_sim()
    env.sim.forward()
    env.obs_buf = env._compute_observations()
    return env.obs_buf


_TARGETS = ("joint_pos_target", "joint_vel_target", "joint_effort_target")


def kept(env):
    """What `put_back` needs of all environments: positions and velocities, what the actuators were
    told, the actions before, and the lengths of the episodes."""
    targets = {
        name: [getattr(robot.data, target).torch.clone() for target in _TARGETS]
        for name, robot in env.scene.articulations.items()
    }
    manager = env.action_manager
    actions = manager._action.clone(), manager._prev_action.clone()
    return copy.deepcopy(env.scene.get_state()), targets, actions, env.episode_length_buf.clone()


def put_back(env, before, envs):
    """Put some environments back to where they were when `kept` was called."""
    state, targets, actions, lengths = before
    ids = torch.as_tensor(envs, dtype=torch.int64, device=env.device)
    env.scene.reset_to(_rows(state, ids), ids.int())
    for name, robot in env.scene.articulations.items():
        position, velocity, effort = (values[ids] for values in targets[name])
        robot.set_joint_position_target_index(target=position, env_ids=ids.int())
        robot.set_joint_velocity_target_index(target=velocity, env_ids=ids.int())
        robot.set_joint_effort_target_index(target=effort, env_ids=ids.int())
    env.scene.write_data_to_sim()
    env.sim.forward()
    env.action_manager._action[ids], env.action_manager._prev_action[ids] = (
        values[ids] for values in actions
    )
    env.episode_length_buf[ids] = lengths[ids]
    env.obs_buf = env.observation_manager.compute()


def _rows(tree, ids):
    if isinstance(tree, dict):
        return {key: _rows(value, ids) for key, value in tree.items()}
    return tree[ids]


def cameras(cfg):
    """Name -> config of the cameras in a scene."""
    return {name: part for name, part in vars(cfg.scene).items() if isinstance(part, CameraCfg)}


def resize(cfg, size):
    """Give all cameras pictures of `size` x `size` pixels."""
    for camera in cameras(cfg).values():
        camera.width = camera.height = size


def record(cfg, file):
    """Let Isaac Lab's recorder write every episode into a file, with what its cameras see.

    Where the task shows its policy images, the states that it shows a critic are recorded.
    """
    file = Path(file)
    if file.exists():
        raise ValueError(f"{file} is there already; remove it, or name another file")
    cfg.recorders = ActionStateRecorderManagerCfg()
    cfg.recorders.dataset_export_dir_path = str(file.parent)
    cfg.recorders.dataset_filename = file.stem
    if any(_is_image(term) for term in vars(cfg.observations.policy).values()):
        show(cfg, "the task", "critic")
    policy = cfg.observations.policy
    policy.concatenate_terms = False
    for name in cameras(cfg):
        setattr(policy, name, ObservationTermCfg(func=pixels, params={"camera": name}))


def _is_image(term):
    return isinstance(term, ObservationTermCfg) and "data_type" in (term.params or {})


def judge_recordings(env):
    """Let the recorder write as `success` of an episode that its time limit ended it."""
    if "success" in env.termination_manager.active_terms:
        return  # Isaac Lab does it
    recorder = env.recorder_manager
    judge = recorder.set_success_to_episodes

    def set_success(envs, values):
        judge(envs, values | env.termination_manager.time_outs[envs].reshape(values.shape))

    recorder.set_success_to_episodes = set_success


def pixels(env, camera):
    """What a camera of the scene sees, uint8 [N, H, W, 3]."""
    seen = env.scene.sensors[camera].data.output["rgb"]
    return getattr(seen, "torch", seen)[..., :3].clone()


def add_view(cfg):
    """Add a camera that follows the robot, for videos."""
    cfg.scene.rrf_view = CameraCfg(
        prim_path="{ENV_REGEX_NS}/rrf_view",
        update_period=0.0,
        data_types=["rgb"],
        width=_VIEW_SIZE[1],
        height=_VIEW_SIZE[0],
        spawn=PinholeCameraCfg(focal_length=24.0, clipping_range=(0.05, 50.0)),
        renderer_cfg=NewtonWarpRendererCfg(),
    )


def view(env, envs, height, width):
    """What the camera of `add_view` sees in some environments, uint8 [K, height, width, 3]."""
    camera = env.scene.sensors.get("rrf_view")
    if camera is None:
        raise ValueError("this scene has no camera for pictures; set env.draws=true")
    robot = next(iter(env.scene.articulations.values()))
    with torch.inference_mode():
        target = robot.data.root_pos_w.torch.clone()
        size = 1.0 if robot.is_fixed_base else 0.45
        eye = target + size * torch.tensor([3.0, -3.0, 1.5], device=env.device)
        camera.set_world_poses_from_view(eye, target)
        camera.update(0.0, force_recompute=True)
        seen = pixels(env, "rrf_view")[envs].cpu().numpy()
    return np.stack([_fitted(picture, height, width) for picture in seen])


def _fitted(picture, height, width):
    """A picture in another size, with its middle in the middle."""
    from PIL import Image, ImageOps

    return np.asarray(ImageOps.fit(Image.fromarray(picture), (width, height)))


def _override(cfg, task, path, value):
    """Set a field of a config by its dotted path."""
    *parents, name = path.split(".")
    place, walked = cfg, []
    for part in [*parents, name]:
        known = list(place) if isinstance(place, dict) else list(vars(place))
        if part not in known:
            where = ".".join(walked) or "the config"
            near = difflib.get_close_matches(part, known, 1)
            hint = f"; did you mean '{near[0]}'?" if near else f"; it has {', '.join(known)}"
            raise ValueError(f"{task}: {where} has no '{part}' (overrides: {path}){hint}")
        if len(walked) < len(parents):
            place = place[part] if isinstance(place, dict) else getattr(place, part)
        walked.append(part)
    if isinstance(value, list) and isinstance(_get(place, name), tuple):
        value = tuple(value)
    if isinstance(place, dict):
        place[name] = value
    else:
        setattr(place, name, value)


def _get(place, name):
    return place[name] if isinstance(place, dict) else getattr(place, name)


def _replace_missing_networks(cfg):
    for name, asset in vars(cfg.scene).items():
        actuators = getattr(asset, "actuators", None)
        if not isinstance(actuators, dict):
            continue
        for key, actuator in actuators.items():
            file = getattr(actuator, "network_file", None)
            if not isinstance(file, str) or Path(file).is_file():
                continue
            maker = next(
                (m for m in _MOTORS if f"/{m}/" in file or f"/{m}/" in asset.spawn.usd_path), None
            )
            if maker is None:
                raise ValueError(f"scene.{name} needs the actuator network {file}")
            actuators[key] = DCMotorCfg(
                joint_names_expr=actuator.joint_names_expr, friction=0.0, **_MOTORS[maker]
            )
            _LOG.warning("%s is not there: a DC motor stands in for the actuator network", file)
