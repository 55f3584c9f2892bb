"""Isaac Lab 3.0 for `rrf_child.batch`. Runs in an interpreter of its own, without rrf."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportArgumentType=false, reportPossiblyUnboundVariable=false

import numpy as np
import torch
import world


class States:
    """See `rrf_child.batch.Batch`."""

    def __init__(
        self,
        task,
        physics,
        overrides,
        clip_actions,
        is_seeded,
        policy_group,
        draws,
        image_size,
        record,
        **how,
    ):
        def change(cfg):
            if policy_group != "policy":
                world.show(cfg, task, policy_group)
            if image_size is not None:
                world.resize(cfg, image_size)
            if record is not None:
                world.record(cfg, record)
            if draws:
                world.add_view(cfg)

        self._env, self._stack = world.make(
            task, physics, overrides, is_seeded, **how, change=change
        )
        with torch.inference_mode():
            observations, _ = self._env.reset(seed=how["seed"])
        if record is not None:
            world.judge_recordings(self._env)
        self._groups = _groups(self._env, observations, task)
        self._clip = clip_actions
        self._command = _velocity_command(self._env)
        self._held = None

    def describe(self):
        env = self._env
        return {
            "num_actions": int(np.prod(env.single_action_space.shape)),
            "num_choices": None,
            "step_s": float(env.step_dt),
            "max_episode_length": int(env.max_episode_length),
            "groups": {
                group: [[term, width] for term, width in terms.items()]
                for group, terms in self._groups.items()
            },
            "has_seeds": True,
            "takes_commands": self._command is not None,
            "robot": self._robot(),
        }

    def reset(self, envs, seeds):
        with torch.inference_mode():
            if seeds is None:
                return self._observed(world.begin(self._env, envs))
            for env, seed in zip(envs, seeds, strict=True):
                observations = world.begin(self._env, [env], seed)
            return self._observed(observations)

    def step(self, actions, lengths):
        env = self._env
        with torch.inference_mode():
            if lengths is not None:
                env.episode_length_buf = torch.from_numpy(lengths).to(env.device)
            taken = torch.from_numpy(actions).to(env.device)
            if self._clip is not None:
                taken = taken.clamp(-self._clip, self._clip)
            observations, rewards, terminated, truncated, extras = env.step(taken)
            ended = (terminated | truncated).nonzero().squeeze(-1)
            if env.cfg.is_finite_horizon:
                terminated, truncated = terminated | truncated, torch.zeros_like(truncated)
            final = {}
            if len(ended):  # what is there otherwise is of an earlier step
                final = self._observed(extras["final_obs"], ended)
            log = extras.get("log", {})
            answer = {
                "observations": self._observed(observations),
                "final": final,
                "rewards": rewards.float().cpu().numpy(),
                "terminated": terminated.cpu().numpy(),
                "truncated": truncated.cpu().numpy(),
                "log": _numbers(log) if len(ended) else {},
            }
            return answer | self._motion()

    def command(self, commands):
        with torch.inference_mode():
            held = torch.from_numpy(commands).to(self._env.device)
            if self._held is None:
                self._hold()
            self._held = held
            self._command.vel_command_b[:] = held
            return self._observed(self._env.observation_manager.compute())

    def set_progress(self, num_steps, seed):
        self._env.common_step_counter = num_steps
        self._env.seed(seed)

    def pictures(self, envs, height, width):
        return world.view(self._env, envs, height, width)

    def close(self):
        self._stack.close()

    def _observed(self, observations, rows=slice(None)):
        """float32 arrays of the groups of states."""
        return {
            name: _joined(observations[name], terms)[rows].float().cpu().numpy()
            for name, terms in self._groups.items()
        }

    def _robot(self):
        robot = self._env.scene.articulations.get("robot")
        if robot is None:
            return {}
        return {"joint_names": list(robot.joint_names), "body_names": list(robot.body_names)}

    def _motion(self):
        """How the robots move, where they follow commands."""
        if self._command is None:
            return {}
        data = self._command.robot.data
        linear, angular = data.root_lin_vel_b.torch, data.root_ang_vel_b.torch
        velocity = torch.cat([linear[:, :2], angular[:, 2:]], 1)
        power = (data.applied_torque.torch * data.joint_vel.torch).abs().sum(1)
        return {
            "velocity": velocity.float().cpu().numpy(),
            "power": power.float().cpu().numpy(),
        }

    def _hold(self):
        """Let nothing but `command` change the commands."""
        term = self._command

        def resample(envs):
            term.vel_command_b[envs] = self._held[envs]

        def update():
            term.vel_command_b[:] = self._held

        term._resample_command, term._update_command = resample, update


def _groups(env, observations, task):
    """Group -> term -> width, of the groups that are states; images are left out."""
    manager = getattr(env, "observation_manager", None)
    groups = {}
    for name, value in observations.items():
        if isinstance(value, dict):
            terms = {term: part.shape[1] for term, part in value.items() if part.ndim == 2}
        elif value.ndim != 2:
            continue
        elif manager is not None and name in manager.active_terms:
            shapes = manager.group_obs_term_dim[name]
            widths = [int(np.prod(shape)) for shape in shapes]
            terms = dict(zip(manager.active_terms[name], widths, strict=True))
        else:
            terms = {name: value.shape[1]}
        if terms:
            groups[name] = {str(term): int(width) for term, width in terms.items()}
    if "policy" not in groups:
        raise ValueError(
            f"{task} shows its policy images, no states: train it with a policy that sees images"
        )
    return groups


def _joined(value, terms):
    return torch.cat([value[term] for term in terms], 1) if isinstance(value, dict) else value


def _velocity_command(env):
    """The term that commands a velocity; None if there is none."""
    manager = getattr(env, "command_manager", None)
    for name in getattr(manager, "active_terms", []):
        term = manager.get_term(name)
        if hasattr(term, "vel_command_b") and hasattr(term, "robot"):
            return term
    return None


def _numbers(log):
    """The finite numbers of a log."""
    values = {name: float(value) for name, value in log.items()}
    return {name: value for name, value in values.items() if np.isfinite(value)}
