"""`rrf export` and `rrf import`: state-based policies to ONNX and rsl_rl, and from rsl_rl."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rrf.cli.options import Imports, PolicyArgument, check_output, import_modules
from rrf.lineage import Lineage

if TYPE_CHECKING:
    from rrf.runners.control.configs import ControlRunnerCfg

Checked = Annotated[Path, typer.Argument(help="A model_*.pt of rsl_rl, of any version.")]


def export(
    checkpoint: PolicyArgument,
    onnx: Annotated[
        Path | None, typer.Option(help="Write an ONNX file here.", dir_okay=False)
    ] = None,
    rsl_rl: Annotated[
        Path | None, typer.Option(help="Write a model_*.pt of rsl_rl 5 here.", dir_okay=False)
    ] = None,
    any_batch: Annotated[
        bool, typer.Option(help="ONNX: accept any number of observations, not only one.")
    ] = False,
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import", help="A module that the policy's config refers to. May be repeated."
        ),
    ] = None,
) -> None:
    """Write a state-based policy as ONNX, or as a checkpoint that rsl_rl can train further."""
    from rrf.cli.policy_reference import locate
    from rrf.lookup import require
    from rrf.runners.checkpoints.deployable import CONTROL, described, kind_of

    import_modules(imports)
    if onnx is None and rsl_rl is None:
        raise ValueError(
            "no output is given; give --onnx policy.onnx, --rsl-rl model_1000.pt, or both"
        )
    for package in ("onnx", "onnxruntime") if onnx else ():
        require(package, extra="onnx")
    path, label = locate(checkpoint)
    if (kind := kind_of(path)) != CONTROL:
        raise ValueError(
            f"{label} is {described(kind)}; `rrf export` takes only state-based policies"
        )
    for out in filter(None, (onnx, rsl_rl)):
        check_output(out)
    outputs = " and ".join(str(out) for out in (onnx, rsl_rl) if out)
    typer.echo(f"exporting {label} on cpu to {outputs}")
    if onnx is not None:
        _export_onnx(path, label, onnx, any_batch)
    if rsl_rl is not None:
        _export_rsl_rl(path, rsl_rl)


def import_(
    model: Checked,
    out: Annotated[Path, typer.Option(help="Directory for the checkpoint.")],
    preset: Annotated[
        str,
        typer.Option(
            help="Preset or training file with the environment and the activation functions of "
            "the policy."
        ),
    ] = "",
    task: Annotated[
        str,
        typer.Option(help="Task of mjlab, of Gymnasium or your own; use it instead of --preset."),
    ] = "",
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Dotted overrides of the preset's config.")
    ] = None,
    imports: Imports = None,
) -> None:
    """Convert a checkpoint of rsl_rl, to play, evaluate, or train it further with init_from=OUT."""
    from rrf.runners.checkpoints import checkpoint, rsl_rl_checkpoint, rsl_rl_students
    from rrf.runners.checkpoints.control import INTERFACE, interface_text

    import_modules(imports)
    checkpoint.require_new(out)
    is_student = rsl_rl_students.holds_student(model)
    format_: Any = rsl_rl_students if is_student else rsl_rl_checkpoint
    original = format_.read(model)
    cfg = _config(preset, task, overrides or [], is_student)
    env = cfg.env.replace(num_envs=1).build(seed=0, device="cpu")
    interface = env.interface
    env.close()
    cfg = cfg.replace(policy=format_.fitted(cfg.policy, original))
    weights = format_.weights_of(original)
    policy = cfg.policy.build(interface)
    checkpoint.fill(policy, weights, what=str(model))
    with tempfile.TemporaryDirectory() as scratch:
        made = checkpoint.save(
            scratch,
            original.iteration,
            cfg,
            weights,
            {},
            checkpoint.TrainerState({}, {}),
            _lineage(cfg, model),
            {INTERFACE: interface_text(interface)},
        )
        checkpoint.export(made, out)
    typer.echo(
        f"{model} (rsl_rl {original.generation}.x, iteration {original.iteration}) for "
        f"{interface.task}"
    )
    for name, network in format_.described(policy).items():
        typer.echo(f"{name}: {network}")
    typer.echo("the file does not name the activation functions; they are those of the preset")
    typer.echo(f"checkpoint {out}")


def _export_onnx(path: Path, label: str, out: Path, any_batch: bool) -> None:
    from rrf.runners.checkpoints.control import load_control_policy
    from rrf.runners.checkpoints.onnx_export import export

    policy, interface = load_control_policy(path)
    facts: dict[str, Any] = {"run_path": label, "task": interface.task} | interface.robot
    if hidden := getattr(policy.actor.cfg, "hidden", None):  # "obs" does not have these columns
        facts["hidden_columns"] = [f"{group}:{k}" for group, ks in hidden.items() for k in ks]
    difference = export(policy.actor, out, facts, any_batch)
    typer.echo(f"the actions of onnxruntime and of the policy differ by at most {difference:.1e}")
    typer.echo(f"onnx {out}")


def _export_rsl_rl(path: Path, out: Path) -> None:
    from rrf.runners.checkpoints import checkpoint, rsl_rl_checkpoint, rsl_rl_students
    from rrf.runners.checkpoints.control import load_module
    from rrf.runners.checkpoints.deployable import TRAINER_STATE, manifest_of

    policy: Any = load_module(path)
    is_student = rsl_rl_students.is_student(policy)
    format_: Any = rsl_rl_students if is_student else rsl_rl_checkpoint
    policy = format_.expressible(policy)
    is_whole = (path / TRAINER_STATE).is_dir()
    tensors = checkpoint.load_trainer_state(path).tensors if is_whole else {}
    format_.write(out, policy, manifest_of(path)["step"], tensors)
    for who, text in format_.described(policy).items():
        typer.echo(f"{who}: {text}")
    typer.echo(f"rsl_rl {out}")


def _config(preset: str, task: str, overrides: list[str], is_student: bool) -> Any:
    """The run config for the imported policy."""
    from rrf.config import parse_overrides
    from rrf.presets import resolve
    from rrf.runners.control.configs import OnPolicyRunnerCfg
    from rrf.runners.control.distillation_configs import DistillationRunnerCfg

    if is_student:
        cfg = resolve(preset, overrides) if preset else None
        if not isinstance(cfg, DistillationRunnerCfg):
            raise ValueError(
                "the file holds a student and its teacher; name a preset that trains a student "
                "with --preset, e.g. go1-rough-student"
            )
        return cfg
    if bool(preset) == bool(task):
        raise ValueError(
            "name the task of the policy, either with --preset (e.g. go1-flat-ppo) or with --task "
            "(e.g. Mjlab-Velocity-Flat-Unitree-Go1)"
        )
    if preset:
        cfg = resolve(preset, overrides)
    else:
        cfg = _of_task(task).override(parse_overrides(overrides))
    if not isinstance(cfg, OnPolicyRunnerCfg):
        raise ValueError(
            f"{preset or task} does not train with PPO, but policies of rsl_rl are trained with PPO"
        )
    return cfg


def _of_task(task: str) -> "ControlRunnerCfg":
    """The config that a task was registered with, or else the defaults."""
    from rrf.cli.task_config import registered_cfg
    from rrf.envs.configs import trust_task
    from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
    from rrf.envs.isaaclab.tasks import is_of_isaaclab
    from rrf.envs.mjlab.configs import MjlabEnvCfg
    from rrf.runners.control.configs import OnPolicyRunnerCfg

    if is_of_isaaclab(task):
        from rrf.presets.isaaclab import ppo_of

        return ppo_of(task, task.lower())
    trust_task(GymnasiumEnvCfg(task=task))
    is_mjlab = task.startswith("Mjlab-")
    if not is_mjlab and (cfg := registered_cfg(task)) is not None:
        return cfg
    kind = MjlabEnvCfg if is_mjlab else GymnasiumEnvCfg
    return OnPolicyRunnerCfg(experiment_name=task.lower(), env=kind(task=task))


def _lineage(cfg: "ControlRunnerCfg", model: Path) -> Lineage:
    from rrf import atomic
    from rrf.registry.lineage_sources import environment_lineage

    imported = {"file": model.name, "sha256": atomic.sha256(model)}
    return environment_lineage(cfg.env.to_dict()).replace(imported_from=imported)
