"""Writes recordings in robomimic's HDF5 layout, as a data logger of your robot would.

A pendulum whose motor is too weak to lift it at once stands in for the robot: it has to swing. An
expert that knows its physics plays. `python record.py 20` records 20 episodes; 30 if no number is
given.
"""

import sys
from pathlib import Path

import gymnasium
import h5py
import numpy as np

SEED = 777  # not the protocol's: a policy is judged on initial states that nobody recorded
NUM_STEPS = 200
FILE = Path(__file__).parent / "datasets/raw/example/swing-up.hdf5"


def expert(observation: np.ndarray) -> np.ndarray:
    """The torque for cosine and sine of the angle (0 is up) and the angular velocity."""
    cos, sin, velocity = observation
    angle = np.arctan2(sin, cos)
    if abs(angle) < 0.3:
        torque = -10 * angle - 2.5 * velocity  # hold
    else:
        missing_energy = 15 - 15 * cos - velocity**2 / 2
        torque = missing_energy * (velocity if abs(velocity) > 0.01 else 0.1)  # swing
    return np.clip([torque], -2, 2).astype(np.float32)


def main() -> None:
    """Play and record."""
    num_episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    FILE.parent.mkdir(parents=True, exist_ok=True)
    env = gymnasium.make("Pendulum-v1")
    with h5py.File(FILE, "w") as file:
        data = file.create_group("data")
        data.attrs["instruction"] = "swing up and stay up"
        for index in range(num_episodes):
            observation, _ = env.reset(seed=SEED + index)
            frames = []
            for _ in range(NUM_STEPS):
                action = expert(observation)
                following, reward, *_ = env.step(action)
                frames.append((observation, action, reward))
                observation = following
            observations, actions, rewards = map(np.stack, zip(*frames, strict=True))
            episode = data.create_group(f"demo_{index}")
            episode["obs/joint"] = observations.astype(np.float32)  # [T, 3]
            episode["actions"] = actions  # float32 [T, 1], N m
            episode["rewards"] = rewards.astype(np.float32)  # [T]
            episode["dones"] = np.zeros(NUM_STEPS, np.uint8)  # [T]; the task itself never ends
    print(f"{FILE}: {num_episodes} episodes")


if __name__ == "__main__":
    main()
