"""The readers that `tests.faults.fuzzing` tries: of files, of a store, of a connection."""

import typing
from collections.abc import Callable
from pathlib import Path

import numpy as np
import yaml

from tests.faults.fuzzing import Target, as_json, as_message, as_yaml

REPOSITORY = Path(__file__).parents[2]


def targets(home: Path) -> list[Target]:
    """All readers, in a workspace."""
    return [*_configs(home), *_documents(home), *_messages(home)]


def _file(path: Path, read: Callable[[], typing.Any]) -> Callable[[bytes], typing.Any]:
    path.parent.mkdir(parents=True, exist_ok=True)

    def reader(content: bytes) -> typing.Any:
        path.write_bytes(content)
        return read()

    return reader


def _configs(home: Path) -> list[Target]:
    from rrf import notifications
    from rrf.cli.task_config import config_of
    from rrf.data.conversion.dataset_cfg import load_any_cfg
    from rrf.envs.robots.configs import load_robot_cfg
    from rrf.evaluation.gates.gate import load_gate
    from rrf.evaluation.gates.release import load_rules
    from rrf.evaluation.nightly import matrix
    from rrf.evaluation.protocols.files import load_protocol
    from rrf.identity import trust
    from rrf.registry import retention, taints
    from tests.registry.conftest import GATE, PROTOCOL

    configs = home / "configs"
    gate = {k: v for k, v in GATE.to_dict().items() if k not in ("type", "protocol")}
    protocol = {k: v for k, v in PROTOCOL.to_dict().items() if k != "type"}
    (configs / "protocols").mkdir(parents=True, exist_ok=True)
    (configs / "protocols/p.yaml").write_text(yaml.safe_dump(protocol))
    shipped = {
        name: yaml.safe_load((REPOSITORY / "configs" / name).read_text())
        for name in (
            "protocols/cartpole.yaml",
            "datasets/metaworld-demo.yaml",
            "robots/so101-sim.yaml",
        )
    }
    people = {
        "keys": [{"name": "ann", "public": "ed25519:" + "A" * 43 + "="}],
        "models": {"signed-*": {"approvals": 1}},
    }
    read: dict[str, tuple[typing.Any, Callable[[], typing.Any]]] = {
        "gates/g.yaml": (gate | {"protocol": "p"}, lambda: load_gate(configs / "gates/g.yaml")),
        "protocols/q.yaml": (protocol, lambda: load_protocol(configs / "protocols/q.yaml")),
        "protocols/states.yaml": (
            shipped["protocols/cartpole.yaml"],
            lambda: load_protocol(configs / "protocols/states.yaml"),
        ),
        "releases/policy.yaml": ({"share": 0.2, "margin": 0.1}, lambda: load_rules("policy")),
        "retention.yaml": ({"days": {"run": 30}, "keep_versions": 3}, retention.load),
        "nightly.yaml": (
            {"rows": [{"models": ["*"], "protocols": ["p"]}], "speeds": []},
            matrix.load,
        ),
        "datasets/d.yaml": (
            shipped["datasets/metaworld-demo.yaml"] | {"name": "d"},
            lambda: load_any_cfg("d"),
        ),
        "robots/r.yaml": (
            shipped["robots/so101-sim.yaml"] | {"name": "r"},
            lambda: load_robot_cfg("r"),
        ),
        "trust.yaml": (people, trust.load),
        "taints.yaml": ({"taints": []}, taints.load),
        "notify.yaml": (
            {"targets": {"team": {"kind": "slack", "url_variable": "SLACK"}}, "rules": []},
            notifications.load,
        ),
        "train/t.yaml": (
            {"preset": "cartpole-ppo", "overrides": {"algorithm.gamma": 0.9}},
            lambda: config_of(str(configs / "train/t.yaml"), [], None, None),
        ),
    }
    return [
        Target(f"configs/{name}", document, _file(configs / name, reader), as_yaml)
        for name, (document, reader) in read.items()
    ]


