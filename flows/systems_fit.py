"""`python -m flows.systems_fit JSON`: check before the training of `train-hierarchy` that the three
systems will fit each other.

This is a separate program because torch and simulators take memory, which the flow would keep.
"""

import json
import sys
import typing
from collections.abc import Sequence
from pathlib import Path

from flows.fitting import or_end
from rrf import workspace
from rrf.data.conversion.dataset_cfg import load_dataset_cfg
from rrf.data.dataset.layout import read_info, schema_of
from rrf.envs.humanoid import scene
from rrf.envs.humanoid.command import COMMAND
from rrf.evaluation.gates.gate import load_gate
from rrf.hierarchy import combination
from rrf.hierarchy.interfaces import check_fits, sent_by, taken_by
from rrf.policies.vla.psi0_configs import Psi0PolicyCfg
from rrf.presets import resolve


def check(
    gate: str,
    upper: str | None,
    below: str | None,
    dataset: str | None,
    like: str,
    sft: Sequence[str],
) -> None:
    """Check that System 1 sends, or will send, what System 0 takes, and that the demonstrations are
    of the robot that the protocol plays.

    Args:
        gate: File in configs/gates/; it names the protocol.
        upper: Checkpoint of Systems 2 and 1, if they are given.
        below: That of System 0, if it is given; a G1's that is trained takes the whole command.
        dataset: Published demonstrations, if they are given.
        like: Otherwise, a dataset whose names and units those to be recorded take.
        sft: Preset or file of the training of Systems 2 and 1, and "path=value" words.

    Raises:
        ValueError: If not; the message names what differs.
    """
    takes = {signal.name: signal for signal in COMMAND}
    if below:
        takes = taken_by(below, scene.JOINTS)
    if upper:
        check_fits(sent_by(combination.upper_policy(Path(upper)), {}), takes)
        return
    run: typing.Any = resolve(sft[0], sft[1:])
    if not isinstance(run.policy, Psi0PolicyCfg):
        raise ValueError(
            f"sft is {sft[0]}, which trains a {type(run.policy).__name__}, not a policy in two "
            "parts; e.g. psi0-g1-table"
        )
    if dataset:
        schema = schema_of(read_info(workspace.home() / "datasets" / dataset))
    else:
        schema = load_dataset_cfg(like).schema()
    try:
        policy = run.policy.fitted(schema)
        check_fits(sent_by(policy, {}), takes)
        load_gate(gate).protocol.build().check_training(run.replace(policy=policy))
    except ValueError as error:
        raise ValueError(f"dataset {dataset or like}: {error}") from error


if __name__ == "__main__":
    or_end(lambda: check(**json.loads(sys.argv[1])))
