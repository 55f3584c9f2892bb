"""Measure the speed of GAIL, ours in this process, that of `imitation` in its own (`rl_peers`).

Both use the same settings: those of the manual of `imitation`, for 8 environments. Ours is measured
twice: with Gymnasium's environments, as `imitation`, and with EnvPool's, which `imitation` does not
take.
"""

import functools
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.clock import Pace, median_paces
from benchmarks.harness import Bench
from benchmarks.peers import PEERS
from benchmarks.rl_runs import SEED, of_training
from rrf.algorithms.imitation.configs import DiscriminatorCfg, GAILCfg
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.schema import Episode, Schema, Vector
from rrf.envs.configs import ControlEnvCfg
from rrf.envs.gymnasium.configs import EnvPoolEnvCfg, GymnasiumEnvCfg
from rrf.networks.configs import plain_mlp
from rrf.policies.control.configs import ActorCriticPackCfg, StateIndStdActorCfg, VNetworkCfg
from rrf.runners.control.imitation_configs import ImitationRunnerCfg

_TASKS = {"Pendulum-v1": "Pendulum-v1", "Hopper-v5": "Hopper-v4"}  # ours -> of its Gymnasium
_NETWORK = {"backbone_cfg": plain_mlp([64, 64], "Tanh"), "obs_normalization": False}
_EXPERT = 10_000  # transitions


def gail_ratio_vs_imitation(bench: Bench) -> list[dict]:
    """Environment steps per CPU-second, learning included."""
    return [row for task in _TASKS for row in _rows(bench, task)]


def settings(env: ControlEnvCfg, dataset: str) -> ImitationRunnerCfg:
    """The settings of `rl_peers`' GAIL; without a gradient penalty, which it does not have."""
    return ImitationRunnerCfg(
        seed=SEED,
        env=env,
        dataset=dataset,
        policy=ActorCriticPackCfg(
            actor_cfg=StateIndStdActorCfg(**_NETWORK), critic_cfg=VNetworkCfg(**_NETWORK)
        ),
        algorithm=GAILCfg(
            discriminator_cfg=DiscriminatorCfg(
                network_cfg=plain_mlp([32, 32], "ReLU"),
                learning_rate=1e-3,
                num_updates=8,
                batch_size=1024,
                gradient_penalty_coef=0.0,
            ),
            use_absorbing_states=False,
            num_learning_epochs=5,
            num_mini_batches=32,
            normalize_advantage_per_mini_batch=True,
            schedule="fixed",
            learning_rate=4e-4,
            gamma=0.95,
            entropy_coef=0.0,
            value_loss_coef=0.5,
            use_clipped_value_loss=False,
            max_grad_norm=0.5,
            adam_eps=1e-5,
            learner_threads=1,
        ),
        num_steps_per_env=256,
    )


def _rows(bench: Bench, task: str) -> list[dict]:
    iterations = bench.size(6, 1)
    envs = (
        GymnasiumEnvCfg(task=task, num_envs=8),
        EnvPoolEnvCfg(task=task, num_envs=8, num_threads=1),
    )
    with tempfile.TemporaryDirectory() as scratch:
        dataset = f"{scratch}/expert"
        env = GymnasiumEnvCfg(task=task, num_envs=1).build()
        _write_expert(Path(dataset), env.interface.observation_dims["policy"], env.num_actions)
        env.close()
        first, second = (functools.partial(settings, env, dataset) for env in envs)
        words = ("--task", _TASKS[task], "--steps", 2048 * iterations)
        ours, with_envpool, peer = median_paces(
            lambda: of_training(first(), 1, iterations),
            lambda: of_training(second(), 1, iterations),
            lambda: bench.pace("imitation-gail", *words),
            repeats=bench.size(3, 1),
        )
    id = f"gail_ratio_vs_imitation_{task.partition('-')[0].lower()}"
    return [_row(bench, id, ours, peer), _row(bench, f"{id}_envpool", with_envpool, peer)]


def _row(bench: Bench, id: str, ours: Pace, peer: Pace) -> dict:
    row = bench.compare(
        id,
        ours.steps_per_cpu_s,
        "env-steps/cpu-s",
        PEERS["imitation"].name,
        peer.steps_per_cpu_s,
        seeds=[SEED],
    )
    return row | {"per_s": round(ours.steps_per_s, 1), "peer_per_s": round(peer.steps_per_s, 1)}


def _write_expert(root: Path, num_states: int, num_actions: int) -> None:
    """Random numbers in place of an expert: how fast one learns does not depend on them."""
    draws = np.random.default_rng(SEED)
    names = [f"{k}" for k in range(max(num_states, num_actions))]
    schema = Schema(
        10,
        (0, 0),
        (),
        Vector(tuple(names[:num_states]), "1"),
        Vector(tuple(names[:num_actions]), "1"),
        has_success=False,
        has_terminated=True,
    )
    episode = Episode(
        images={},
        state=draws.normal(size=(_EXPERT, num_states)).astype(np.float32),
        action=draws.uniform(-1, 1, (_EXPERT, num_actions)).astype(np.float32),
        instruction="imitate",
        source="random:0",
        reward=np.zeros(_EXPERT, np.float32),
        terminated=np.zeros(_EXPERT, bool),
    )
    write_dataset(root, schema, iter([episode]))