def _documents(home: Path) -> list[Target]:
    from rrf import atomic
    from rrf.data import episode_log, log_records
    from rrf.evaluation.gates.verdicts import Verdict
    from rrf.evaluation.results import Evaluation
    from rrf.outcome import Outcome
    from rrf.registry import ledger as ledgers
    from rrf.registry.ledger import Ledger
    from tests.client.logging import logged
    from tests.registry.conftest import judge, make_checkpoint, make_evaluation

    checkpoint = make_checkpoint(home / "checkpoint")
    report = make_evaluation(home / "evaluation", checkpoint, 18)
    verdict = judge(report)
    episode = logged(home / "logs")
    chunk = episode / "000000.rrflog"
    ledger = Ledger("m")
    for version in ("1", "2"):
        facts = {"checkpoint_digest": version * 64, "lineage_digest": "0" * 64}
        entry = ledger.next_entry(
            action="register", version=version, reason="new", registration=facts
        )
        ledger = Ledger("m", (*ledger.entries, entry))
    good = chunk.read_bytes()
    tags = {ledgers.key_of(e.index): e.text() for e in ledger.entries}

    def entry_after(text: bytes) -> typing.Any:
        changed = tags | {ledgers.key_of(2): text.decode(errors="surrogateescape")}
        return ledgers.parse("m", changed, None)

    def manifest_of_log(text: bytes) -> typing.Any:
        return episode_log.parse_manifest(text, "manifest.json")

    return [
        Target(
            "manifest of a checkpoint",
            atomic.parse_json((checkpoint / atomic.MANIFEST).read_bytes()),
            _file(checkpoint / atomic.MANIFEST, lambda: atomic.check_manifest(checkpoint)),
            as_json,
        ),
        Target(
            "manifest of an episode",
            atomic.parse_json((episode / atomic.MANIFEST).read_bytes()),
            manifest_of_log,
            as_json,
        ),
        Target(
            "entry of the ledger", atomic.parse_json(ledger.entries[1].text()), entry_after, as_json
        ),
        Target(
            "evaluation",
            report.to_dict(),
            _file(home / "e/evaluation.json", lambda: Evaluation.load(home / "e")),
            as_json,
        ),
        Target(
            "verdict",
            verdict.to_dict(),
            _file(home / "v.json", lambda: Verdict.load(home / "v.json")),
            as_json,
        ),
        Target(
            "result file",
            {"exit_code": 0, "error": None, "result": {"a": 1}},
            _file(home / "o.json", lambda: Outcome.read(home / "o.json")),
            as_json,
        ),
        Target(
            "records of a log",
            {"kind": "step", "action": [0.5], "time": 1.0},
            _file(
                home / "r/000000.rrflog",
                lambda: [*log_records.records_in(home / "r/000000.rrflog")],
            ),
            lambda data: good + log_records.pack_record(data),
        ),
    ]


def _messages(home: Path) -> list[Target]:
    from rrf.client import messages
    from rrf.data.schema import STATE
    from rrf.runners.checkpoints.deployed import Signature, Tensor
    from rrf.serving import book
    from rrf.serving.requests import RequestReader

    inputs = (
        Tensor("uint8", (-1, 8, 8, 3), "observation.images.front"),
        Tensor("float32", (-1, 3), STATE),
        Tensor("str", (-1,), "instruction"),
    )
    reader = RequestReader(Signature(inputs, Tensor("float32", (-1, 4, 2))))
    request = {
        "observation.images.front": np.zeros((8, 8, 3), np.uint8),
        "state": [0.0, 1.0, 2.0],
        "prompt": "go",
        messages.RUNNING: np.zeros((2, 2), np.float32),
        messages.FROZEN: 1,
    }
    plain = _plain(messages.pack(request))
    begin = {messages.EPISODE_BEGIN: {"id": "a", "task": "t"}}
    end = {messages.EPISODE_END: {"id": "a", "success": True, "reason": "", "guards": 0}}
    return [
        Target("request", plain, lambda data: reader.row(messages.unpack(data)), as_message),
        Target(
            "begin of an episode",
            begin,
            lambda data: book.begin_of(_map(messages.unpack(data)).get(messages.EPISODE_BEGIN)),
            as_message,
        ),
        Target(
            "end of an episode",
            end,
            lambda data: book.end_of(_map(messages.unpack(data)).get(messages.EPISODE_END)),
            as_message,
        ),
    ]


def _map(value: typing.Any) -> dict:
    return value if isinstance(value, dict) else {}


def _plain(message: bytes) -> typing.Any:
    """A message without its arrays: as maps that stand for them."""
    import msgpack

    return msgpack.unpackb(message)
