"""Settings for a Gymnasium task that has none of its own.

A task that a preset was made for gets that preset. Any other task gets defaults for its kind. They
follow what Stable-Baselines3's zoo uses for most tasks of that kind: PPO with several environments,
normalised observations and rewards and a learning rate that falls to 0, or SAC with the settings of
its paper.
"""

import dataclasses
import re
from collections.abc import Callable

from rrf.algorithms.imitation.configs import GAILCfg
from rrf.algorithms.model_based.configs import MBPOCfg
from rrf.algorithms.off_policy.configs import SACCfg
from rrf.algorithms.offline.configs import CloningCfg, CQLCfg, IQLCfg, TD3BCCfg
from rrf.algorithms.on_policy.configs import PPOCfg
from rrf.algorithms.planning.configs import TDMPC2Cfg
from rrf.config import Cfg
from rrf.envs.configs import task_id
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg, RegisteredEnvCfg
from rrf.envs.gymnasium.registered import TaskKind
from rrf.networks.configs import plain_mlp
from rrf.policies.control.configs import (
    ActorCriticPackCfg,
    CategoricalActorCfg,
    StateIndStdActorCfg,
    VNetworkCfg,
)
from rrf.presets import PRESETS
from rrf.presets.gymnasium import as_variant, ppo_of_eight
from rrf.presets.model_based import mbpo, tdmpc2
from rrf.presets.off_policy import discrete_sac
from rrf.presets.offline import OFFLINE, offline
from rrf.runners.control.configs import ControlRunnerCfg, OnPolicyRunnerCfg
from rrf.runners.control.imitation_configs import ImitationRunnerCfg
from rrf.runners.control.off_policy_configs import OffPolicyRunnerCfg

ALGORITHMS: dict[str, type[Cfg]] = {
    "ppo": PPOCfg,
    "sac": SACCfg,
    "mbpo": MBPOCfg,
    "tdmpc2": TDMPC2Cfg,
    "gail": GAILCfg,
    "iql": IQLCfg,
    "cql": CQLCfg,
    "td3-bc": TD3BCCfg,
    "bc": CloningCfg,
}
"""The names of --algorithm -> the class of their settings."""
_SMALL = plain_mlp([64, 64], "Tanh")
_WALKER = plain_mlp([512, 256, 128], "ELU")


@dataclasses.dataclass(frozen=True)
class Choice:
    """A config, and in a few words where it comes from."""

    cfg: ControlRunnerCfg
    origin: str


def preset_for(task: str, algorithm: str) -> Choice | None:
    """The preset that was made for exactly this task and algorithm; None if there is none."""
    longer = tuple(f"-{other}" for other in ALGORITHMS if other.endswith(f"-{algorithm}"))
    # The shortest name first: pendulum-ppo, then its variants such as pendulum-model-ppo.
    for name in sorted(PRESETS, key=len):
        if name.endswith(f"-{algorithm}") and not name.endswith(longer):
            cfg = PRESETS.get(name)()
            is_made_for_it = isinstance(cfg, ControlRunnerCfg) and cfg.env.task == task
            if is_made_for_it and not getattr(cfg.env, "hidden", None):
                return Choice(cfg, f"preset {name}")
    return None


def defaults_for(task: str, kind: TaskKind, algorithm: str) -> Choice:
    """Settings for a task of this kind.

    Raises:
        ValueError: If the algorithm cannot train such a task.
    """
    if algorithm != "ppo":
        shown = algorithm.upper()
        if kind.num_choices is not None and algorithm != "sac":
            raise ValueError(
                f"{task} has {kind.num_choices} discrete actions, which {shown} does not support; "
                "train it with --algorithm ppo or --algorithm sac"
            )
        if kind.is_mjlab:
            raise ValueError(
                f"{task} is an environment of mjlab, for which there are no defaults of {shown}; "
                "train it with --algorithm ppo"
            )
        name = _name(task, algorithm)
        if kind.num_choices is not None:
            cfg = discrete_sac(name, task, max_iterations=500)
            return Choice(cfg, f"SAC's defaults for {kind.num_choices} actions")
        made: dict[str, Callable[[str, str], ControlRunnerCfg]] = {
            "sac": _real_sac,
            "gail": _gail,
            "mbpo": mbpo,
            "tdmpc2": tdmpc2,
        }
        is_offline = algorithm in OFFLINE
        cfg = offline(name, task, algorithm) if is_offline else made[algorithm](name, task)
        return Choice(cfg, f"{shown}'s defaults for real actions")
    if kind.is_mjlab:
        return Choice(_mjlab_ppo(task), "PPO's defaults for robots of mjlab")
    if kind.num_choices is None:
        return Choice(_real_ppo(task, kind), "PPO's defaults for real actions")
    return Choice(_discrete_ppo(task, kind), f"PPO's defaults for {kind.num_choices} actions")


def _discrete_ppo(task: str, kind: TaskKind) -> OnPolicyRunnerCfg:
    """Half a million steps."""
    actor = CategoricalActorCfg(backbone_cfg=_SMALL, obs_normalization=not kind.is_one_hot)
    name = _name(task, "ppo")
    return ppo_of_eight(name, task, actor, 0.01, max_iterations=245, save_interval=50)


def _real_ppo(task: str, kind: TaskKind) -> OnPolicyRunnerCfg:
    """A million steps."""
    actor = StateIndStdActorCfg(backbone_cfg=_SMALL, obs_normalization=not kind.is_one_hot)
    return ppo_of_eight(_name(task, "ppo"), task, actor, max_iterations=489, save_interval=50)


def _mjlab_ppo(task: str) -> OnPolicyRunnerCfg:
    """The settings of go1-rough-ppo, for as many environments as the task was registered with."""
    return OnPolicyRunnerCfg(
        experiment_name=_name(task, "ppo"),
        env=RegisteredEnvCfg(task=task),
        policy=ActorCriticPackCfg(
            actor_cfg=StateIndStdActorCfg(backbone_cfg=_WALKER),
            critic_cfg=VNetworkCfg(backbone_cfg=_WALKER),
        ),
        algorithm=PPOCfg(entropy_coef=0.01, learning_rate=1e-3, desired_kl=0.01),
        num_steps_per_env=24,
        max_iterations=1500,
    )


def _real_sac(name: str, task: str) -> OffPolicyRunnerCfg:
    """Half a million steps; an iteration has 1,000."""
    return OffPolicyRunnerCfg(
        experiment_name=name,
        env=GymnasiumEnvCfg(task=task),
        algorithm=SACCfg(warmup_steps=10_000),
        max_iterations=500,
        save_interval=50,
        num_checkpoints_kept=1,  # the replay buffer makes checkpoints large
        replay_size=500_000,
    )


def _gail(name: str, task: str) -> ImitationRunnerCfg:
    """A million steps."""
    actor = StateIndStdActorCfg(backbone_cfg=_SMALL)
    cfg = ppo_of_eight(name, task, actor, max_iterations=489, save_interval=50)
    shared = {name: value for name, value in vars(cfg).items() if name != "algorithm"}
    return ImitationRunnerCfg(**shared, algorithm=as_variant(cfg.algorithm, GAILCfg))


def _name(task: str, algorithm: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", f"{task_id(task)}-{algorithm}".lower()).strip("-")
