"""`rrf serve`: a policy for robots on the network."""

from pathlib import Path
from typing import Annotated

import typer

from rrf.cli.options import (
    DeviceOption,
    Imports,
    MaxMemory,
    Offload,
    PolicyArgument,
    check_device,
    import_modules,
)


def serve(
    checkpoint: PolicyArgument,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Further settings of the server: max_connections=8, send_s=2, …"),
    ] = None,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on. Others than 127.0.0.1 need a token."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any free one.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token that clients must know; by default the environment "
            "variable RRF_SERVE_TOKEN.",
            dir_okay=False,
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve other machines without a token.")
    ] = False,
    certificate: Annotated[
        str | None, typer.Option(help="Certificate in PEM form, for TLS.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Private key of the certificate.")] = None,
    protocol: Annotated[
        str, typer.Option(help="What clients speak: rrf (openpi's too), or vla-eval.")
    ] = "rrf",
    max_batch: Annotated[int, typer.Option(help="The most requests that share a pass.")] = 8,
    max_wait_ms: Annotated[
        float, typer.Option(help="The longest wait of a request for others, in milliseconds.")
    ] = 2.0,
    instruction: Annotated[
        str | None, typer.Option(help="The instruction of requests that bring none.")
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(
            help="KEY=INPUT: a key of requests and the input of the policy that it stands for. "
            "May be repeated."
        ),
    ] = None,
    device: DeviceOption = "cpu",
    max_memory: MaxMemory = None,
    offload: Offload = None,
    imports: Imports = None,
) -> None:
    """Serve a policy to robots over websockets, to `rrf.client` and to openpi's client.

    NAME alone follows the registry: the champion acts, whichever it is, and a canary beside it
    (`rrf models release`). NAME@champion and NAME/3 serve what that is now.

    SIGTERM and Ctrl-C answer what was accepted, refuse the rest, and end with exit code 0.
    """
    from rrf.cli.policy_reference import is_model_name, locate_version
    from rrf.config import parse_overrides
    from rrf.serving.access import check_exposure, check_place, read_token
    from rrf.serving.configs import ServingCfg

    given = {
        **{"host": host, "port": port, "insecure": insecure, "instruction": instruction},
        **{"certificate": certificate, "key": key, "protocol": protocol},
        **{"max_batch": max_batch, "max_wait_ms": max_wait_ms, "rename": _pairs(rename or [])},
    }
    cfg = ServingCfg(**given).override(parse_overrides(overrides or []))
    token = read_token(token_file)
    check_exposure(cfg, token)
    check_place(cfg)
    check_device(device)
    if cfg.is_public and cfg.certificate is None:
        typer.echo(
            "warning: without TLS, everybody on the way can read the token and the robot's "
            "pictures; give --certificate and --key",
            err=True,
        )
    import_modules(imports)
    from rrf.runners.checkpoints.placement import choose

    place = choose(device, max_memory or [], offload)
    if is_model_name(checkpoint):
        from rrf.registry.served import ServedModel
        from rrf.serving.model import serve_model

        typer.echo(f"looking up the champion of {checkpoint} to serve it at {host}:{port}")
        serve_model(ServedModel(checkpoint), cfg, token, place, typer.echo)
        return
    path, label, version = locate_version(checkpoint)
    typer.echo(f"loading {label} on {device} to serve it at {host}:{port}")
    from rrf.registry import origin
    from rrf.registry.standing import standing_of
    from rrf.runners.checkpoints.deployable import deployable_digest
    from rrf.serving.model import serve_checkpoint
    from rrf.serving.standing import Standing

    standing = Standing(*version, cfg.registry_s, standing_of) if version else None
    if version is None and (fetched := origin.read(path)):  # a copy must not go on for ever either
        ask = origin.asker(fetched, deployable_digest(path))
        standing = Standing(fetched.model, fetched.version, cfg.registry_s, ask)
    serve_checkpoint(path, label, cfg, token, place, typer.echo, standing)


def _pairs(words: list[str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    for key, equals, name in pairs:
        if not (key and equals and name):
            raise ValueError(
                f"--rename {key}{equals}{name}: expected KEY=INPUT, e.g. "
                "observation/wrist_image=observation.images.wrist"
            )
    return {key: name for key, _, name in pairs}
