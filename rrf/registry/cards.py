"""The card of a version as Markdown and HTML, its bill of materials, and both beside the version.

When a version is registered, evaluated or promoted, card and bill are stored among the artifacts of
its run, each in a folder named after its SHA-256, and the entry of the ledger holds these digests.
So whoever signs the entry signs them, and what somebody changes in the store is noticed.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rrf.pages.page import render
from rrf.registry import bom, card_facts, changes, stored_files
from rrf.registry import ledger as ledgers
from rrf.registry.card_facts import Data, Facts
from rrf.registry.client import connect
from rrf.registry.entries import Entry
from rrf.registry.ledger import Ledger
from rrf.registry.lineage_graph import Node
from rrf.registry.versions import Version

if TYPE_CHECKING:
    from mlflow import MlflowClient

CARD, PAGE, BOM = "card.md", "card.html", "bom.json"
_NO_DATA = "No dataset: it learned in simulation."
_SHOWN = 12


def now(version: Version) -> dict[str, str]:
    """The documents of a version by what the registry says now: file name -> text."""
    client = connect()
    facts = card_facts.gather(client, changes.agreed(client, version.name), version)
    return {CARD: markdown(facts), PAGE: page(facts), BOM: _bill(facts)}


def fetched(version: Version) -> dict[str, bytes]:
    """Like `attached`, by the ledger as it is now."""
    client = connect()
    return attached(client, ledgers.read(client, version.name), version)


def append(
    client: "MlflowClient", ledger: Ledger, version: Version, anew: bool = False, **facts
) -> Entry | None:
    """`rrf.registry.changes.append` of a change of a version, with its documents as they are then.

    A bill of materials that is there already stays, except with `anew`: promoting installs nothing.
    """
    expected = ledger.next_entry(version=version.version, **facts)
    then = Ledger(ledger.name, (*ledger.entries, expected))
    known = {} if anew else ledger.documents(version.version)
    made = card_facts.gather(client, then, version)
    texts = {CARD: markdown(made), PAGE: page(made)}
    digests = {BOM: known[BOM]} if BOM in known else {}
    if not digests:
        texts[BOM] = _bill(made)
    digests |= {name: _digest(text.encode()) for name, text in texts.items()}
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in texts.items():
            if known.get(name) != digests[name]:
                file = Path(scratch) / name
                file.write_text(text, encoding="utf-8")
                client.log_artifact(version.run_id, str(file), _place(digests[name]))
    return changes.append(
        client,
        ledger,
        version=version.version,
        time=expected.time,
        documents=dict(sorted(digests.items())),
        **facts,
    )


def attached(client: "MlflowClient", ledger: Ledger, version: Version) -> dict[str, bytes]:
    """The documents that are stored with a version, by name; {} if none are.

    Raises:
        ValueError: If one of them is not what the ledger says.
        OSError: If one cannot be read.
    """
    again = f"write them anew: rrf models card {version.name}/{version.version} --attach"
    found = {}
    for name, digest in ledger.documents(version.version).items():
        if name not in (CARD, PAGE, BOM):  # it becomes the name of a file
            raise ValueError(f"the ledger of {version} names a document {name!r}, which is none")
        file = f"{_place(digest)}/{name}"
        with tempfile.TemporaryDirectory() as scratch:
            what = f"{name} of {version}"
            try:
                path = stored_files.download(client, version.run_id, file, scratch, what)
                content = path.read_bytes()
            except OSError as error:
                raise OSError(f"{error}; {again}") from error
        if _digest(content) != digest:
            raise ValueError(
                f"{name} of {version} was changed in the store ({file} of run {version.run_id}): "
                f"the ledger knows {digest[:_SHOWN]}; do not believe it; {again}"
            )
        found[name] = content
    return found


def markdown(facts: Facts) -> str:
    """The card as Markdown."""
    lines = [f"# {facts.title}", "", _plain(facts.purpose), "", *_items(facts.standing)]
    lines += ["", "## Success", ""]
    if facts.evaluation is None:
        lines += ["It was not evaluated under a protocol.", ""]
    else:
        lines += ["| task | solved | success | 95 % bounds |", "|---|---|---|---|"]
        lines += [f"| {' | '.join(map(_cell, row))} |" for row in _rates(facts)]
        lines += ["", "Measured under this protocol:", "", *_listed(facts.protocol), ""]
        if facts.evaluated_by:
            lines += [f"The evaluation is signed by {_plain(facts.evaluated_by)}.", ""]
    lines += ["## Data", "", *(_items(map(_dataset, facts.data)) or [_NO_DATA])]
    lines += ["", "## Training", ""]
    trainings = enumerate(reversed(facts.trainings), start=1)
    lines += [f"{number}. {_plain(_training(node))}" for number, node in trainings]
    lines += _items(_parent(node) for node in facts.parents)
    lines += ["", "## Limits", "", *_items(facts.limits)]
    lines += ["", "## Reproduce it", "", "```bash", *commands(facts), "```", ""]
    lines += [*_listed(code_of(facts)), "", "## Hardware of the evaluation", ""]
    lines += _listed(facts.hardware) or ["- not recorded"]
    lines += ["", "## Who", "", *_items(facts.people)]
    return "\n".join(lines).rstrip() + "\n"


def page(facts: Facts) -> str:
    """The card as a page of HTML."""
    return render(
        "registry/card.html",
        title=facts.title,
        facts=facts,
        rates=_rates(facts),
        datasets=[_dataset(data) for data in facts.data] or [_NO_DATA],
        trainings=[_training(node) for node in reversed(facts.trainings)],
        parents=[_parent(node) for node in facts.parents],
        commands="\n".join(commands(facts)),
        code=code_of(facts),
    )


def _bill(facts: Facts) -> str:
    return json.dumps(bom.bill(facts), indent=1, ensure_ascii=False) + "\n"


def commands(facts: Facts) -> list[str]:
    """What to type to do it again, and to use it."""
    return [f"rrf models reproduce {facts.reference}", f"rrf models fetch {facts.reference}"]


def code_of(facts: Facts) -> dict[str, str]:
    """The code and the packages of the training."""
    names = {
        "git_revision": "commit",
        "git_dirty": "changes that were not committed",
        "lock_hash": "SHA-256 of requirements.lock",
        "source_digest": "digest of the code of rrf",
    }
    known = {shown: facts.lineage[key] for key, shown in names.items() if key in facts.lineage}
    prefix = "environment.packages."
    packages = {
        key.removeprefix(prefix): v for key, v in facts.lineage.items() if key.startswith(prefix)
    }
    return {"checkpoint": facts.version.checkpoint_digest} | known | packages


def _rates(facts: Facts) -> list[list[str]]:
    if facts.evaluation is None:
        return []
    rates = {**facts.evaluation.per_task, "all tasks": facts.evaluation.overall}
    return [
        [task, f"{r.successes} of {r.episodes}", f"{r.rate:.1%}", f"{r.low:.1%} to {r.high:.1%}"]
        for task, r in rates.items()
    ]


def _dataset(data: Data) -> str:
    known = ", ".join(f"{key} {value}" for key, value in data.facts.items() if key != "md5")
    text = f"{data.name}, DVC md5 {data.md5 or 'unknown'}, licence {data.licence}"
    text += f" ({known})" if known else ""
    return f"{text}: {data.provenance}" if data.provenance else text


def _training(node: Node) -> str:
    return f"{node.title}: {', '.join(f'{key} {value}' for key, value in node.facts.items())}"


def _parent(node: Node) -> str:
    return f"It began with {node.title}, which no run of this store made"


def _items(lines: Iterable[str]) -> list[str]:
    return [f"- {_plain(line)}" for line in lines]


def _listed(facts: Mapping[str, str]) -> list[str]:
    return _items(f"{key}: {value}" for key, value in facts.items())


def _plain(text: str) -> str:
    """What others may have written, as one line of text and nothing else."""
    return " ".join(text.replace("<", "&lt;").split())


def _cell(text: str) -> str:
    return _plain(text.replace("|", "/"))


def _place(digest: str) -> str:
    return f"documents/{digest[:_SHOWN]}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
