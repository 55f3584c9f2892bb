"""The gate as steps of a flow: evaluate candidate and champion until the gate can decide."""

from pathlib import Path

from prefect.runtime import task_run

from flows import artifacts, names, progress
from flows.evaluate import run_evaluation
from flows.steps import step
from flows.this_run import this_run
from rrf import atomic, workspace
from rrf.config import read_yaml
from rrf.evaluation import judging
from rrf.evaluation.gates import gate as gates
from rrf.evaluation.gates.verdicts import Verdict
from rrf.evaluation.results import Evaluation
from rrf.lineage import Lineage
from rrf.registry import links, promotion, registration, versions
from rrf.registry.versions import Version
from rrf.run_directory import TrainingResult

EVALUATION, BEFORE = "evaluation.json", "baseline-before-training.json"


@step(name="champion", task_run_name="champion of {model}")
def champion_of(model: str) -> Version | None:
    """The champion; None if there is none yet."""
    return versions.champion(model)


@step(name="rivals", task_run_name="champions of {model}")
def rivals_of(model: str) -> dict[str, Version]:
    """The champion, and the best champion so far if that is another one."""
    return promotion.rivals(model)


def gate_for(model: str, given: str | None, first: str) -> str:
    """The file of the gate that judges candidates for a model.

    Args:
        model: Name of the model in the registry.
        given: The file that the user asks for; None for the gate that rules the model.
        first: The file for a new model.

    Raises:
        ValueError: If another gate rules the model, or the file of its gate is not here.
    """
    ruling = promotion.gate_of(model)
    if ruling and not given and not workspace.find(ruling.file).is_file():
        raise ValueError(
            f"the gate that rules '{model}', {ruling.file}, is not in this workspace; bring the "
            f"file here, or record another one: rrf models gate {model} FILE --reason '...'"
        )
    file = given or (ruling.file if ruling else first)
    promotion.check_recordable(model, file)
    if why := promotion.other_gate(model, file):
        raise ValueError(why)
    return file


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
    rivals: dict[str, tuple[str, str]],
    lineage: Lineage,
    before: str | None = None,
) -> Verdict:
    """Judge an evaluation, compared with those of the champions on the same initial states.

    Args:
        model: The model that the candidate will become a version of.
        run_id: The MLflow run that trained the candidate.
        evaluation: Directory of the candidate's evaluation.
        gate: File in configs/gates/.
        round: 0 at the first look.
        rivals: "champion" and "best" -> the directory of its evaluation, and its version.
        lineage: The lineage of the candidate.
        before: Directory of the evaluation of the policy that training started from. The report
            compares the candidate with it.
    """
    say = progress.reporter("gate")
    if before:
        parent = Path(before, EVALUATION).read_bytes()
        atomic.write_bytes(Path(evaluation) / BEFORE, parent)
    cfg, digest = gates.load_gate(gate), Evaluation.load(evaluation).checkpoint_digest
    addresses = links.report_links(run_id, lineage, this_run(), folder=Path(evaluation))
    verdict = judging.judge(
        evaluation,
        cfg,
        rivals,
        round,
        promotion.attempt_of(model, digest),
        lineage,
        subject=f"candidate for {model}",
        links=addresses,
        trial=promotion.trial_verdict(model, digest, cfg),
        keep_report=True,
    )
    artifacts.show_verdict(verdict, model, addresses, Path(evaluation))
    say(f"look {round + 1} of {verdict.rounds}: {verdict.outcome}")
    return verdict


def protocol_file(gate: str) -> str:
    """The file of the protocol that a gate names.

    Raises:
        ValueError: For a gate that cannot be read or that contains its protocol.
    """
    gates.load_gate(gate)
    name = read_yaml(workspace.find(gate))["protocol"]
    if not isinstance(name, str):
        raise ValueError(
            f"{gate} contains its protocol, but flows need the protocol in a file: move it to "
            "configs/protocols/NAME.yaml, and write `protocol: NAME` into the gate"
        )
    return str(gates.protocol_path(gate, name))


@step(name="store", task_run_name="store evaluations of the champions of {model}")
def store_evaluations(model: str, rivals: dict[str, tuple[str, str]]) -> None:
    """Store the evaluations that a candidate was compared with, for its promotion."""
    for folder, version in rivals.values():
        registration.store_evaluation(model, version, folder, attempt=False)


def evaluate_and_judge(
    policy: TrainingResult, gate: str, model: str, lineage: Lineage, before: str | None = None
) -> tuple[str, Verdict]:
    """Evaluate and judge a policy that `flows.training.train` returned.

    After each hold it is evaluated on more initial states and judged again.

    Returns:
        The directory of the evaluation, and the last verdict.
    """
    cfg = gates.load_gate(gate)
    protocol = protocol_file(gate)
    rivals = rivals_of(model)
    extra_episodes, round = max(0, cfg.looks[0] - cfg.protocol.episodes_per_task), 0
    while True:
        evaluation = run_evaluation(
            policy.checkpoint,
            protocol,
            extra_episodes,
            look=round + 1,
            profile=bool(cfg.serving),
        )
        digest = Evaluation.load(evaluation).checkpoint_digest
        compared: dict[str, tuple[str, str]] = {}
        for role, rival in rivals.items():
            folder = evaluation
            if rival.checkpoint_digest != digest:
                folder = run_evaluation(rival.reference, protocol, extra_episodes, look=round + 1)
            compared[role] = (folder, rival.version)
        verdict = judge(model, policy.run_id, evaluation, gate, round, compared, lineage, before)
        if not verdict.more_episodes_per_task:
            if compared:
                store_evaluations(model, compared)
            return evaluation, verdict
        extra_episodes, round = extra_episodes + verdict.more_episodes_per_task, round + 1
