"""Holds a velocity command of mjlab at its value, also when mjlab would sample a new one."""

import math
import typing

import torch

_FLAGS = ("is_heading_env", "is_standing_env", "is_world_env", "is_forward_env")


def hold(env: typing.Any, command: torch.Tensor | None) -> None:
    """Hold the command [N, 3] of an mjlab environment. None lets mjlab sample it again.

    Raises:
        ValueError: For a task without a velocity command, or a wrong shape.
    """
    term = _velocity_command(env)
    if command is None:
        if vars(term).pop("_resample_command", None) is not None:
            term.time_left[:] = 0.0  # it was infinite, so as not to sample again
        return
    if tuple(command.shape) != (env.num_envs, 3):
        raise ValueError(
            f"the command has shape {list(command.shape)}, expected [N, 3] = {[env.num_envs, 3]}"
        )
    held = command.to(env.device, torch.float32, copy=True)

    def resample(env_ids: torch.Tensor) -> None:
        for name in ("vel_command_b", "vel_command_w"):
            getattr(term, name)[env_ids] = held[env_ids]
        for name in _FLAGS:
            getattr(term, name)[env_ids] = False
        term.time_left[env_ids] = math.inf

    term._resample_command = resample
    resample(torch.arange(env.num_envs, device=env.device))


def _velocity_command(env: typing.Any) -> typing.Any:
    terms = [env.command_manager.get_term(name) for name in env.command_manager.active_terms]
    for term in terms:
        if hasattr(term, "vel_command_b"):
            return term
    raise ValueError("the task has no velocity command to hold")
