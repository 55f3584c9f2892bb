"""`python -m flows.fitting PRESET GATE MODEL [OVERRIDES]`: what the end of `train-locomotion` would
refuse, said before the training.

It is a program because simulators and torch take a gigabyte, which the flow would keep.
"""

import sys
from collections.abc import Iterable

from rrf import workspace
from rrf.config import first_error
from rrf.evaluation.control_protocol import ControlProtocolCfg
from rrf.evaluation.gates import load_gate
from rrf.presets import resolve
from rrf.registry import load_plugins
from rrf.runners.control_configs import ControlRunnerCfg
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
    from rrf.evaluation.control_evaluate import block_env, check_fit

    cfg, protocol = resolve(preset, overrides), load_gate(gate).protocol
    if not isinstance(cfg, ControlRunnerCfg):
        raise ValueError(f"{preset} trains a policy that sees images; the flow train-vla does that")
    if not isinstance(protocol, ControlProtocolCfg):
        raise ValueError(
            f"protocol '{protocol.name}' is for a policy that sees images, {preset} trains a "
            "state-based policy"
        )
    lineage = environment_lineage(cfg.env.to_dict())
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
    env = cfg.env.replace(num_envs=1).build(seed=0, device="cpu")
    interface = env.interface
    env.close()
    policy = cfg.policy.build(interface).deployable()  # type: ignore[attr-defined]
    with block_env(protocol, 0) as judged:
        check_fit(policy, interface, judged, protocol)


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
