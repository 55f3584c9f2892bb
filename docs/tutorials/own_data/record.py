"""Writes recordings in robomimic's HDF5 layout, as a data logger of your robot would.

An expert plays the toy simulator, which stands in for the robot. `python record.py 20` records 20
episodes of each task, and 60 if no number is given.
"""

import sys
from pathlib import Path

import h5py
import numpy as np
from toy_simulator.configs import INSTRUCTIONS
from toy_simulator.env import SPEED, draw, episode_of, expert

from rrf.envs.vec_env import InitialState

SEED = 777  # not the protocol's: it is judged on initial states that nobody recorded
num_episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 60
folder = Path("recordings/toy")
folder.mkdir(parents=True, exist_ok=True)
for task, instruction in INSTRUCTIONS.items():
    with h5py.File(folder / f"{task}.hdf5", "w") as file:
        data = file.create_group("data")
        data.attrs["instruction"] = instruction
        for index in range(num_episodes):
            episode, frames = episode_of(InitialState(task, SEED, index)), []
            while episode.distance > 0.1:
                action = expert(episode).astype(np.float32)
                frames.append((draw(episode, 16), episode.dot, action))
                episode.dot = (episode.dot + SPEED * action).astype(np.float32)
            images, places, actions = map(np.stack, zip(*frames, strict=True))
            demo = data.create_group(f"demo_{index}")
            demo["obs/image"] = images  # uint8 [T, 16, 16, 3]
            demo["obs/place"] = places  # float32 [T, 2]
            demo["actions"] = actions  # float32 [T, 2]
    print(f"{folder / task}.hdf5: {num_episodes} episodes, {instruction!r}")
