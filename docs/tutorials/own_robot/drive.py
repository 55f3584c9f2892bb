"""The control loop of the robot: ask the server in every period, and do what it says."""

import sys
import time

import gymnasium
import robot

from rrf.client import PolicyClient

env = gymnasium.make("Slider-v0")  # here the connection to your robot
seen, _ = env.reset(seed=5)
with PolicyClient(sys.argv[1]) as client:
    for _ in range(100):
        action = client.infer({"policy": seen})
        seen, *_ = env.step(action)
        time.sleep(robot.PERIOD_S)
print(f"{abs(seen[0] - seen[2]):.2f} m from the target")
