"""Writes recordings in robomimic's HDF5 layout, as the data logger of your robot would."""

from pathlib import Path

import gymnasium
import h5py
import numpy as np
import robot  # registers Slider-v0

FILE = Path("datasets/raw/slider/day-1.hdf5")
FILE.parent.mkdir(parents=True, exist_ok=True)
env, noise = gymnasium.make("Slider-v0"), np.random.default_rng(1)
with h5py.File(FILE, "w") as file:
    data = file.create_group("data")
    data.attrs["instruction"] = "go to the target"
    for index in range(40):
        seen, frames = env.reset(seed=1000 + index)[0], []
        for _ in range(100):
            place, speed, target = seen
            force = 6 * (target - place) - 2.4 * speed + noise.normal(0, 0.2)  # a person steers
            action = np.clip([force], -robot.FORCE_N, robot.FORCE_N).astype(np.float32)
            following, reward, *_ = env.step(action)
            frames.append((seen, action, reward))
            seen = following
        states, actions, rewards = map(np.stack, zip(*frames, strict=True))
        demo = data.create_group(f"demo_{index}")
        demo["obs/joint"] = states  # float32 [T, 3]
        demo["actions"] = actions  # float32 [T, 1]
        demo["rewards"] = rewards.astype(np.float32)  # [T]
        demo["dones"] = np.zeros(len(states), np.uint8)  # [T]; the task itself never ends
print(f"{FILE}: 40 episodes")
