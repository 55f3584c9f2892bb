"""A run of two processes of which the second meets NaN once: in a reward, or (its observation being
huge) in a value, as the folder is called.

Each leaves how many iterations it did, how often it went back, and its learning rate.
"""

import json
from pathlib import Path

from rrf.algorithms import PPOCfg
from rrf.networks import plain_mlp
from rrf.policies import ActorCriticPackCfg, StateIndStdActorCfg, VNetworkCfg
from rrf.runners import GuardCfg, OnPolicyRunnerCfg, process_group
from tests.envs.toy import Corridor, CorridorCfg, Poisoned

SMALL = plain_mlp([16], "ELU")


class Huge(Corridor):
    """After its 40th step, the last of a rollout, one observation is too large for the critic."""

    num_steps = 0

    def step(self, actions):
        observations, *rest = super().step(actions)
        self.num_steps += 1
        if self.num_steps == 40:
            observations["critic"][3] = 3e38
        return observations, *rest


def leave_facts(folder: Path) -> None:
    rank = process_group.rank()
    cfg = OnPolicyRunnerCfg(
        env=CorridorCfg(num_envs=8),
        policy=ActorCriticPackCfg(
            actor_cfg=StateIndStdActorCfg(backbone_cfg=SMALL),
            critic_cfg=VNetworkCfg(backbone_cfg=SMALL),
        ),
        algorithm=PPOCfg(schedule="fixed"),
        guard=GuardCfg(on_nan="rollback"),
        num_steps_per_env=10,
        max_iterations=6,
        save_interval=2,
    )
    env = Corridor(cfg.env)
    if rank == 1:
        env = Huge(cfg.env) if folder.name == "value" else Poisoned(cfg.env, 35)
    runner = cfg.build(folder / "run", env=env)
    result = runner.run()
    found = [result["steps"], runner.num_rollbacks, result["metrics"]["train/learning_rate"]]
    (folder / f"{rank}.json").write_text(json.dumps(found))
