"""`train-hierarchy`: train the three systems of a robot apart, join them, judge and register the
combination as one policy; promote it if it passes.
"""

import json
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated

from prefect import flow
from prefect.runtime import flow_run
from pydantic import Field

from flows import artifacts, commands, demonstrations, names, notify
from flows.cost import Cost, Meter
from flows.evaluate import PolicyName, run_evaluation
from flows.fitting import check_committed, check_stage
from flows.gate import gate_for, protocol_file
from flows.ingest import DatasetName, bring_dataset, describe
from flows.promote import ModelName
from flows.steps import Word, step
from flows.this_run import this_run
from flows.train_vla import Overrides, by_stage, datasets_behind
from flows.training import (
    BudgetField,
    GateFile,
    TrainFile,
    as_words,
    conclude,
    run_id_of,
    train,
    within_budget,
)
from rrf import atomic, workspace
from rrf.envs.humanoid.whole_body_configs import WholeBodyEnvCfg
from rrf.evaluation.gates.gate import load_gate
from rrf.evaluation.vla.configs import ProtocolCfg
from rrf.lineage import Lineage
from rrf.registry import loading, registration, versions
from rrf.registry.lineage_sources import commit, environment_lineage
from rrf.run_directory import RUN, TrainingResult, write_facts
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.deployable import (
    CONTROL,
    VLA,
    copy_deployable,
    deployable_digest,
    described,
    kind_of,
    load_lineage,
)

NEW_MODEL_GATE = "configs/gates/g1-table.yaml"
STAGES = ("balance", "sft", "rl")


def _trained(given: Mapping[str, typing.Any]) -> list[str]:
    """The stages of training that a flow run with these parameters has."""
    is_trained = {
        "balance": given["system0"] is None,
        "sft": given["system1"] is None,
        "rl": given["rl"] is not None,
    }
    return [stage for stage in STAGES if is_trained[stage]]


def _run_name() -> str:
    given = flow_run.parameters
    stages = ", ".join(_trained(given)) or "joined"
    return f"train-hierarchy {given['model']}: {stages}"


@flow(name="train-hierarchy", flow_run_name=_run_name, **notify.OF_EVERY_FLOW)
@within_budget
def train_hierarchy(
    system0: PolicyName | None = None,
    system1: PolicyName | None = None,
    dataset: DatasetName | None = None,
    balance: TrainFile = "g1-whole-body-ppo",
    sft: TrainFile = "psi0-g1-table",
    rl: TrainFile | None = None,
    tasks: list[Word] | None = None,
    episodes: Annotated[int, Field(ge=1, le=1000)] = 40,
    like: DatasetName = "g1-table-demo",
    gate: GateFile | None = None,
    model: ModelName = "g1-table",
    body: ModelName = "g1-whole-body",
    overrides: Overrides = None,
    budget: BudgetField = None,
) -> dict:
    """Train System 0, record demonstrations through it, train Systems 2 and 1 on them, and join all
    three; evaluate, judge and register the combination; promote it if it passes.

    Args:
        system0: A System 0 to take instead of training one: a checkpoint, or NAME@alias.
        system1: A policy whose Systems 2 and 1 are taken instead of training them: a checkpoint, or
            NAME@alias, which may be a combination.
        dataset: Demonstrations to learn from, a file in configs/datasets/ without .yaml. null
            records them through System 0.
        balance: Preset or file of the training of System 0.
        sft: Preset or file of the training of Systems 2 and 1.
        rl: Preset or file of their reinforcement learning through System 0; null for none.
        tasks: Tasks to record; null for those of the gate's protocol.
        episodes: Demonstrations to record of each task.
        like: A dataset whose names and units the recorded one takes.
        gate: File in configs/gates/; it names the protocol too. By default it is the gate that
            rules the model, and for a new model g1-table.yaml.
        model: Name of the model in the registry.
        body: Name of the model that a System 0 trained here is registered as, by itself.
        overrides: Dotted overrides that begin with the stage: balance, sft or rl.
        budget: What the trainings may use together, with earlier attempts, e.g. {"gpu_hours": 8}.
    """
    stages = _trained({"system0": system0, "system1": system1, "rl": rl})
    changes = by_stage(overrides or {}, stages)
    if system1 and (dataset or tasks):
        raise ValueError(
            f"system1 is {system1}, so nothing learns from {'dataset' if dataset else 'tasks'}; "
            "leave one of them out"
        )
    if dataset and tasks:
        raise ValueError(f"dataset is {dataset}, so no tasks are recorded; leave one of them out")
    gate = gate_for(model, gate, NEW_MODEL_GATE)
    targets = {"balance": balance, "sft": sft, "rl": rl}
    trained = {stage: (targets[stage], changes[stage]) for stage in stages}
    protocol, results, used = check(gate, tasks or [], trained, model, body), {}, Cost()
    upper = at_hand("system1", system1, VLA) if system1 else None
    below = by_digest(at_hand("system0", system0, CONTROL)) if system0 else None
    if dataset:
        bring_dataset(dataset)
    fit(
        gate=gate,
        upper=upper and str(upper),
        below=below and str(below),
        dataset=dataset,
        like=like,
        sft=[sft, *as_words(changes["sft"])] if upper is None else [],
    )
    if below is None:
        results["balance"] = train("balance", balance, changes["balance"], budget)
        used += Meter(balance, changes["balance"]).cost
        register_system0(body, results["balance"])
        below = by_digest(Path(results["balance"].checkpoint))
    if upper is None:
        if dataset is None:
            asked = tasks or protocol.tasks
            dataset, _ = demonstrations.publish(like, below, protocol, asked, episodes)
        given = {"dataset": dataset} | changes["sft"]
        results["sft"] = train("sft", sft, given, budget, used)
        used += Meter(sft, given).cost
        upper = Path(results["sft"].checkpoint)
    before = None
    if rl:
        before = run_evaluation(join(str(upper), str(below)).checkpoint, protocol_file(gate))
        parts = {f"env.{field}": workspace.relative(below) for field in _brought(protocol)}
        given = {"init_from": workspace.relative(upper)} | parts | changes["rl"]
        results["rl"] = train("rl", rl, given, budget, used)
        upper = Path(results["rl"].checkpoint)
    results["join"] = join(str(upper), str(below))
    lineage = describe(datasets_behind(str(upper)))
    return conclude(model, results, gate, lineage, before)


