"""`rrf orchestra`: the roles of reinforcement learning, here and on a cluster."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="The roles of reinforcement learning, here and on a Ray cluster.", no_args_is_help=True
)

_NUM_PROPOSED = 5


@app.command()
def smoke(
    address: Annotated[
        str | None,
        typer.Option(help="Of a running Ray cluster, or auto; else one is started."),
    ] = None,
    env: Annotated[str, typer.Option(help="Placement of the environments.")] = "0:0-1",
    rollout: Annotated[str, typer.Option(help="Placement of the rollouts.")] = "0",
    inline: Annotated[bool, typer.Option(help="Run the roles here, without Ray.")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds to play and learn from.")] = 5,
) -> None:
    """Play and train a few rounds with a tiny policy, to see that all roles work together."""
    from rrf.orchestra.smoke import smoke as run
    from rrf.runners.vla_rl.configs import PlaceCfg, RayCfg

    placement: dict[str, PlaceCfg] = {"env": env, "rollout": rollout, "actor": "0"}

    def show(progress) -> None:
        metrics = progress.metrics
        typer.echo(
            f"round {progress.round}/{progress.max_rounds}: "
            f"{metrics['env/num_trajectories']:.0f} episodes, "
            f"rollout {metrics['time/rollout']:.1f} s, update {metrics['time/update']:.1f} s, "
            f"weights {metrics['rollout/weight_sync_mb']:.2f} MB"
        )

    run(None if inline else RayCfg(address=address, placement=placement), rounds, show)
    typer.echo("all roles work")


@app.command()
def plan(
    run: Annotated[Path, typer.Argument(help="Directory of a run; its last round says the costs.")],
    cores: Annotated[str, typer.Option(help="Cores of each node, e.g. 8,8.")] = "2",
    env: Annotated[
        str | None, typer.Option(help="Placement of the environments; else some are proposed.")
    ] = None,
    rollout: Annotated[str, typer.Option(help="Placement of the rollouts.")] = "0",
) -> None:
    """Predict how long a round takes with other processes on other nodes.

    Costs come from what the run measured. With --env, the time of that placement; without it, the
    fastest of those that give every node the same number of processes.
    """
    from rrf.orchestra.placement import parse
    from rrf.orchestra.plan import Costs, predict, propose
    from rrf.runners.vla_rl.timeline import Layout, load

    cfg, metrics = _measured(run)
    last = load(run)
    sizes = (cfg["env"]["num_envs"], cfg["inference_batch"])
    costs = Costs.of(metrics, last.workload)
    nodes = [int(each) for each in cores.split(",")]
    if env is None:
        proposed = propose(costs, last.workload, nodes, *sizes)
        layouts = [layout for _, layout in proposed[:_NUM_PROPOSED]]
    else:
        there = [f"node of {count} cores" for count in nodes]
        roles = parse({"env": env, "rollout": rollout}, there, ("env", "rollout")).roles
        where = {role: [process[0] for process in roles[role]] for role in roles}
        layouts = [Layout(where["env"], where["rollout"], nodes)]
    measured = metrics["time/rollout"] + metrics["time/update"]
    repeated = predict(costs, last.workload, last.layout, *sizes)
    typer.echo(f"the run's own round: {measured:.1f} s, predicted {repeated.round_s:.1f} s")
    for layout in layouts:
        prediction = predict(costs, last.workload, layout, *sizes)
        busy = [prediction.busy(f"rollout {number}") for number in range(len(layout.rollout))]
        typer.echo(
            f"{prediction.round_s:6.1f} s, of which rollout {prediction.rollout_s:.1f} s: env on "
            f"nodes {_counts(layout.env)}, rollout on {_counts(layout.rollout)}, busy "
            + ", ".join(f"{share:.0%}" for share in busy)
        )


@app.command()
def timeline(
    run: Annotated[Path, typer.Argument(help="Directory of a run.")],
    output: Annotated[
        Path | None, typer.Option(help="The picture, .svg or .png; else timeline.svg in the run.")
    ] = None,
) -> None:
    """Draw who was busy when in the last round of a run: a row per process."""
    from rrf.orchestra.timeline_chart import draw, shares
    from rrf.runners.vla_rl.timeline import load

    last = load(run)
    path = output or run / "timeline.svg"
    draw(path, f"Round {last.number} of {run.resolve().name}", last.spans)
    for process, parts in shares(last.spans).items():
        said = ", ".join(f"{activity} {share:.0%}" for activity, share in parts.items())
        typer.echo(f"{process}: {said}")
    typer.echo(f"drawn {path}")


def _measured(run: Path) -> tuple[dict, dict]:
    """The config and the last metrics of a run."""
    from rrf.run_directory import TrainingResult
    from rrf.runners.checkpoints import checkpoint

    result = TrainingResult.read(run)
    if result is None:
        raise ValueError(f"{run} has no result.json; give the directory of a finished run")
    cfg = checkpoint.load_config(run / Path(result.checkpoint).name)
    if "env" not in cfg or "tasks" not in cfg:
        raise ValueError(f"{run} is no run of reinforcement learning with images")
    return {"inference_batch": 16, **cfg}, result.metrics


def _counts(nodes: Sequence[int]) -> str:
    """`0: 4, 1: 4`, the processes of each node."""
    return ", ".join(f"{node}: {count}" for node, count in sorted(Counter(nodes).items()))
