"""Motions of the G1 that rrf comes with, as System 0 moves when it is commanded.

python -m rrf.envs.humanoid.motions configs/motions     # writes them
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rrf import workspace
from rrf.envs.humanoid import body, command
from rrf.envs.humanoid.balancer import STEP_S, load_balancer, standing_command
from rrf.envs.humanoid.configs import HumanoidCfg
from rrf.envs.humanoid.simulated_robot import SimulatedRobot, standing_data
from rrf.envs.motions.clip import Clip

Schedule = Sequence[tuple[float, Mapping[str, float]]]
"""Seconds, and what differs from standing still meanwhile."""
_UP = {"left_shoulder_pitch_joint": -0.6, "right_shoulder_pitch_joint": -0.6}
MADE: Mapping[str, Schedule] = {
    "g1-walk": (
        (1.0, {}),
        (4.0, {"vx": 0.5}),
        (3.0, {"vx": 0.3, "vyaw": 0.5}),
        (3.0, {"vy": 0.2}),
        (2.0, {"vx": -0.3}),
        (2.0, {}),
    ),
    "g1-bow": (
        (1.0, {}),
        (2.5, {"torso_pitch": 0.5}),
        (2.0, _UP),
        (2.0, _UP | {"torso_yaw": 0.5}),
        (2.0, _UP | {"torso_yaw": -0.5, "height": 0.65}),
        (2.0, {}),
    ),
}


def recorded(name: str, schedule: Schedule, system0: Path) -> Clip:
    """How a G1 moves on bare ground under a schedule of commands.

    Raises:
        ValueError: If it falls.
    """
    model = body.shown_spec().compile()
    robot = SimulatedRobot(model, standing_data(model))
    balancer, one, rows = load_balancer(system0, body.spec().compile()), np.zeros(1, int), []
    balancer.reset(one, *(part[None] for part in robot.read()))
    heading = 0.0
    for seconds, change in schedule:
        wanted = standing_command(1)
        for signal, value in change.items():
            wanted[:, command.NAMES.index(signal)] = value
        for _ in range(round(seconds / STEP_S)):
            heading += STEP_S * change.get("vyaw", 0.0)
            wanted[:, command.NAMES.index("target_yaw")] = heading
            state = robot.read()
            rows.append(state[0])
            joints = balancer.targets(one, state[0][None], state[1][None], wanted)
            robot.drive(joints[0], np.zeros(len(command.HAND_JOINTS)))
    if robot.has_fallen:
        raise ValueError(f"{system0} falls in '{name}'")
    qpos = np.array(rows)
    source = f"RoboRenForce, rrf.envs.humanoid.motions, by {HumanoidCfg.system0}"
    parts = (qpos[:, :3], qpos[:, 3:7], qpos[:, 7:])
    parts = (qpos[:, :3], qpos[:, 3:7], qpos[:, 7:])
    return Clip(1 / STEP_S, list(body.JOINTS), *parts, source, "BSD-3-Clause")


if __name__ == "__main__":
    for name, schedule in MADE.items():
        clip = recorded(name, schedule, workspace.find(HumanoidCfg.system0))
        clip.write(Path(sys.argv[1]) / f"{name}.npz")
