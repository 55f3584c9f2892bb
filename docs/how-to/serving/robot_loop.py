"""The control loop of a robot whose policy runs on a server; Meta-World stands in for the robot."""

import argparse
import contextlib
import os
import time

from rrf.client import (
    PolicyClient,
    RealTimeChunking,
    RecedingHorizon,
    RobotHistory,
    TemporalEnsemble,
)
from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.envs.vec_env import InitialState


def as_request(observation):
    """The first row of a batch of observations, as the policy server wants it."""
    images = {f"observation.images.{name}": rows[0] for name, rows in observation.images.items()}
    instruction = observation.instruction[0]
    return {**images, "observation.state": observation.state[0], "instruction": instruction}


def play(client, schedule="receding", task="drawer-open-v3", index=0, steps=40, period_s=0.0):
    """Play one episode; returns whether it was solved and how many actions it took."""
    if schedule == "receding":
        controller = RecedingHorizon(client.infer, execute=2)
    elif schedule == "ensemble":
        controller = TemporalEnsemble(client.infer)
    else:  # needs a head that denoises: flow matching or diffusion
        controller = RealTimeChunking(client.resume, execute=1)
    history = RobotHistory(client.metadata.get("past"))  # of one episode
    with contextlib.ExitStack() as stack:
        if schedule == "real-time":
            stack.enter_context(controller)
        env = MetaWorldCfg(num_envs=1, chunk_length=1, max_episode_steps=steps).build()
        stack.callback(env.close)
        observation = env.reset([InitialState(task, seed=4242, index=index)])
        for taken in range(1, steps + 1):
            begin = time.monotonic()
            action = controller.act(history.seen(as_request(observation)))
            step = env.step(action[None, None])
            if step.terminated[0] or step.truncated[0]:
                return bool(step.success[0]), taken
            observation = step.observation
            time.sleep(max(0.0, begin + period_s - time.monotonic()))
    raise AssertionError("an episode ends by its last step")


def main():
    """Play episodes with the policy at a url."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="e.g. ws://127.0.0.1:8000")
    parser.add_argument("--schedule", default="receding", help="receding, ensemble or real-time")
    parser.add_argument("--task", default="drawer-open-v3")
    parser.add_argument("--episodes", type=int, default=1)
    parser.add_argument("--period", type=float, default=0.0, help="seconds per action")
    args = parser.parse_args()
    with PolicyClient(args.url, token=os.environ.get("RRF_SERVE_TOKEN")) as client:
        print(f"the policy is {client.metadata['policy']}")
        for index in range(args.episodes):
            solved, steps = play(client, args.schedule, args.task, index, period_s=args.period)
            print(f"{args.task} {index}: {'solved' if solved else 'not solved'}, {steps} actions")


if __name__ == "__main__":
    main()
