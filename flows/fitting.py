"""`python -m flows.fitting PRESET GATE MODEL [OVERRIDES]`: check before the training what the end
of `train-locomotion` would refuse.

This is a separate program because simulators and torch take a gigabyte of memory, which the flow
would keep.
"""

import sys
from collections.abc import Callable, Iterable

from rrf import workspace
from rrf.config import first_error
from rrf.evaluation.gates.gate import load_gate
from rrf.lookup import load_plugins
from rrf.presets import resolve
from rrf.registry import registration
from rrf.registry.lineage_sources import environment_lineage
from rrf.runners.checkpoints.deployable import CONTROL, described
from rrf.runners.configs import RunnerCfg


def check(preset: str, gate: str, model: str, overrides: Iterable[str] = ()) -> None:
    """Check that the policy of a training run can be evaluated, registered and promoted.

    Args:
        preset: Preset or file of the training run.
        gate: File in configs/gates/.
        model: Name of the model in the registry.
        overrides: "path=value" words.

    Raises:
        ValueError: If the gate cannot be read, if its protocol or the model is for other policies,
            or if the trained policy could not be registered or promoted.
    """
    cfg, protocol = resolve(preset, overrides), load_gate(gate).protocol
    if cfg.policy_kind != CONTROL:
        raise ValueError(
            f"{preset} trains {described(cfg.policy_kind)}; the flow train-vla is for that"
        )
    protocol.check_kind(cfg.policy_kind, f"what {preset} trains")
    lineage = environment_lineage(cfg.to_dict()["env"])
    registration.check_task(model, lineage)
    check_tracked(cfg)
    if lineage.git_revision is None:
        raise ValueError(
            f"{workspace.home()} is not a git repository with a commit, but a promotion needs one; "
            "run `git commit`"
        )
    protocol.build().check_training(cfg)


def check_tracked(cfg: RunnerCfg) -> None:
    """Raise ValueError if a run could not be registered, because MLflow does not know it."""
    if "mlflow" not in cfg.trackers:
        raise ValueError(
            f"trackers is {cfg.trackers}; every version belongs to an MLflow run, so add mlflow"
        )


def or_end(check: Callable[[], None]) -> None:
    """If something does not fit, print one line to stderr and exit with code 2."""
    load_plugins()
    try:
        check()
    except (ValueError, OSError, ImportError) as error:
        sys.stderr.write(f"error: {first_error(error)}\n")
        raise SystemExit(2) from None


if __name__ == "__main__":
    preset, gate, model, *overrides = sys.argv[1:]
    or_end(lambda: check(preset, gate, model, overrides))
