"""Records how a controller walks to the mark through System 0, in robomimic's HDF5 layout."""

from pathlib import Path

import gymnasium
import h5py
import numpy as np
import walk  # registers Walk-v0

FILE = Path("datasets/raw/walk/controller.hdf5")
FILE.parent.mkdir(parents=True, exist_ok=True)
env = gymnasium.make("Walk-v0")
fell = 0
with h5py.File(FILE, "w") as file:
    data = file.create_group("data")
    data.attrs["instruction"] = "walk to the mark"
    for index in range(20):
        seen, frames, over = env.reset(seed=1000 + index)[0], [], False
        while not over:
            ahead, left = seen[:2]
            action = np.clip([0.6 * ahead, 0.3 * left, 1.0 * np.arctan2(left, ahead)], -0.4, 0.4)
            action = action.astype(np.float32)
            following, reward, is_fallen, is_late, _ = env.step(action)
            frames.append((seen, action, reward, is_fallen))
            seen, over = following, is_fallen or is_late
        fell += is_fallen
        states, actions, rewards, dones = map(np.stack, zip(*frames, strict=True))
        demo = data.create_group(f"demo_{index}")
        demo["obs/seen"] = states  # float32 [T, 5]
        demo["actions"] = actions  # float32 [T, 3]
        demo["rewards"] = rewards.astype(np.float32)  # [T]
        demo["dones"] = dones.astype(np.uint8)  # [T]
print(f"{FILE}: 20 episodes with {len(walk.COMMANDS)} commands a frame, {fell} falls")
