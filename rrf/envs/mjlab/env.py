"""mjlab's tasks as a `ControlEnv`: on a GPU mjlab itself, on a CPU its terms over native MuJoCo.

An episode's end is taken apart as mjlab does with `auto_reset=False`: a step shows every
environment as it ended, then the ended ones are reset and shown again. The first of the two is
`extras["final_obs"]`.

Legend: N environments, A width of an action, K ended episodes.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import contextlib
import typing
from collections.abc import Callable, Iterator, Sequence

import mujoco
import torch
from tensordict import TensorDict

from rrf.envs.control_env import EnvState, Interface, check_actions
from rrf.envs.mjlab import held_command
from rrf.envs.mjlab.configs import MjlabEnvCfg
from rrf.envs.mjlab.global_randomness import GlobalRandomness
from rrf.envs.mjlab.metadata import robot_metadata
from rrf.envs.mjlab.task import quiet, task_config

if typing.TYPE_CHECKING:
    from rrf.envs.mjlab.native.env import NativeRlEnv

_DRIVES_JOINTS = {
    int(kind)
    for kind in (
        mujoco.mjtTrn.mjTRN_JOINT,
        mujoco.mjtTrn.mjTRN_JOINTINPARENT,
        mujoco.mjtTrn.mjTRN_TENDON,
    )
}


def build(
    cfg: MjlabEnvCfg,
    seed: int = 0,
    device: torch.device | str = "cpu",
    env_cfg: typing.Any = None,
) -> "MjlabEnv":
    """The environment `cfg` describes.

    Args:
        env_cfg: mjlab's config, in place of the one registered as `cfg.task`.

    Raises:
        ImportError: If mjlab is not installed, with the command that installs it.
        ValueError: For an unknown task or override, and for terms the backend cannot compute.
    """
    device = torch.device(device)
    backend = cfg.backend
    if backend == "auto":
        backend = "native" if device.type == "cpu" else "mjlab"
    if backend == "native" and device.type != "cpu":
        raise ValueError(f"backend=native runs on device=cpu, not on {device}; use backend=mjlab")
    task = task_config(cfg, seed, env_cfg)
    randomness = GlobalRandomness(seed, device)
    with quiet(), torch.inference_mode(False), torch.no_grad(), randomness:
        if backend == "native":
            from rrf.envs.mjlab.native.env import NativeRlEnv

            env: typing.Any = NativeRlEnv(task, cfg.num_threads, fresh_contacts=cfg.fresh_contacts)
        else:
            from mjlab.envs import ManagerBasedRlEnv

            env = ManagerBasedRlEnv(task, device=str(device))
    return MjlabEnv(cfg, env, randomness)


class MjlabEnv:
    """N copies of a task of mjlab; see `rrf.envs.control_env.ControlEnv`."""

    def __init__(self, cfg: MjlabEnvCfg, env: typing.Any, randomness: GlobalRandomness):
        """
        Args:
            env: mjlab's `ManagerBasedRlEnv`, or a `NativeRlEnv`, not reset yet.
            randomness: What `env` draws its random numbers from.
        """
        self.cfg = cfg
        self.env = env
        self.num_envs: int = env.num_envs
        self.device = torch.device(env.device)
        self.num_actions: int = env.action_manager.total_action_dim
        self.max_episode_length: int = env.max_episode_length
        self.mj_model: mujoco.MjModel = env.sim.mj_model
        self.mj_spec: mujoco.MjSpec = env.scene.spec
        self.before_reset: Callable[[list[int]], None] | None = None
        self._randomness = randomness
        self._is_native = cfg.backend != "mjlab" and self.device.type == "cpu"
        self._tells_power = bool(set(self.mj_model.actuator_trntype.tolist()) <= _DRIVES_JOINTS)
        self._power = torch.zeros(self.num_envs, device=self.device)
        _check_groups(env)
        self._observations = self.reset()[0]
        self.interface = Interface(
            observation_dims={name: group.shape[1] for name, group in self._observations.items()},
            num_actions=self.num_actions,
            step_dt=env.step_dt,
            task=cfg.task,
            robot=robot_metadata(env),
        )

    @property
    def episode_length_buf(self) -> torch.Tensor:
        """Steps since the episodes began, int64 [N]; may be set."""
        return self.env.episode_length_buf

    @episode_length_buf.setter
    def episode_length_buf(self, value: torch.Tensor) -> None:
        self.env.episode_length_buf = value.to(self.device, torch.long, copy=True)

    def get_observations(self) -> TensorDict:
        """What the policy sees now, TensorDict [N] of groups (of mjlab: "actor", "critic")."""
        return self._observations

    def reset(self) -> tuple[TensorDict, dict]:
        """Start new episodes everywhere."""
        with self._guard():
            observations, extras = self.env.reset()
        self._observations = self._group(observations)
        return self._observations, {"log": dict(extras["log"])}

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        """See `ControlEnv.step`.

        An environment whose physics diverged is terminated and reset; `extras["log"]` counts them
        under "env/diverged".
        """
        check_actions(actions, self.num_envs, self.num_actions)
        with self._guard():
            return self._step(actions.detach().to(self.device))

    def _step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        observations, rewards, terminated, truncated, extras = self.env.step(actions)
        diverged = self._diverged()
        terminated = terminated | diverged
        dones = terminated | truncated
        time_outs = truncated & ~terminated
        if self.env.cfg.is_finite_horizon:
            time_outs = torch.zeros_like(time_outs)
        log = dict(extras["log"]) | {"env/diverged": diverged.sum().float()}
        if self._tells_power:
            self._power = self._mechanical_power()
        current, final = self._group(observations), None
        ids = dones.nonzero().squeeze(-1)
        if len(ids):
            final = current[ids]
            if diverged.any():
                final[diverged[ids]] = final[diverged[ids]].apply(_finite)
            if self.before_reset is not None:
                self.before_reset(ids.tolist())
            with _others_metrics_kept(self.env.command_manager, ~dones):
                fresh, extras = self.env.reset(env_ids=ids)
            log |= extras["log"]
            for name, group in fresh.items():
                current[name][ids] = group[ids]
        self._observations = current
        return current, rewards.clone(), dones, {
            "time_outs": time_outs,
            "final_obs": final,
            "log": log,
        }  # fmt: skip

    def close(self) -> None:
        """Free threads and memory. Calling it twice is allowed."""
        self.env.close()

    # What evaluation and videos use.

    def reward_terms(self) -> dict[str, torch.Tensor]:
        """The weighted parts of the last step's reward, each float32 [N]; they add up to it."""
        manager = self.env.reward_manager
        scale = self.env.step_dt if self.env.cfg.scale_rewards_by_dt else 1.0
        return {
            name: manager._step_reward[:, index] * scale
            for index, name in enumerate(manager.active_terms)
        }

    @property
    def reward_names(self) -> list[str]:
        """The keys of `reward_terms`."""
        return list(self.env.reward_manager.active_terms)

    def mj_datas(self, env_ids: Sequence[int]) -> list[mujoco.MjData]:
        """MuJoCo states of some environments, with kinematics up to date."""
        source, datas = self.env.sim.data, []
        for index in env_ids:
            data = mujoco.MjData(self.mj_model)
            data.qpos[:] = source.qpos[index].cpu().numpy()
            data.qvel[:] = source.qvel[index].cpu().numpy()
            data.ctrl[:] = source.ctrl[index].cpu().numpy()
            if self.mj_model.nmocap:
                data.mocap_pos[:] = source.mocap_pos[index].cpu().numpy()
                data.mocap_quat[:] = source.mocap_quat[index].cpu().numpy()
            mujoco.mj_forward(self.mj_model, data)
            datas.append(data)
        return datas

    @property
    def command(self) -> torch.Tensor | None:
        """What the robots are told, [N, C]: of velocity tasks forward and left in m/s and turn
        left in rad/s. None for tasks without a command."""
        names = self.env.command_manager.active_terms
        return self.env.command_manager.get_command(names[0]).clone() if names else None

    def set_command(self, command: torch.Tensor | None) -> None:
        """Hold the velocity command [N, 3], also after resets; None lets it be resampled again.

        Raises:
            ValueError: For a task without a velocity command, or a wrong shape.
        """
        held_command.hold(self.env, command)
        if command is None:
            return
        at_start = (self.episode_length_buf == 0).nonzero().squeeze(-1)
        with self._guard():
            manager = self.env.observation_manager
            self._observations = self._group(manager.compute(update_history=True, env_ids=at_start))

    def body_velocity(self) -> torch.Tensor:
        """Forward and left in m/s and turn left in rad/s, [N, 3], in the frame of the bodies."""
        data = self._robot().data
        return torch.cat([data.root_link_lin_vel_b[:, :2], data.root_link_ang_vel_b[:, 2:]], dim=1)

    def power(self) -> torch.Tensor:
        """Mechanical power at the end of the last step, W, [N]: sum over joints |tau qdot|.

        Raises:
            ValueError: For a task with actuators that do not drive joints.
        """
        if not self._tells_power:
            raise ValueError(f"'{self.cfg.task}' has actuators that drive no joint")
        return self._power

    @property
    def base_height(self) -> torch.Tensor:
        """Of the robots over the origins of their environments, m, [N]."""
        return self._robot().data.root_link_pos_w[:, 2] - self.env.scene.env_origins[:, 2]

    # Going on later.

    def state(self) -> EnvState | None:
        """Everything that decides the future, on the native backend; None on mjlab's, and where a
        term keeps a random generator, a deque or a set.
        """
        if not self._is_native or self.env.unsaved():
            return None
        env: NativeRlEnv = self.env
        parts = {
            "terms": env.capture(),
            "sim": env.sim.state(),
            "randomness": self._randomness.state(),
        }
        state = EnvState({}, {"task": self.cfg.task})
        for part, (tensors, facts) in parts.items():
            state.tensors |= {f"{part}:{name}": value for name, value in tensors.items()}
            state.facts |= {f"{part}:{name}": value for name, value in facts.items()}
        for name, group in self._observations.items():
            state.tensors[f"observations:{name}"] = group.clone()
        state.tensors["episode_length"] = self.episode_length_buf.clone()
        state.facts["step_counters"] = [env.common_step_counter, env._sim_step_counter]
        return state

    def load_state(self, state: EnvState) -> None:
        """Continue from `state`, which came from an environment of the same config.

        Raises:
            ValueError: On mjlab's backend, and for a state that does not fit.
        """
        if not self._is_native:
            raise ValueError("the state of mjlab's own backend cannot be restored")
        if state.facts.get("task") != self.cfg.task:
            raise ValueError(
                f"the state is of '{state.facts.get('task')}', this environment is of "
                f"'{self.cfg.task}'"
            )
        env: NativeRlEnv = self.env
        env.restore(*_part(state, "terms"))
        env.sim.load_state(*_part(state, "sim"))
        self._randomness.load_state(*_part(state, "randomness"))
        self.episode_length_buf = state.tensors["episode_length"].clone()
        env.common_step_counter, env._sim_step_counter = state.facts["step_counters"]
        groups = _part(state, "observations")[0]
        self._observations = self._group({name: value.clone() for name, value in groups.items()})

    def set_progress(self, num_steps: int, seed: int) -> None:
        """Go on, with the next `reset`, as after so many steps: for where `state` is None.

        Curricula that go by the number of steps do. Levels of terrain begin anew, as in mjlab.
        """
        self.env.common_step_counter = num_steps
        self.env._sim_step_counter = num_steps * self.env.cfg.decimation
        self._randomness = GlobalRandomness(seed, self.device)

    # Its own.

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """mjlab's code: its own random numbers, no gradients, errors that name terms.

        Its buffers stay ordinary tensors even if the caller is in inference mode.
        """
        with contextlib.ExitStack() as stack:
            if self._is_native:
                from rrf.envs.mjlab.native.env import naming_terms

                stack.enter_context(naming_terms())
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.no_grad())
            stack.enter_context(self._randomness)
            yield

    def _group(self, observations: dict[str, torch.Tensor]) -> TensorDict:
        groups: dict[str, typing.Any] = {name: x.float() for name, x in observations.items()}
        return TensorDict(groups, batch_size=[self.num_envs])

    def _diverged(self) -> torch.Tensor:
        if self._is_native:
            return self.env.sim.diverged
        data = self.env.sim.data
        return ~(data.qpos.isfinite().all(1) & data.qvel.isfinite().all(1))

    def _mechanical_power(self) -> torch.Tensor:
        total = torch.zeros(self.num_envs, device=self.device)
        for entity in self.env.scene.entities.values():
            if entity.is_actuated:
                total += (entity.data.qfrc_actuator * entity.data.joint_vel).abs().sum(1)
        return total

    def _robot(self) -> typing.Any:
        entities = self.env.scene.entities
        if "robot" not in entities:
            raise ValueError(f"'{self.cfg.task}' has no robot with a free base")
        return entities["robot"]


