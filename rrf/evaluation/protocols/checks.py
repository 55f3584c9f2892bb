"""Check simulators without a policy: `rrf envs check`, and every night.

Some episodes of a protocol are begun with random actions. What a policy would see must be the same
as at the last check on this machine. If it is not, or no check came before, the episodes are begun
once more, in fresh processes: a simulator may be another one than at the last check, or another one
each time.
"""

import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path

from rrf import atomic, workspace
from rrf.config import did_you_mean, readable
from rrf.evaluation.protocols.base import BaseProtocolCfg, in_words
from rrf.evaluation.protocols.files import load_protocol
from rrf.extras import NotSetUpError

OK, FAILED, ABSENT = "ok", "failed", "not set up"
_NUM_STEPS = 4


@dataclasses.dataclass(frozen=True)
class Check:
    """What came out for one protocol."""

    simulator: str
    protocol: str
    state: str
    """`OK`, `FAILED` or `ABSENT`."""
    said: str
    """What was seen, or why not, in a sentence."""
    seconds: float


def simulator_of(protocol: BaseProtocolCfg) -> str:
    """The folder of `rrf.envs` that the protocol's environment is from, e.g. libero; for one that
    is not from there, the name of its module. "" if the protocol has no environment.
    """
    if protocol.environment_class is None:
        return ""
    first, *rest = protocol.environment_class.__module__.split(".")
    return rest[1] if (first, *rest[:1]) == ("rrf", "envs") else first


def simulators() -> dict[str, list[Path]]:
    """Name of a simulator -> the files of its protocols, of this workspace and those rrf ships."""
    found: dict[str, list[Path]] = {}
    protocols = readable(workspace.configs("protocols").values(), load_protocol)
    for path, protocol in sorted(protocols.items()):
        if simulator := simulator_of(protocol):
            found.setdefault(simulator, []).append(path)
    return dict(sorted(found.items()))


def protocols_of(names: Sequence[str]) -> list[Path]:
    """The protocols of these simulators; of all, if no name is given.

    Raises:
        ValueError: If there is no such simulator.
    """
    known = simulators()
    for name in names:
        if name not in known:
            raise ValueError(f"no protocol is for '{name}'{did_you_mean(name, known)}")
    return [path for name in names or known for path in known[name]]


def check(path: Path, accept: bool = False) -> Check:
    """Check the simulator of a protocol; see the module.

    Args:
        path: File of the protocol.
        accept: Take what is seen now as what later checks are compared with.
    """
    protocol, began = load_protocol(path), time.monotonic()

    def ended(state: str, said: str) -> Check:
        seconds = time.monotonic() - began
        return Check(simulator_of(protocol), path.stem, state, said, seconds)

    note = workspace.state() / "checks" / f"{path.stem}.json"
    before, said_before = _noted(note, protocol)
    try:
        versions = dict(protocol.here().versions)
        digest = protocol.build().probe(_NUM_STEPS)
        if digest == before and not accept:
            return ended(OK, "as at the last check")
        again = protocol.build().probe(_NUM_STEPS)
    except (NotSetUpError, ImportError) as error:
        return ended(ABSENT, str(error))
    except (ValueError, RuntimeError, OSError) as error:
        return ended(FAILED, f"{type(error).__name__}: {error}")
    if digest != again:
        return ended(FAILED, "the same episodes and actions were seen otherwise the second time")
    if before and not accept:
        return ended(
            FAILED,
            f"other pictures or states than at {said_before}; now {in_words(versions)}. If that is "
            f"wanted, type: rrf envs check {simulator_of(protocol)} --accept",
        )
    seen = {"protocol": protocol.base_hash, "digest": digest, "versions": versions}
    atomic.write_json(note, seen | {"date": time.strftime("%Y-%m-%d")})
    return ended(OK, "the same twice")


def _noted(note: Path, protocol: BaseProtocolCfg) -> tuple[str, str]:
    """The digest of what was seen at the last check, and that check in words. Both are empty if its
    note is of another protocol, damaged or not there."""
    try:
        before = json.loads(note.read_text())
        if before["protocol"] == protocol.base_hash:
            said = f"the check of {before['date']}, with {in_words(before['versions'])}"
            return str(before["digest"]), said
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return "", ""
