"""`evaluate`: evaluate a policy closed loop under a protocol.

The training flows and the nightly benchmark use its step.
"""

from pathlib import Path
from typing import Annotated

from prefect import flow
from prefect.runtime import task_run
from pydantic import Field

from flows import artifacts, commands, names, notify, progress, slots
from flows.steps import Word, step
from flows.this_run import completed
from rrf.evaluation.candidate import candidate_at
from rrf.evaluation.directory import Evaluator
from rrf.evaluation.protocols.base import Resources
from rrf.evaluation.protocols.files import load_protocol
from rrf.evaluation.results import REPORT, Evaluation
from rrf.registry import links, versions
from rrf.runners.checkpoints import checkpoint

PolicyName = Annotated[
    Word, Field(description="A checkpoint directory, or NAME@alias from the registry.")
]
ProtocolFile = Annotated[Word, Field(description="A file in configs/protocols/.")]


def _task_name() -> str:
    given = task_run.parameters
    text = "evaluate {policy} under {protocol}" + (" look {look}" if given["look"] else "")
    return names.filled(text, ("policy", "protocol"), given)


@step(name="evaluate", task_run_name=_task_name)
def run_evaluation(
    policy: str,
    protocol: str,
    extra_episodes: int = 0,
    out: str | None = None,
    look: int | None = None,
    profile: bool = False,
) -> str:
    """Evaluate in a separate process; returns the directory of evaluation.json, report and videos.
    Where that is there already, no process is started, and no card waited for.

    `look` is the number of the gate's look, which is shown in the name of the task run. With
    `profile`, latency and memory of the policy as it is served are measured here too.
    """
    words = ["--protocol", protocol, "--extra-episodes", str(extra_episodes)]
    words += ["--out", out] if out else []
    words += ["--profile", "here"] if profile else []

    def evaluate_on(card: slots.Card) -> dict:
        how = {"env": card.env, "stop_when": card.wanted}
        return commands.rrf("evaluate", "eval", policy, *words, **how)

    folder = None if out or profile else _evaluated(policy, protocol, extra_episodes)
    if folder:
        progress.reporter("evaluate")(f"reused {folder}")
    else:
        folder = Path(slots.on_gpu(evaluate_on)["evaluation"])
    evaluation = Evaluation.load(folder)
    artifacts.show_evaluation(evaluation, folder / REPORT, links.policy_links(policy))
    artifacts.show_video(evaluation, folder)
    return str(folder)


def _evaluated(policy: str, protocol: str, extra_episodes: int) -> Path | None:
    """The directory in which `rrf eval` would find everything of a checkpoint done; None if it
    would not, or would say what is wrong.
    """
    if versions.is_reference(policy):
        return None
    try:
        candidate = candidate_at(checkpoint.find(policy), policy)
        cfg = load_protocol(protocol)
        cfg.check_kind(candidate.kind, policy)
        evaluator = Evaluator(cfg.here(candidate.checkpoint).extended(extra_episodes), Resources())
        folder = evaluator.folder(candidate)
        done = evaluator.finished(candidate, folder) and (folder / REPORT).is_file()
    except (ValueError, OSError, ImportError):
        return None
    return folder if done else None


@flow(
    name="evaluate",
    flow_run_name=names.of_flow("evaluate {policy} under {protocol}", "policy", "protocol"),
    **notify.OF_EVERY_FLOW,
)
def evaluate(
    policy: PolicyName = "metaworld-compact@champion",
    protocol: ProtocolFile = "configs/protocols/metaworld-demo.yaml",
    extra_episodes: Annotated[int, Field(ge=0, le=50)] = 0,
) -> dict:
    """Evaluate a policy closed loop under a fixed protocol.

    Args:
        policy: A checkpoint directory, or NAME@alias from the registry.
        protocol: File in configs/protocols/.
        extra_episodes: Number of initial states per task beyond those of the protocol.
    """
    folder = run_evaluation(policy, protocol, extra_episodes)
    success = str(Evaluation.load(folder).overall)
    return completed(f"{policy}: {success}", {"evaluation": folder, "success": success})
