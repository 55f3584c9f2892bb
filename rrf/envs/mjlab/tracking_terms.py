"""Terms for mjlab's tracking tasks: actions around the reference motion, and a curriculum.

A robot that must find out by itself how to hold the pose of the clip falls within a second,
thousands of times. With actions that are added to the clip's own joint angles (mjlab's are added to
a fixed pose), it only has to learn what keeps it on its feet; and it begins undisturbed.
"""

import dataclasses
import typing

import torch
from mjlab.envs import ManagerBasedRlEnv
from mjlab.envs.mdp.actions import JointPositionAction, JointPositionActionCfg

COMMAND = "motion"
_PUSH = "push_robot"


class ReferenceAction(JointPositionAction):
    """Actions are added, times their scale, to the joint angles of the clip's next frame."""

    around = "reference"
    """In the metadata of a policy: what runs it must add these angles, too."""

    def process_actions(self, actions: torch.Tensor) -> None:
        command = typing.cast(typing.Any, self._env.command_manager.get_term(COMMAND))
        following = (command.time_steps + 1).clamp(max=command.motion.time_step_total - 1)
        self._offset = command.motion.joint_pos[following][:, self._target_ids]
        super().process_actions(actions)


@dataclasses.dataclass(kw_only=True)
class ReferenceActionCfg(JointPositionActionCfg):
    """See `ReferenceAction`."""

    use_default_offset: bool = False

    def build(self, env: ManagerBasedRlEnv) -> ReferenceAction:
        return ReferenceAction(self, env)


class Disturbances:
    """A curriculum: how far episodes begin from the clip, how hard robots are pushed, and how near
    to the clip they must stay, as a level from 0 (exactly on it; not at all; within twice the
    distance) to 1 (as the task says).

    The level rises with each episode that reaches its end, and falls by one that ends before its
    half; after `rounds` rounds of good episodes it is 1.
    """

    def __init__(self, cfg: typing.Any, env: ManagerBasedRlEnv):
        command: typing.Any = env.command_manager.get_term(COMMAND)
        self.level = float(cfg.params["first"])
        self._ranges = {
            name: dict(getattr(command.cfg, name)) for name in ("pose_range", "velocity_range")
        }
        self._joints = tuple(command.cfg.joint_position_range)
        events = env.cfg.events
        self._push = dict(events[_PUSH].params["velocity_range"]) if _PUSH in events else None
        self._thresholds: dict[str, float] = {
            name: term.params["threshold"]
            for name, term in env.cfg.terminations.items()
            if term is not None and "threshold" in term.params
        }
        self._apply(env)

    def __call__(
        self, env: ManagerBasedRlEnv, env_ids: torch.Tensor, first: float, rounds: float
    ) -> dict[str, torch.Tensor]:
        if env.common_step_counter:  # before, no episode has ended
            lengths = env.episode_length_buf[env_ids]
            terminated = env.termination_manager.terminated[env_ids]
            good = int((~terminated & (lengths > 0)).sum())
            bad = int((terminated & (lengths < env.max_episode_length / 2)).sum())
            change = (good - bad) / (rounds * env.num_envs)
            self.level = min(max(self.level + change, first), 1.0)
            self._apply(env)
        return {"level": torch.tensor(self.level)}

    def _apply(self, env: ManagerBasedRlEnv) -> None:
        command: typing.Any = env.command_manager.get_term(COMMAND)
        for name, ranges in self._ranges.items():
            setattr(command.cfg, name, _scaled(ranges, self.level))
        command.cfg.joint_position_range = tuple(self.level * limit for limit in self._joints)
        if self._push is not None:
            event = env.event_manager.get_term_cfg(_PUSH)
            event.params["velocity_range"] = _scaled(self._push, self.level)
        for name, threshold in self._thresholds.items():
            term = env.termination_manager.get_term_cfg(name)
            term.params["threshold"] = (2 - self.level) * threshold


def _scaled(ranges: dict[str, tuple[float, float]], factor: float) -> dict[str, tuple]:
    return {name: (factor * low, factor * high) for name, (low, high) in ranges.items()}
