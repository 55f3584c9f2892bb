"""`python -m flows.fitting PRESET GATE MODEL [OVERRIDES]`: what the end of `train-locomotion` would
refuse, said before the training.

It is a program because simulators and torch take a gigabyte, which the flow would keep.
"""

import sys
from collections.abc import Iterable

from rrf import workspace
from rrf.config import first_error
from rrf.evaluation.gates.gate import load_gate
from rrf.presets import resolve
from rrf.registry import load_plugins
from rrf.runners.checkpoints.deployable import CONTROL, described
from rrf.tracking import registry
from rrf.tracking.lineage import environment_lineage


def check(preset: str, gate: str, model: str, overrides: Iterable[str] = ()) -> None:
    """
    Args:
        preset: Preset or file of the training run.
        gate: File of configs/gates/.
        model: Name of the model in the registry.
        overrides: "path=value" words.

    Raises:
        ValueError: If the gate cannot be read, its protocol or the model is for other policies, or
            what is trained could be no version, or none to promote.
    """
    cfg, protocol = resolve(preset, overrides), load_gate(gate).protocol
    if cfg.policy_kind != CONTROL:
        raise ValueError(
            f"{preset} trains {described(cfg.policy_kind)}; the flow train-vla does that"
        )
    protocol.check_kind(cfg.policy_kind, f"what {preset} trains")
    lineage = environment_lineage(cfg.to_dict()["env"])
    registry.check_task(model, lineage)
    if "mlflow" not in cfg.trackers:
        raise ValueError(
            f"trackers is {cfg.trackers}; a version belongs to an MLflow run, so add mlflow"
        )
    if lineage["git_revision"] is None:
        raise ValueError(
            f"{workspace.home()} is no git repository with a commit, without which no version is "
            "promoted; run `git commit`"
        )
    protocol.check_training(cfg)


def main() -> None:
    """Ends in one line on stderr and exit code 2 where something does not fit."""
    load_plugins()
    preset, gate, model, *overrides = sys.argv[1:]
    try:
        check(preset, gate, model, overrides)
    except (ValueError, OSError, ImportError) as error:
        sys.stderr.write(f"error: {first_error(error)}\n")
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
