"""`rrf models setup`, `import`, `export` and `extract`: models that others have published, and the
policy of one robot."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rrf import atomic

if TYPE_CHECKING:
    from rrf.policies.vla.published.overlay import Overlay
    from rrf.runners.supervised.configs import SupervisedRunnerCfg


def setup(
    name: Annotated[
        str | None, typer.Argument(help="A model of the table; without it, the table is shown.")
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option(help="Branch, tag or commit; by default the one of the first setup, or main."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="A directory that has the model's files already."),
    ] = None,
) -> None:
    """Fetch a published model to .rrf/pretrained/NAME, or show which ones there are.

    Only safetensors, JSON and tokenizer files are fetched, never pickles. An interrupted setup goes
    on when it is repeated. The commit is noted in source.json, and a repetition takes the same one.
    """
    from rrf.cli.data_download import download_bar
    from rrf.networks.vlm import setup as published
    from rrf.networks.vlm.catalogue import entry_of, folder_of

    if name is None:
        if revision or source:
            raise ValueError("--revision and --from need the NAME of a model: rrf models setup")
        _table()
        return
    if revision and source:
        raise ValueError("--from takes the files as they are, so --revision cannot be given, too")
    for line in published.described(name, entry_of(name)):
        typer.echo(line)
    if source:
        record = published.adopt(name, source)
    else:
        with download_bar() as on_progress:
            record = published.setup(name, revision, typer.echo, on_progress)
    commit = f"commit {record['commit']}" if record["commit"] else "commit unknown"
    typer.echo(f"{folder_of(name)}: {len(record['files'])} files, checked; {commit}")
    entry = entry_of(name)
    typer.echo(f"use: {entry.use}")
    if entry.tokenizer:
        typer.echo(f"its tokenizer comes with another model: rrf models setup {entry.tokenizer}")


def _table() -> None:
    from rich.markup import escape
    from rich.table import Table

    from rrf.cli.tables import print_table
    from rrf.networks.vlm.catalogue import CATALOGUE, record_of

    table = Table(box=None, header_style="bold")
    for column in ("name", "what", "layout", "GB", "gated", "here", "weights' licence", "use"):
        table.add_column(column, overflow="fold")
    for name, entry in CATALOGUE.items():
        table.add_row(
            name,
            entry.what,
            entry.layout,
            f"{entry.gigabytes:.1f}",
            "yes" if entry.gated else "no",
            "yes" if record_of(name) else "-",
            escape(entry.weights_licence),
            escape(entry.use),
        )
    print_table(table)
    typer.echo("details of one, and the files: rrf models setup NAME")


def import_(
    source: Annotated[str, typer.Argument(help="A published policy: its directory, or its NAME.")],
    out: Annotated[Path, typer.Option(help="Directory for the checkpoint.")],
    layout: Annotated[
        str | None,
        typer.Option("--format", help="openpi, lerobot, openvla, groot; recognised by default."),
    ] = None,
    preset: Annotated[
        str, typer.Option(help="Preset or training file with the sizes; by default the family's.")
    ] = "",
    statistics: Annotated[
        str | None,
        typer.Option(help="Which of its statistics: a dataset of OpenVLA, an embodiment of GR00T."),
    ] = None,
    norm_stats: Annotated[
        Path | None,
        typer.Option(help="A dataset's norm_stats.json, to use instead of its statistics."),
    ] = None,
    overlay: Annotated[
        Path | None,
        typer.Option(
            help="Newer weights that RLinf trained from it: its full_weights.pt, or the "
            "global_step_N with that."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Dotted overrides, e.g. policy.cameras='[front]'.")
    ] = None,
) -> None:
    """Make a checkpoint of a published policy: to evaluate, or to train further with init_from=OUT.

    Cameras, dimensions, length of a chunk and normalisation are the published ones where the files
    say them. Weights must fit exactly.
    """
    from rrf.config import parse_overrides
    from rrf.data.schema import ACTION, STATE
    from rrf.networks.vlm.catalogue import located
    from rrf.policies.vla.published.formats import format_at
    from rrf.policies.vla.published.overlay import overlaid
    from rrf.runners.checkpoints import checkpoint, lerobot_policies, published

    checkpoint.require_new(out)
    folder, changes = located(source), parse_overrides(overrides or [])
    if lerobot_policies.is_at(folder):
        if statistics or norm_stats or overlay or layout not in (None, "lerobot"):
            raise ValueError(
                f"{folder} is one of lerobot's own policies, which brings its statistics; leave "
                "out --statistics, --norm-stats, --overlay and any --format but lerobot"
            )
        preset = preset or lerobot_policies.preset_of(folder)
        cfg = lerobot_policies.import_policy(source, _supervised(preset), changes, out)
        _tell(out, cfg, preset)
        return
    published_format = format_at(folder, layout)
    preset = preset or published_format.preset(folder)
    cfg = _supervised(preset)
    given = atomic.parse_json(norm_stats.read_text()) if norm_stats else None
    recorded = {name: size for name, size in changes.items() if name == "policy.image_size"}
    cfg = published.fitted(cfg.override(recorded), folder, published_format, statistics)
    if given is not None:
        sizes = {"state_dim": len(given[STATE]["mean"]), "action_dim": len(given[ACTION]["mean"])}
        cfg = cfg.replace(policy=cfg.policy.replace(**sizes))
    published.require_said(folder, published_format, changes)
    cfg = cfg.override(changes)
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        newer = None
        if overlay is not None:
            newer = stack.enter_context(overlaid(folder, overlay, out.absolute().parent))
            _tell_overlay(newer)
        published.import_policy(source, published_format, cfg, out, statistics, given, newer)
    _tell(out, cfg, preset)


def _supervised(preset: str) -> "SupervisedRunnerCfg":
    from rrf.presets import resolve
    from rrf.runners.supervised.configs import SupervisedRunnerCfg

    cfg = resolve(preset)
    if not isinstance(cfg, SupervisedRunnerCfg):
        raise ValueError(f"--preset {preset} trains no policy on recordings; give one that does")
    return cfg


def _tell_overlay(overlay: "Overlay") -> None:
    typer.echo(f"{overlay.num_tensors} tensors are those of {overlay.file}")
    if names := overlay.left_out:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        typer.echo(f"left out, because only training needs them: {names[0]}{more}")


def _tell(out: Path, cfg: "SupervisedRunnerCfg", preset: str) -> None:
    from rrf.runners.supervised.parent import as_typed, meaning_differences

    policy, known = cfg.policy, _supervised(preset).policy
    typer.echo(
        f"checkpoint {out}: cameras {', '.join(policy.cameras)} of {policy.image_size[0]} x "
        f"{policy.image_size[1]} px, state {policy.state_dim}, action {policy.action_dim}, "
        f"{policy.chunk_length} actions per chunk"
    )
    needed = meaning_differences(policy, known)
    if policy.chunk_length != known.chunk_length:
        needed["policy.chunk_length"] = policy.chunk_length
    words = f" {as_typed(needed)}" if needed else ""
    typer.echo(f"train it further: rrf train {preset} init_from={out}{words}")


def export(
    checkpoint: Annotated[
        str,
        typer.Argument(help="A checkpoint or run directory, NAME@champion, or models:/NAME@alias."),
    ],
    layout: Annotated[str, typer.Option("--format", help="openpi, lerobot, openvla or groot.")],
    out: Annotated[Path, typer.Option(help="Directory to create.")],
    statistics: Annotated[
        str | None,
        typer.Option(help="Name of the statistics: a dataset of OpenVLA, an embodiment of GR00T."),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Number format of the weights: fp32 or bf16. By default fp32 with adapters, which "
            "bf16 may round away, and else as they are."
        ),
    ] = None,
) -> None:
    """Write the policy of a checkpoint as others publish theirs, with adapters merged.

    The merged layers are compared with the adapters first.
    """
    from rrf.cli.policy_reference import locate
    from rrf.runners.checkpoints import published

    if dtype not in (None, "fp32", "bf16"):
        raise ValueError(f"--dtype is '{dtype}', allowed: fp32, bf16")
    path, label = locate(checkpoint)
    merge = published.export_policy(path, layout, out, statistics, dtype)
    if merge.change:
        typer.echo(
            f"adapters merged in {dtype or 'fp32'}: they change the outputs of their layers by "
            f"{merge.change:.2g}, the merge errs by {merge.error:.2g} ({merge.deviation:.2g} of it)"
        )
    typer.echo(f"{label} is at {out}, in the layout of {layout}")


def extract(
    checkpoint: Annotated[
        str,
        typer.Argument(help="A checkpoint or run directory, NAME@champion, or models:/NAME@alias."),
    ],
    embodiment: Annotated[str, typer.Option(help="Tag of the robot: see `robots` in its config.")],
    out: Annotated[Path, typer.Option(help="Directory to create.")],
) -> None:
    """Write the policy of one robot, out of a checkpoint that was trained on several.

    It can be evaluated, served and trained further like any other.
    """
    from rrf.cli.policy_reference import locate
    from rrf.runners.checkpoints import checkpoint as checkpoints
    from rrf.runners.checkpoints.extract import extract as extracted

    path, label = locate(checkpoint)
    checkpoints.require_new(out)
    extracted(path, embodiment, out)
    typer.echo(f"the policy of '{embodiment}' in {label} is at {out}")
