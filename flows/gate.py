"""The gate as steps of a flow: evaluate candidate and champion until the gate can decide."""

from pathlib import Path

from prefect.runtime import task_run

from flows import artifacts, names, progress
from flows.evaluate import run_evaluation
from flows.steps import step
from flows.this_run import this_run
from rrf import atomic
from rrf.config import read_yaml
from rrf.evaluation import judging
from rrf.evaluation.gates import gate as gates
from rrf.evaluation.gates.verdicts import Verdict
from rrf.evaluation.results import EvaluationReport
from rrf.tracking import links, registry

EVALUATION, BEFORE = "evaluation.json", "baseline-before-training.json"


@step(name="champion", task_run_name="champion of {model}")
def champion_of(model: str) -> dict | None:
    """The champion's version, its name for commands, and its digest; None without a champion."""
    found = registry.champion(model)
    if found is None:
        return None
    name = f"models:/{model}/{found.version}"
    return {"version": found.version, "policy": name, "digest": found.checkpoint_digest}


def _judge_name() -> str:
    given = task_run.parameters
    text = f"judge {{model}} by {{gate}} look {given['round'] + 1}"
    return names.filled(text, ("gate",), given)


@step(name="judge", task_run_name=_judge_name)
def judge(
    model: str,
    run_id: str | None,
    evaluation: str,
    gate: str,
    round: int,
    theirs: str | None,
    version: str | None,
    lineage: dict,
    before: str | None = None,
) -> dict:
    """Judge an evaluation, compared with the champion's evaluation on the same initial states.

    Args:
        model: The model that the candidate will become a version of.
        run_id: The MLflow run that trained the candidate.
        evaluation: Directory of the candidate's evaluation.
        gate: File in configs/gates/.
        round: 0 at the first look.
        theirs: Directory of the champion's evaluation, if there is a champion.
        version: The champion's version.
        lineage: The lineage of the candidate.
        before: Directory of the evaluation of the policy that training started from. The report
            compares the candidate with it.

    Returns:
        The verdict as plain data.
    """
    say = progress.reporter("gate")
    if before:
        parent = Path(before, EVALUATION).read_bytes()
        atomic.write_bytes(Path(evaluation) / BEFORE, parent)
    cfg = gates.load_gate(gate)
    addresses = links.report_links(run_id, lineage, this_run())
    verdict = judging.judge(
        evaluation,
        cfg,
        theirs,
        round,
        version,
        lineage,
        subject=f"candidate for {model}",
        links=addresses,
    )
    artifacts.show_verdict(verdict, model, addresses, Path(evaluation))
    say(f"look {round + 1} of {verdict.rounds}: {verdict.outcome}")
    return verdict.to_dict()


def protocol_file(gate: str) -> str:
    """The file of the protocol that a gate names.

    Raises:
        ValueError: For a gate that cannot be read or that contains its protocol.
    """
    gates.load_gate(gate)
    name = read_yaml(gate)["protocol"]
    if not isinstance(name, str):
        raise ValueError(
            f"{gate} contains its protocol, but flows need the protocol in a file: move it to "
            "configs/protocols/NAME.yaml, and write `protocol: NAME` into the gate"
        )
    return str(Path(gate).parent.parent / "protocols" / f"{name}.yaml")


def evaluate_and_judge(
    policy: dict, gate: str, model: str, lineage: dict, before: str | None = None
) -> tuple[str, Verdict]:
    """Evaluate and judge a policy that `flows.training.train` returned.

    After each hold it is evaluated on more initial states and judged again.

    Returns:
        The directory of the evaluation, and the last verdict.
    """
    cfg = gates.load_gate(gate)
    protocol = protocol_file(gate)
    champion = champion_of(model)
    version = champion["version"] if champion else None
    extra_episodes, round = max(0, cfg.looks[0] - cfg.protocol.episodes_per_task), 0
    while True:
        evaluation = theirs = run_evaluation(
            policy["checkpoint"], protocol, extra_episodes, look=round + 1
        )
        digest = EvaluationReport.load(evaluation).checkpoint_digest
        if champion is None:
            theirs = None
        elif champion["digest"] != digest:
            theirs = run_evaluation(champion["policy"], protocol, extra_episodes, look=round + 1)
        who = (model, policy["run_id"])
        answer = judge(*who, evaluation, gate, round, theirs, version, lineage, before)
        verdict = Verdict.from_dict(answer)
        if verdict.outcome != "hold":
            return evaluation, verdict
        extra_episodes, round = extra_episodes + verdict.more_episodes_per_task, round + 1
