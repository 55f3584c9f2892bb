"""rsl_rl's `model_*.pt` files of distillation (4.x and 5.x): a student and its teacher.

    student_state_dict, teacher_state_dict, optimizer_state_dict (Adam of the student), iter, infos

Names of weights are those of `rsl_rl_checkpoint`. rsl_rl needs the teacher to train further; ours
is among the tensors of trainer_state/. The student is deployed without it.
"""

import dataclasses
import io
import typing
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from rrf import atomic
from rrf.algorithms.optimizer_tensors import beneath
from rrf.policies.control.actor_critic import GaussianActor
from rrf.policies.control.blind_actor import BlindActor
from rrf.policies.control.offline_policies import ActorPack
from rrf.policies.control.student_configs import StudentCfg
from rrf.runners.checkpoints import rsl_rl_checkpoint
from rrf.runners.checkpoints.rsl_rl_checkpoint import Weights

_STUDENT, _TEACHER = "student_state_dict", "teacher_state_dict"
_STD = ("std", "log_std")


@dataclasses.dataclass
class StudentCheckpoint:
    """The content of a file, with our parameter names."""

    student: Weights
    teacher: Weights
    iteration: int
    generation: str  # "4" or "5": the newest major version that wrote such files


def holds_student(path: str | Path) -> bool:
    """Whether a file was written by rsl_rl's distillation."""
    return _STUDENT in rsl_rl_checkpoint.load(path)


def read(path: str | Path) -> StudentCheckpoint:
    """Read a checkpoint of distillation.

    Raises:
        ValueError: If something in it is not a finite tensor.
    """
    data = rsl_rl_checkpoint.load(path)
    student, teacher = (
        rsl_rl_checkpoint.tensors_of(data, key, path) if key in data else {}
        for key in (_STUDENT, _TEACHER)
    )
    is_newest = not any(name in _STD for name in student)
    return StudentCheckpoint(
        rsl_rl_checkpoint.our_weights(student),
        rsl_rl_checkpoint.our_weights(teacher),
        rsl_rl_checkpoint.iteration_of(data, path),
        "5" if is_newest else "4",
    )


def fitted(cfg: StudentCfg, original: StudentCheckpoint) -> StudentCfg:
    """`cfg` with the student's layer widths, memory, normaliser and kind of standard deviation.

    Activations, observation groups and hidden columns are not in the file; those of `cfg` are kept.
    """
    actor = rsl_rl_checkpoint.fitted_network(cfg.actor_cfg, original.student, "student")
    return cfg.replace(actor_cfg=actor.override({"use_log_std": "log_std" in original.student}))


def weights_of(original: StudentCheckpoint) -> Weights:
    """The student's weights, with the names that they have in an `ActorPack`."""
    return {f"actor.{name}": value for name, value in original.student.items()}


def is_student(module: nn.Module) -> bool:
    """Whether rsl_rl would store `module` as a student."""
    return isinstance(module, ActorPack) and isinstance(module.actor, GaussianActor)


def expressible(module: typing.Any) -> ActorPack:
    """`module` itself. Raises ValueError with the reason if rsl_rl cannot represent it."""
    if type(module.actor) not in (GaussianActor, BlindActor):
        raise ValueError(
            f"rsl_rl has no {type(module.actor).__name__}; `rrf export --onnx` exports every policy"
        )
    rsl_rl_checkpoint.activation(module.actor.cfg.backbone_cfg, "student")
    return module


def write(
    path: str | Path, module: nn.Module, iteration: int, trainer_tensors: Mapping[str, torch.Tensor]
) -> None:
    """Write a student in the format of rsl_rl 5.x, with the teacher of `trainer_tensors`.

    Raises:
        ValueError: If there is no teacher, or one that rsl_rl does not have.
    """
    student = typing.cast(typing.Any, expressible(module)).actor
    teacher = beneath(trainer_tensors, "teacher/")
    if not any(name in teacher for name in _STD):
        what = "is not a Gaussian policy of PPO" if teacher else "is not in this checkpoint"
        raise ValueError(
            f"the teacher {what}, but rsl_rl stores it beside the student; export the student of a "
            "teacher trained with PPO from its run directory, or use --onnx"
        )
    optimizer = rsl_rl_checkpoint.adam_state({"student": student}, trainer_tensors, frozen=_STD)
    data = {
        _STUDENT: rsl_rl_checkpoint.their_weights(student.state_dict()),
        _TEACHER: rsl_rl_checkpoint.their_weights(teacher),
        "optimizer_state_dict": optimizer,
    }
    content = io.BytesIO()
    torch.save(data | {"iter": iteration, "infos": None}, content)
    atomic.write_bytes(path, content.getvalue())


def described(module: ActorPack) -> dict[str, str]:
    """The settings of the student in rsl_rl's config that fit a file written by `write`."""
    actor: typing.Any = module.actor
    text = rsl_rl_checkpoint.described_network(actor, "student")
    if isinstance(actor, BlindActor):
        text += f", {actor.width} columns of {', '.join(actor.groups)}"
    return {"student": text}
