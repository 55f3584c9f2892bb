"""Check before the training what the end of a flow would refuse.

`python -m flows.fitting PRESET GATE MODEL [OVERRIDES]` does so for `train-locomotion`. This is a
separate program because simulators and torch take a gigabyte of memory, which the flow would keep.
"""

import sys
from collections.abc import Callable, Iterable, Mapping

from rrf import workspace
from rrf.config import first_error
from rrf.evaluation.gates.gate import load_gate
from rrf.lineage import Lineage
from rrf.lookup import load_plugins
from rrf.presets import resolve
from rrf.registry import registration
from rrf.registry.lineage_sources import commit, environment_lineage
from rrf.runners.checkpoints.deployable import CONTROL, VLA, described
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
    check_committed(lineage.git_revision)
    protocol.build().check_training(cfg)


def check_stage(stage: str, target: str, overrides: Iterable[str], kind: str) -> RunnerCfg:
    """The config of one of the trainings of a flow.

    Args:
        stage: Its name in the flow.
        target: Preset or training file.
        overrides: "path=value" words.
        kind: Of the policies that the stage trains.

    Raises:
        ValueError: If it cannot be read, trains another kind of policy, or could not be registered.
    """
    try:
        cfg = resolve(target, overrides)
        check_tracked(cfg)
    except ValueError as error:
        raise ValueError(f"{stage}: {first_error(error)}") from error
    if cfg.policy_kind != kind:
        raise ValueError(
            f"{stage} is {target}, which trains {described(cfg.policy_kind)}; give one that trains "
            f"{described(kind)}"
        )
    return cfg


def check_vla(gate: str, trained: Mapping[str, tuple[str, Iterable[str]]], model: str) -> None:
    """Check that policies that see images can be trained in stages, and the last one be evaluated
    and registered.

    Args:
        gate: File in configs/gates/.
        trained: Stage -> its preset or file, and "path=value" words, in order.
        model: Name of the model in the registry.

    Raises:
        ValueError: As `check`.
    """
    cfgs = [check_stage(stage, *of, VLA) for stage, of in trained.items()]
    load_gate(gate).protocol.build().check_training(cfgs[-1])
    registration.check_task(model, Lineage())
    check_committed(commit(workspace.home())[0])


def check_tracked(cfg: RunnerCfg) -> None:
    """Raise ValueError if a run could not be registered, because MLflow does not know it."""
    if "mlflow" not in cfg.trackers:
        raise ValueError(
            f"trackers is {cfg.trackers}; every version belongs to an MLflow run, so add mlflow"
        )


def check_committed(revision: str | None) -> None:
    """Raise ValueError if `revision`, the commit of the workspace, is None: a version names one."""
    if revision is None:
        raise ValueError(
            f"{workspace.home()} is not a git repository with a commit, but a promotion needs one; "
            "run `git commit`"
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
