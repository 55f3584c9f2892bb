"""Builds a DAgger run on one machine."""

import typing
from pathlib import Path

from rrf.lineage import Lineage
from rrf.orchestra.inline import ENV_ROLE, InlineBackend, check_division
from rrf.orchestra.inline_run import misfits
from rrf.orchestra.rollout_role import RolloutRole
from rrf.runners.checkpoints import checkpoint
from rrf.runners.dagger.configs import DAggerRunnerCfg
from rrf.runners.dagger.runner import DAggerRunner
from rrf.runners.supervised.parent import policy_of_family

_RECORDING_ROLE = "rrf.orchestra.recording_role:RecordingRole"


def build_runner(
    cfg: DAggerRunnerCfg, run_dir: str | Path, lineage: Lineage | None = None
) -> DAggerRunner:
    """The runner for the policy in `cfg.init_from`.

    Raises:
        ValueError: If there is no checkpoint to start from, if it holds another family of policy,
            if the environment has no expert, or if policy, environment and tasks do not fit
            together.
    """
    start = cfg.check_parent()
    if not cfg.env.has_expert:
        raise ValueError(
            f"{cfg.env.simulator} has no scripted expert that could label states; DAgger needs an "
            "environment with expert_action (rrf.envs.vec_env.ExpertVecEnv), whose config sets "
            "has_expert"
        )
    parent = checkpoint.find(start)
    saved = policy_of_family(parent, cfg.policy)
    cfg = cfg.replace(policy=cfg.policy.fitted_to(saved))
    check_fit(cfg)
    return DAggerRunner(cfg, parent, Backends(cfg), run_dir, lineage)


def check_fit(cfg: DAggerRunnerCfg) -> None:
    """Check that policy, environment and tasks fit together.

    Raises:
        ValueError: If not. The message names every difference.
    """
    executed, predicted = cfg.env.chunk_length, cfg.policy.chunk_length
    wrong = misfits(cfg.policy, cfg.env.replace(chunk_length=predicted), cfg.tasks)
    if executed > predicted:
        wrong.append(
            f"env.chunk_length is {executed}, but the policy predicts {predicted} steps at once"
        )
    if wrong:
        raise ValueError("the run does not fit together: " + "; ".join(wrong))
    check_division(cfg.env.num_envs, cfg.num_workers)


class Backends:
    """Starts the processes that play, for one stage each."""

    def __init__(self, cfg: DAggerRunnerCfg):
        self._cfg = cfg

    def validating(self, policy: Path) -> InlineBackend:
        """Plays the policy in a checkpoint."""
        return self._open(policy, ENV_ROLE)

    def recording(self, policy: Path, beta: float, stream: list[int]) -> InlineBackend:
        """Plays it mixed with the expert, and records."""
        return self._open(policy, _RECORDING_ROLE, beta=beta, stream=stream)

    def _open(self, policy: Path, role: str, **arguments) -> InlineBackend:
        cfg = self._cfg
        loaded: typing.Any = checkpoint.load_policy(policy, cfg.device)
        return InlineBackend(
            cfg.env.replace(draws_final=False),  # no action follows on the last images
            RolloutRole(loaded),
            cfg.num_workers,
            cfg.worker_timeout_s,
            role,
            **arguments,
        )
