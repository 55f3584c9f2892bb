"""`rrf orchestra`: the roles of reinforcement learning, here and on a cluster."""

from typing import Annotated

import typer

app = typer.Typer(
    help="The roles of reinforcement learning, here and on a Ray cluster.", no_args_is_help=True
)


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
    from rrf.runners.vla_rl.configs import RayCfg

    placement = {"env": env, "rollout": rollout, "actor": "0"}

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