@contextlib.contextmanager
def _others_metrics_kept(manager: typing.Any, others: torch.Tensor) -> Iterator[None]:
    """A reset of some environments measures how all follow their commands, which adds the same
    instant a second time; with `auto_reset`, mjlab measures once a step. `others` is bool [N].
    """
    compute = manager.compute

    def compute_for_some(*args: typing.Any, **kwargs: typing.Any) -> None:
        metrics = [manager.get_term(name).metrics for name in manager.active_terms]
        before = [{name: values[others] for name, values in of.items()} for of in metrics]
        compute(*args, **kwargs)
        for of, kept in zip(metrics, before, strict=True):
            for name, values in kept.items():
                of[name][others] = values

    manager.compute = compute_for_some
    try:
        yield
    finally:
        del manager.compute  # the class has its own


def _check_groups(env: typing.Any) -> None:
    manager = env.observation_manager
    for group, dim in manager.group_obs_dim.items():
        if not manager.group_obs_concatenate[group] or len(dim) != 1:
            raise ValueError(
                f"observation group '{group}' is no vector but "
                f"{', '.join(manager.active_terms[group])}; remove it by overrides: "
                f"{{'observations.{group}': null}}"
            )


def _finite(x: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)


def _part(state: EnvState, part: str) -> tuple[dict[str, torch.Tensor], dict[str, typing.Any]]:
    prefix = f"{part}:"
    return tuple(
        {name.removeprefix(prefix): v for name, v in values.items() if name.startswith(prefix)}
        for values in (state.tensors, state.facts)
    )  # type: ignore[return-value]
