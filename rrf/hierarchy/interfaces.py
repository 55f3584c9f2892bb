"""What System 1 sends, checked against what System 0 and the robot take: names, units, frames."""

import dataclasses
import typing
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rrf.config import did_you_mean
from rrf.envs.humanoid import command
from rrf.envs.humanoid.balancer import check_interface
from rrf.envs.humanoid.command import Signal
from rrf.runners.checkpoints.control import load_interface
from rrf.runners.checkpoints.deployable import CONTROL, described, kind_of

if typing.TYPE_CHECKING:
    from rrf.policies.vla.psi0_configs import Psi0PolicyCfg


@dataclasses.dataclass(frozen=True)
class Sent:
    """A number that System 1 sends."""

    name: str
    unit: str
    frame: str | None = None  # None: not said

    @property
    def meaning(self) -> str:
        """In words."""
        return f"{self.name} ({self.unit}, frame {self.frame or 'not said'})"


def sent_by(policy: "Psi0PolicyCfg", frames: Mapping[str, str]) -> list[Sent]:
    """What a policy sends, in the order of its actions.

    Raises:
        ValueError: If it does not know the names and units of its actions.
    """
    if not policy.action_names or len(policy.action_units) != len(policy.action_names):
        raise ValueError(
            "System 1 does not know the names and units of its actions; train it on a dataset that "
            "has them, or give policy.action_names and policy.action_units"
        )
    named = zip(policy.action_names, policy.action_units, strict=True)
    return [Sent(name, unit, frames.get(name)) for name, unit in named]


def taken_by(system0: str | Path, robot_joints: Collection[str]) -> dict[str, Signal]:
    """What a System 0 takes, and what the joints of its robot, a G1, take that it does not drive.

    Args:
        system0: Its checkpoint.
        robot_joints: All joints of the robot that have a motor.

    Raises:
        ValueError: If it is no System 0, one of another robot, or does not say units and frames of
            its command.
    """
    if (kind := kind_of(system0)) != CONTROL:
        raise ValueError(
            f"{system0} is {described(kind)}, no System 0; train one: rrf train g1-whole-body-ppo"
        )
    interface = load_interface(system0)
    try:
        check_interface(interface)
    except ValueError as error:
        raise ValueError(f"{system0} is no System 0 of this robot: {error}") from error
    signals = interface.robot.get("command_signals")
    if not signals:
        raise ValueError(
            f"the policy of '{interface.task}' does not say units and frames of what it takes "
            "(command_signals of its interface.json); train it with this version of rrf"
        )
    takes = {row["name"]: Signal(**row) for row in signals}
    for signal in (*command.COMMAND[command.HANDS], *command.COMMAND[command.ARMS]):
        if signal.name in robot_joints:
            takes.setdefault(signal.name, signal)
    heading = command.COMMAND[-1]
    return takes | {heading.name: heading}


def check_fits(sent: Sequence[Sent], takes: Mapping[str, Signal]) -> None:
    """Check that each number that is sent is taken, in the same unit and frame.

    Raises:
        ValueError: If not; the message names the number and what differs.
    """
    names = [signal.name for signal in sent]
    for signal in sent:
        if names.count(signal.name) > 1:
            raise ValueError(f"System 1 sends {signal.name} twice")
        taken = takes.get(signal.name)
        if taken is None:
            if signal.name in command.HAND_JOINTS:
                raise ValueError(
                    f"System 1 sends {signal.meaning}, but this robot has no such hand; take a "
                    "robot with hands, or a System 1 that sends none"
                )
            raise ValueError(
                f"System 1 sends {signal.meaning}, which System 0 does not take"
                f"{did_you_mean(signal.name, takes)}"
            )
        if signal.unit != taken.unit:
            raise ValueError(
                f"System 1 sends {signal.meaning}, but System 0 takes {taken.meaning}: the units "
                "differ; convert the dataset"
            )
        if signal.frame not in (None, taken.frame):
            raise ValueError(
                f"System 1 sends {signal.meaning}, but System 0 takes {taken.meaning}: the frames "
                "differ; convert the dataset"
            )
