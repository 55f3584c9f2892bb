"""Serve the policy in a checkpoint until a signal comes."""

import asyncio
import time
import typing
from collections.abc import Callable
from pathlib import Path

from rrf.serving.access import tls_context
from rrf.serving.configs import ServingCfg
from rrf.serving.model import ServedPolicy
from rrf.serving.requests import RequestReader
from rrf.serving.server import PolicyServer, stop_on_signals

if typing.TYPE_CHECKING:
    from rrf.runners.checkpoints.placement import Placement


def serve_checkpoint(
    checkpoint: Path,
    label: str,
    cfg: ServingCfg,
    token: str | None,
    device: "str | Placement",
    say: Callable[[str], None],
) -> None:
    """Load, warm up and serve a policy. Returns after SIGTERM or SIGINT.

    Raises:
        ValueError: If the checkpoint cannot be served, or the settings do not fit it.
        OSError: If the address is in use or not this machine's, or a file of TLS cannot be read.
    """
    tls_context(cfg)  # before the policy is loaded, which may take minutes
    policy = ServedPolicy(checkpoint, label, device)
    reader = RequestReader(policy.signature, cfg.rename, cfg.instruction)
    begin = time.perf_counter()
    policy.warm_up(reader.examples(cfg.max_batch))
    warm_s = time.perf_counter() - begin
    server = PolicyServer(cfg, policy, token)

    def announce(url: str, _port: int) -> None:
        who = "clients with the token" if token else "everybody who reaches it"
        say(f"{label} on {device} serves {who} at {url} (warmed up in {warm_s:.2f} s)")

    asyncio.run(_serve(server, announce))
    say("every accepted request was answered; goodbye")


async def _serve(server: PolicyServer, announce: Callable[[str, int], None]) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    await server.run(stop, announce)
