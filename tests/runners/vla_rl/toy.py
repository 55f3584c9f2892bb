"""A toy task played in this process: reach the goal that the state names, with one action chunk.

An episode succeeds when the mean of its chunk lies within RADIUS of the goal, and has three tries.
It is a real rollout of a real policy through the runner's interface, only without a simulator.
"""

import numpy as np
import torch

from rrf.data.schema import Observation
from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.envs.observations import digest, join
from rrf.networks import ImageEncoderCfg, InstructionEncoderCfg, MLPCfg
from rrf.orchestra.rollout_role import RolloutRole
from rrf.policies import CompactVLACfg, GaussianHeadCfg
from rrf.policies.policy import Sample
from rrf.policies.vla.configs import PolicyCfg
from rrf.runners.interruption import StopRequestedError
from rrf.runners.vla_rl.call_costs import CallCosts
from rrf.runners.vla_rl.timeline import Layout, Timeline
from rrf.storage.trajectories import PlayedEpisode

TASKS = ["drawer-open-v3", "window-open-v3"]
TRIES = 3
RADIUS = 0.4
STATS = {
    "observation.state": {"mean": [0.0, 0.0], "std": [0.5, 0.5]},
    "action": {"min": [-1.0, -1.0], "max": [1.0, 1.0]},
}
ENV = MetaWorldCfg(num_envs=2, chunk_length=2, max_episode_steps=2 * TRIES)


def policy_cfg(head=None, **changes) -> CompactVLACfg:
    cfg = CompactVLACfg(
        cameras=["front"],
        image_size=(8, 8),
        state_dim=2,
        action_dim=2,
        chunk_length=2,
        image_encoder=ImageEncoderCfg(
            channels=[4], kernel_sizes=[3], strides=[4], num_film_layers=1, out_features=8
        ),
        instruction_encoder=InstructionEncoderCfg(vocabulary=["go"], out_features=4),
        state_features=16,
        trunk=MLPCfg(hidden_features=[32], activations=[[("ReLU", {})], [("ReLU", {})]]),
        features=32,
        head=head or GaussianHeadCfg(initial_std=0.5),
    )
    return cfg.replace(**changes) if changes else cfg


def make_policy(cfg: PolicyCfg, seed: int = 0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return cfg.build(STATS).eval()


def goal_of(initial_state) -> np.ndarray:
    key = [initial_state.seed, initial_state.index, TASKS.index(initial_state.task)]
    return np.random.default_rng(key).uniform(-0.8, 0.8, 2).astype(np.float32)


def observe(goals: list[np.ndarray]) -> Observation:
    images = np.zeros((len(goals), 8, 8, 3), np.uint8)
    return Observation({"front": images}, np.stack(goals), ["go"] * len(goals))


class ToyBackend:
    """Implements `rrf.runners.vla_rl.roles.Backend`."""

    in_process = ("inference",)

    def __init__(self, policy, sees_end=False):
        self.rollout = RolloutRole(policy, sees_end=sees_end)
        self.timeline, self.layout = Timeline(), Layout([0], [0], [1])
        self.calls = CallCosts()
        self.is_closed = False

    def play(
        self,
        source,
        stream,
        *,
        greedy=False,
        keeps=True,
        should_stop=lambda: False,
        early_stop=None,
    ):
        assert early_stop is None, "this backend plays every episode to its end"
        while jobs := source.take():
            tries = {job: [] for job in jobs}
            generators = {
                job: torch.Generator().manual_seed(_seed_of(*stream, job.id)) for job in jobs
            }
            active = jobs
            while active:
                seen = observe([goal_of(job.initial_state) for job in active])
                streams = None if greedy else [generators[job] for job in active]
                sample = self.rollout.act(seen, streams)
                for row, job in enumerate(active):
                    tries[job].append(_row(sample, row))
                active = [job for job in active if not _is_over(job, tries[job])]
            if should_stop():
                raise StopRequestedError
            for job in jobs:
                episode = _episode(job, tries[job], keeps, self.rollout.version)
                if self.rollout.sees_end and episode.truncated:
                    final = self.rollout.act(observe([goal_of(job.initial_state)]), None)
                    episode.final_replay = {name: v[0] for name, v in final.replay.items()}
                source.report(episode)

    def timings(self):
        return {"inference": 0.0}

    def close(self):
        self.is_closed = True


def _episode(job, samples, keeps, version) -> PlayedEpisode:
    count, first = len(samples), samples[0]
    success = _is_reached(job, samples[-1])
    seen = observe([goal_of(job.initial_state)])
    has_value = first.value is not None
    return PlayedEpisode(
        job=job,
        observation=join([seen] * count) if keeps else None,
        replay={n: torch.cat([sample.replay[n] for sample in samples]) for n in first.replay},
        log_prob=torch.zeros(count, 0)
        if first.log_prob is None
        else torch.cat([sample.log_prob for sample in samples]),
        value=torch.cat([sample.value for sample in samples])
        if has_value
        else torch.full((count, 1), torch.nan),
        reward=np.zeros(count, np.float32),
        steps=np.full(count, 2),
        success=success,
        truncated=not success,
        final_value=float(samples[-1].value[0, 0]) if has_value and not success else np.nan,
        policy_version=version,
        reset_digest=digest(seen, 0),
    )


def _is_over(job, samples) -> bool:
    return len(samples) == TRIES or _is_reached(job, samples[-1])


def _is_reached(job, sample) -> bool:
    return bool(np.linalg.norm(sample.actions[0].mean(0) - goal_of(job.initial_state)) < RADIUS)


def _row(sample: Sample, row: int) -> Sample:
    return Sample(
        sample.actions[row : row + 1],
        None if sample.log_prob is None else sample.log_prob[row : row + 1],
        {name: values[row : row + 1] for name, values in sample.replay.items()},
        None if sample.value is None else sample.value[row : row + 1],
    )


def _seed_of(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