@step(name="check", task_run_name=names.of_task("check {gate}", "gate"))
def check(
    gate: str,
    tasks: Collection[str],
    trained: Mapping[str, tuple[str, dict]],
    model: str,
    body: str,
) -> ProtocolCfg:
    """Check before the training what would be refused after it; returns the gate's protocol.

    Args:
        gate: File in configs/gates/.
        tasks: To be recorded.
        trained: Stage -> its preset or file, and overrides.
        model: What the combination is registered as.
        body: What a System 0 is registered as.

    Raises:
        ValueError: If the gate judges no robot of three levels, a task is unknown, a model is for
            other policies, or a stage trains another kind of policy, or one that the protocol
            cannot play.
    """
    protocol_file(gate)
    protocol = load_gate(gate).protocol
    if not isinstance(protocol, ProtocolCfg) or not _brought(protocol):
        raise ValueError(
            f"{gate} judges by protocol '{protocol.name}', whose simulator has no System 0; take "
            f"a gate of a robot in three levels, e.g. {NEW_MODEL_GATE}"
        )
    for task in tasks:
        protocol.environment_cfg().check_task(task)
    for stage, (target, changes) in trained.items():
        kind = CONTROL if stage == "balance" else VLA
        cfg = check_stage(stage, target, as_words(changes), kind)
        if kind == VLA:
            protocol.build().check_training(cfg)
        else:
            _check_balance(target, cfg, body)
    registration.check_task(model, Lineage())
    check_committed(commit(workspace.home())[0])
    return protocol


def _check_balance(target: str, cfg: typing.Any, body: str) -> None:
    if not isinstance(cfg.env, WholeBodyEnvCfg) or cfg.env.robot is not None:
        raise ValueError(
            f"balance is {target}, which trains no System 0 of a G1; give one whose env is a "
            "WholeBodyEnvCfg without another robot, e.g. g1-whole-body-ppo"
        )
    registration.check_task(body, environment_lineage(cfg.env.to_dict()))


@step(name="fit", task_run_name="check that the systems fit")
def fit(**given: typing.Any) -> None:
    """Check before the training that the systems fit; see `flows.systems_fit`."""
    commands.module("fit", "flows.systems_fit", json.dumps(given))


@step(name="register", task_run_name="register {model}")
def register_system0(model: str, policy: TrainingResult) -> str:
    """Register a System 0 by itself; returns its version. So the lineage of a combination leads to
    a version of it. Its own gate judges it whenever somebody asks.
    """
    lineage = load_lineage(policy.checkpoint)
    run_id = run_id_of(policy)
    return registration.register(policy.checkpoint, model, run_id, lineage, flow_run=this_run())


def _brought(protocol: ProtocolCfg) -> Collection[str]:
    """Fields of the simulator that a combination brings along."""
    return protocol.environment_cfg().in_checkpoint


@step(name="bring", task_run_name="bring {system} {policy}")
def at_hand(system: str, policy: str, kind: str) -> Path:
    """The checkpoint of a policy that is given; a registered version is fetched.

    Raises:
        ValueError: If there is none, or it is of another kind.
    """
    if versions.is_reference(policy):
        path = loading.fetched(versions.find(policy))
    else:
        path = checkpoint.find(policy)
    if (found := kind_of(path)) != kind:
        raise ValueError(f"{system} is {policy}, {described(found)}; give {described(kind)}")
    return path


def by_digest(system0: Path) -> Path:
    """A copy of a System 0 in a folder that is named after its digest. So what was recorded and
    trained through it is found again, wherever it was taken from.
    """
    folder = workspace.state() / "fetched" / f"system0-{deployable_digest(system0)[:12]}"
    if not folder.is_dir():
        with atomic.directory(folder) as root:
            copy_deployable(system0, root)
    return folder


@step(name="join", task_run_name=names.of_task("join {upper} and {system0}", "upper", "system0"))
def join(upper: str, system0: str) -> TrainingResult:
    """Join the policy of Systems 2 and 1 with a System 0, as a checkpoint with a run of its own in
    MLflow. The same two give the same combination, which is made once.

    Raises:
        ValueError: If what System 1 sends is not what System 0 takes.
    """
    both = [deployable_digest(path) for path in (upper, system0)]
    run_dir = workspace.state() / "runs" / f"combination-{atomic.digest_of(both)[:12]}"
    path = run_dir / "global_step_0"
    if not path.is_dir():
        commands.rrf("join", "models", "join", upper, "--system0", system0, "--out", path)
    run_id = registration.joined_run(path)
    config = {"init_from": workspace.relative(Path(upper))}
    write_facts(run_dir / RUN, {"run_id": run_id, "config": config})
    result = TrainingResult(str(path), deployable_digest(path), 0, {}, 0.0, 0.0, run_id)
    result.write(run_dir)
    artifacts.show_training("join", names.short(upper), result)
    return result
