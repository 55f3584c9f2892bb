"""The loop in which a student learns from a teacher: alternates rollouts and updates."""

import typing
from pathlib import Path

from rrf.envs.control_env import Interface
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.control import load_control_policy
from rrf.runners.checkpoints.deployable import deployable_digest
from rrf.runners.control.on_policy import OnPolicyRunner


class DistillationRunner(OnPolicyRunner):
    """Trains with distillation or DAgger."""

    cfg: typing.Any  # a DistillationRunnerCfg
    teacher = "teacher"

    def _build(self) -> None:
        cfg, env = self.cfg, self.env
        cfg.require_teacher()
        path = checkpoint.find(cfg.teacher)
        self.policy = cfg.policy.build(env.interface).to(self.device)
        self.lineage = self.lineage.replace(teacher_checkpoint=deployable_digest(path))
        self.steps_per_iteration = env.num_envs * cfg.num_steps_per_env
        self.algorithm = cfg.algorithm.build(
            self.policy,
            teacher_at(path, env.interface, str(self.device)),
            env.num_envs,
            cfg.num_steps_per_env,
            self.generator,
            self.device,
        )


def teacher_at(path: Path, interface: Interface, device: str) -> typing.Any:
    """The actor of a checkpoint, which is to teach in the environment of `interface`.

    Raises:
        ValueError: If its actions or its observation groups are others than the environment's.
    """
    policy, teacher_interface = load_control_policy(path, device)
    task = interface.task or "the environment"
    if teacher_interface.num_choices is not None or interface.num_choices is not None:
        raise ValueError(
            f"{path} or {task} has discrete actions, but a student imitates the mean of real ones; "
            "train with PPO or SAC"
        )
    if teacher_interface.num_actions != interface.num_actions:
        raise ValueError(
            f"the teacher {path} has {teacher_interface.num_actions} actions (it was trained in "
            f"{teacher_interface.task}), but {task} has {interface.num_actions}; "
            "name a teacher of this task, or set env to its environment"
        )
    for group in policy.actor.groups:
        wanted, width = (
            teacher_interface.observation_dims[group],
            interface.observation_dims.get(group),
        )
        if width != wanted:
            has = "has no such group" if width is None else f"has {width}"
            raise ValueError(
                f"the teacher {path} reads {wanted} numbers of observation group '{group}', but "
                f"{task} {has}; set env to the teacher's environment, and hide from the student "
                "with policy.actor_cfg.hidden or policy.actor_cfg.observation_groups"
            )
    return policy.actor
