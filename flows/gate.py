"""The gate as steps of a flow: evaluate candidate and champion until there is enough to tell."""

from pathlib import Path

from flows import artifacts, progress
from flows.evaluate import run_evaluation
from flows.steps import step
from rrf import atomic
from rrf.config import read_yaml
from rrf.evaluation import judging
from rrf.evaluation.gates import gate as gates
from rrf.evaluation.gates.verdicts import Verdict
from rrf.evaluation.results import EvaluationReport
from rrf.tracking import registry

EVALUATION, BEFORE = "evaluation.json", "baseline-before-training.json"


@step(name="champion")
def champion_of(model: str) -> dict | None:
    """The champion's version, what to call it by, and its digest; None if there is none."""
    found = registry.champion(model)
    if found is None:
        return None
    name = f"models:/{model}/{found.version}"
    return {"version": found.version, "policy": name, "digest": found.checkpoint_digest}


@step(name="judge", task_run_name="judge-look-{round}")
def judge(
    evaluation: str,
    gate: str,
    round: int,
    theirs: str | None,
    version: str | None,
    lineage: dict,
    before: str | None = None,
) -> dict:
    """The gate's verdict on an evaluation, beside the champion's of the same initial states.

    `before` is the evaluation of the policy that training started from; the report compares.
    """
    say = progress.reporter("gate")
    if before:
        parent = Path(before, EVALUATION).read_bytes()
        atomic.write_bytes(Path(evaluation) / BEFORE, parent)
    cfg = gates.load_gate(gate)
    verdict = judging.judge(evaluation, cfg, theirs, round, version, lineage)
    artifacts.show_verdict(verdict)
    say(f"look {round + 1} of {verdict.rounds}: {verdict.outcome}")
    return verdict.to_dict()


def protocol_file(gate: str) -> str:
    """The file of the protocol that a gate names.

    Raises:
        ValueError: For a gate that cannot be read, or holds its protocol itself.
    """
    gates.load_gate(gate)
    name = read_yaml(gate)["protocol"]
    if not isinstance(name, str):
        raise ValueError(
            f"{gate} holds its protocol itself, flows evaluate by a file: write it to "
            "configs/protocols/NAME.yaml, and `protocol: NAME` into the gate"
        )
    return str(Path(gate).parent.parent / "protocols" / f"{name}.yaml")


def evaluate_and_judge(
    checkpoint: str, gate: str, model: str, lineage: dict, before: str | None = None
) -> tuple[str, Verdict]:
    """Evaluate and judge, with more initial states after each hold: evaluation and last verdict."""
    cfg = gates.load_gate(gate)
    protocol = protocol_file(gate)
    champion = champion_of(model)
    version = champion["version"] if champion else None
    extra_episodes, round = max(0, cfg.looks[0] - cfg.protocol.episodes_per_task), 0
    while True:
        evaluation = theirs = run_evaluation(checkpoint, protocol, extra_episodes)
        digest = EvaluationReport.load(evaluation).checkpoint_digest
        if champion is None:
            theirs = None
        elif champion["digest"] != digest:
            theirs = run_evaluation(champion["policy"], protocol, extra_episodes)
        answer = judge(evaluation, gate, round, theirs, version, lineage, before)
        verdict = Verdict.from_dict(answer)
        if verdict.outcome != "hold":
            return evaluation, verdict
        extra_episodes, round = extra_episodes + verdict.more_episodes_per_task, round + 1
