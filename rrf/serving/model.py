"""The policy in a checkpoint as a server needs it: rows in, actions out; and serving it until a
signal comes.

Legend: B rows in a batch, H steps in a chunk, K remaining steps of a running chunk, A action
dimension.
"""

import asyncio
import dataclasses
import time
import typing
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

import numpy as np

from rrf import atomic
from rrf.client.messages import SYSTEMS
from rrf.config import first_error
from rrf.data.dataset.seen_images import SeenImages
from rrf.data.schema import ACTION, IMAGE_PREFIX, STATE
from rrf.runners.checkpoints.deployable import SYSTEM0, deployable_digest, kind_of
from rrf.runners.checkpoints.deployed import Signature, Tensor, deployed_class
from rrf.serving.access import tls_context
from rrf.serving.batching import Row
from rrf.serving.book import open_book
from rrf.serving.cast import Cast
from rrf.serving.configs import ServingCfg
from rrf.serving.drift import Drift
from rrf.serving.following import Follower, Registry
from rrf.serving.player import Player
from rrf.serving.requests import RequestReader
from rrf.serving.server import PolicyServer, stop_on_signals
from rrf.serving.standing import Standing

if typing.TYPE_CHECKING:
    from rrf.runners.checkpoints.placement import Placement

PROTOCOL = "rrf-policy/1"


class ServedPolicy:
    """The policy in a checkpoint.

    Args:
        checkpoint: A checkpoint directory.
        label: Its name shown to clients.
        device: The device on which it runs, or several for its weights.

    Raises:
        ValueError: If a file of the checkpoint was changed, it does not fit its config, or the
            policy remembers earlier observations, so that clients cannot share it.
    """

    def __init__(self, checkpoint: Path, label: str, device: "str | Placement" = "cpu"):
        self.label, self.device = label, device
        self.digest = deployable_digest(checkpoint)
        self._kind = kind_of(checkpoint)
        owner = deployed_class(checkpoint)
        self.signature: Signature = owner.signature(checkpoint)
        try:
            self._policy = owner(checkpoint, device)
        except RuntimeError as error:  # e.g. a device that is not there
            raise ValueError(f"{label} cannot run on '{device}': {first_error(error)}") from error
        if self._policy.has_memory:
            raise ValueError(
                f"{label} remembers what it saw in earlier steps, and a server that answers many "
                "clients at once keeps no memory for each; use rrf.load_policy in the robot's own "
                "process"
            )
        self.can_resume = False

    def warm_up(self, examples: Sequence[Row]) -> None:
        """Answer the examples, one alone and all at once, and find out whether the policy can
        continue running chunks."""
        for rows in (examples[:1], examples):
            self.answer(rows)
        for signature in self.signature.systems.values():
            self.answer(RequestReader(signature).examples(1))
        if len(self.signature.output.shape) == 3:
            chunk = np.zeros(self.signature.output.shape[1:], np.float32)
            try:
                self.answer([Row(examples[0].inputs, chunk, 0)])
            except NotImplementedError:
                return
            self.can_resume = True

    def answer(self, rows: Sequence[Row]) -> np.ndarray:
        """Actions for rows of one `batch_key`: float32 [B, H, A], without chunks [B, A].

        Raises:
            NotImplementedError: If the rows have running chunks and the policy cannot continue one.
        """
        inputs = {name: np.stack([row.inputs[name] for row in rows]) for name in rows[0].inputs}
        if rows[0].running is None:
            return self._policy.answer(inputs, {})
        running_bka = np.stack([row.running for row in rows if row.running is not None])
        return self._policy.resume(inputs, running_bka, rows[0].num_frozen)

    def metadata(self) -> dict[str, typing.Any]:
        """What clients are told when they connect."""
        return {
            "protocol": PROTOCOL,
            "policy": self.label,
            "kind": self._kind,
            "digest": self.digest,
            "inputs": _named(self.signature),
            "actions": _described(self.signature.output),
            "can_resume": self.can_resume,
            "past": dataclasses.asdict(self.signature.past),
            SYSTEMS: {
                str(number): {"inputs": _named(system), "output": _described(system.output)}
                for number, system in self.signature.systems.items()
            },
        }


def loaded(
    checkpoint: Path,
    label: str,
    cfg: ServingCfg,
    device: "str | Placement",
    version: str = "",
    model: str = "",
) -> Player:
    """The policy of a checkpoint, warmed up.

    Raises:
        ValueError: If the checkpoint cannot be served, or the settings do not fit it.
    """
    policy = ServedPolicy(checkpoint, label, device)
    reader = RequestReader(policy.signature, cfg.rename, cfg.instruction)
    policy.warm_up(reader.examples(cfg.max_batch))
    player = Player(policy, reader.row, version)
    player.systems = {
        number: Player(policy, RequestReader(signature, None, cfg.instruction).row, version)
        for number, signature in policy.signature.systems.items()
    }
    player.is_combination = (checkpoint / SYSTEM0).is_dir()
    player.model = model
    file = checkpoint / "norm_stats.json"
    stats = atomic.parse_json(file.read_bytes(), file) if file.is_file() else {}
    player.action_std = _statistic(stats, ACTION, "std", policy.signature.output)
    player.drift = _drift(policy.signature, stats)
    player.unwatched = _unwatched(policy.signature, player.drift)
    return player


def _drift(signature: Signature, stats: dict) -> Drift | None:
    """What follows the observations of a policy; None if its checkpoint knows nothing of them."""
    low = high = None
    cameras: dict[str, SeenImages] = {}
    for tensor in signature.inputs:
        if tensor.name == STATE:
            low, high = (_statistic(stats, STATE, name, tensor) for name in ("q01", "q99"))
        seen = SeenImages.from_dict(stats.get(str(tensor.name)))
        if str(tensor.name).startswith(IMAGE_PREFIX) and seen and tensor.dtype == "uint8":
            cameras[str(tensor.name)] = seen
    if low is None or high is None:
        low = high = np.zeros(0)
    return Drift(low, high, cameras) if len(low) or cameras else None


def _unwatched(signature: Signature, drift: Drift | None) -> str:
    """The cameras whose images no alarm watches, in words; "" for none."""
    watched = drift.labels if drift else []
    names = [str(t.name) for t in signature.inputs if str(t.name).startswith(IMAGE_PREFIX)]
    lacking = [n.removeprefix(IMAGE_PREFIX) for n in names if n not in watched and "@" not in n]
    if not lacking:
        return ""
    return (
        f"images of {', '.join(lacking)} are not watched for drift: the checkpoint has no "
        "statistics of them (policies trained from now on have, of 10 episodes or more)"
    )


def _statistic(stats: dict, key: str, name: str, tensor: Tensor) -> np.ndarray | None:
    """A statistic of what a policy was trained on; None if its checkpoint does not say it."""
    values = np.array(stats.get(key, {}).get(name, []), np.float64)
    return values if values.shape == (tensor.shape[-1],) else None


def serve_checkpoint(
    checkpoint: Path,
    label: str,
    cfg: ServingCfg,
    token: str | None,
    device: "str | Placement",
    say: Callable[[str], None],
    standing: Standing | None = None,
) -> None:
    """Load, warm up and serve a policy. Returns after SIGTERM or SIGINT.

    With `standing`, the registry is asked whether the version may still be used.

    Raises:
        ValueError: If the checkpoint cannot be served, or the settings do not fit it.
        OSError: If the address is in use or not this machine's, or a file of TLS cannot be read.
    """
    tls_context(cfg)  # before the policy is loaded, which may take minutes
    begin = time.perf_counter()
    known = (standing.version, standing.name) if standing else ()
    player = loaded(checkpoint, label, cfg, device, *known)
    announce = _announcement(label, device, token, time.perf_counter() - begin, say, player)
    cast = Cast(player, lambda _: standing.revoked) if standing else Cast(player)
    with open_book(standing.name if standing else f"checkpoint-{player.digest[:12]}") as book:
        server = _server(cfg)(cfg, cast, token, book)

        async def serve() -> None:
            if standing:
                await standing.look()
            await _serve(server, announce, [standing.watch()] if standing else [])

        asyncio.run(serve())
    say("every accepted request was answered; goodbye")


def serve_model(
    registry: Registry,
    cfg: ServingCfg,
    token: str | None,
    device: "str | Placement",
    say: Callable[[str], None],
) -> None:
    """Serve the champion of a registered model, whichever that is, and a canary beside it. Returns
    after SIGTERM or SIGINT.

    Raises:
        ValueError: If there is no champion or it cannot be served, or the settings do not fit it.
        OSError: Like `serve_checkpoint`, and if the registry cannot be reached.
    """
    tls_context(cfg)
    champion = registry.state().champion
    if champion is None:
        raise ValueError(
            f"'{registry.name}' has no champion to serve; see: rrf models ledger {registry.name}"
        )

    def load(version: str) -> Player:
        return loaded(*registry.fetch(version), cfg, device, version, registry.name)

    begin = time.perf_counter()
    player = load(champion)
    label = f"{registry.name} version {champion} (and whichever follows it)"
    announce = _announcement(label, device, token, time.perf_counter() - begin, say, player)
    cast = Cast(player)
    with open_book(registry.name) as book:
        server = _server(cfg)(cfg, cast, token, book)
        follower = Follower(
            registry, cast, load, server.start, book, server.metrics, cfg.registry_s
        )

        async def serve() -> None:
            await follower.look()
            await _serve(server, announce, [follower.watch()])

        asyncio.run(serve())
    say("every accepted request was answered; goodbye")


def _server(cfg: ServingCfg) -> type[PolicyServer]:
    """The class of servers that speaks what clients speak."""
    if cfg.protocol == "rrf":
        return PolicyServer
    from rrf.serving.vla_eval import VlaEvalServer

    return VlaEvalServer


def _announcement(
    label: str,
    device: "str | Placement",
    token: str | None,
    warm_s: float,
    say: Callable[[str], None],
    player: Player,
) -> Callable[[str, int], None]:
    def announce(url: str, _port: int) -> None:
        who = "clients with the token" if token else "everybody who reaches it"
        say(f"{label} on {device} serves {who} at {url} (warmed up in {warm_s:.2f} s)")
        if player.is_combination:
            say(
                "what is served are its Systems 2 and 1; its System 0 and the clock run at the "
                f"robot: rrf play COMBINATION --task TASK --server {url}"
            )
        if player.unwatched:
            say(player.unwatched)

    return announce


async def _serve(
    server: PolicyServer,
    announce: Callable[[str, int], None],
    beside: Sequence[Coroutine],
) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    await server.run(stop, announce, beside)


def _named(signature: Signature) -> dict[str, dict]:
    return {str(tensor.name): _described(tensor) for tensor in signature.inputs}


def _described(tensor: Tensor) -> dict[str, typing.Any]:
    return {"dtype": tensor.dtype, "shape": list(tensor.shape[1:])}
