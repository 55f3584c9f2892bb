"""What somebody with access to a store changes in it, or signs with a key that is not theirs."""

import contextlib
import dataclasses
import json
import os
import random
import shutil
import typing
from collections.abc import Iterator
from pathlib import Path

from rrf import atomic
from rrf.client import EpisodeLogger, upload
from rrf.data.log_records import pack_record, records_in
from rrf.data.transport.episode_store import EpisodeStore
from rrf.identity import keys, trust
from rrf.identity.trust import ModelTrustCfg, TrustCfg, TrustedKeyCfg
from tests.client.logging import log_episode
from tests.faults.attacks import Attacked
from tests.faults.registry_cases import champions, prepare_registry
from tests.registry.conftest import NAME

_ALLOWED = ("arm-policy",)


class ForgedLogs(Attacked):
    """Episodes are changed on their way and in the store, sent again, and under other names."""

    name = "logs forged, replayed and reordered"
    episodes = 6

    def prepare(self, home: Path) -> None:
        with EpisodeLogger(home / "logs", "arm-1") as log:
            for number in range(self.episodes):
                log_episode(log, first=100 * number, steps=5)

    def play(self, home: Path, rng: random.Random) -> int:
        from rrf.registry import deployments

        store, logs, here = EpisodeStore(home / "store"), home / "logs", home / "recordings/new"
        shutil.copytree(logs, home / "true")
        true = {path.name: _content(path) for path in (home / "true").iterdir()}
        upload(logs, store, keep=True)
        spoiled, forgeries = set(), rng.sample(_FORGERIES, rng.randint(2, 5))
        for forgery in forgeries:
            spoiled |= forgery(home, rng)
        upload(logs, store, keep=True)  # again, as a robot whose answer was lost does
        deployments.bring(store, "new", _ALLOWED)
        second = deployments.bring(store, "new", _ALLOWED)
        assert second.new == [], "an episode was brought twice"
        brought = {path.name: _content(path) for path in here.glob("[!.]*")}
        false = [name for name, files in brought.items() if true.get(name) != files]
        assert not false, f"{[f.__name__ for f in forgeries]} brought {false}"
        missing = true.keys() - spoiled - brought.keys()
        assert not missing, f"{missing} are not brought: {second.refused}"
        unnamed = [name for name in spoiled if not any(name in line for line in second.refused)]
        unnamed = [name for name in unnamed if name in true and name not in brought]
        assert not unnamed, f"nobody says why {unnamed} were not brought: {second.refused}"
        assert {p.name for p in logs.glob("[!.]*")} >= {*true}, "the robot has lost an episode"
        return len(forgeries)


def _content(folder: Path) -> dict[str, str]:
    return {path.name: atomic.sha256(path) for path in folder.iterdir()}


def _one(home: Path, rng: random.Random) -> Path:
    """An episode in the store."""
    return rng.choice(sorted((home / "store/episodes").glob("[!.]*[!-x]")))


def flip(home: Path, rng: random.Random) -> set[str]:
    """Another byte."""
    place = _one(home, rng)
    file = rng.choice(sorted(place.iterdir()))
    content = bytearray(file.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)
    return {place.name}


def cut(home: Path, rng: random.Random) -> set[str]:
    """A file that ends early."""
    place = _one(home, rng)
    file = place / "000000.rrflog"
    content = file.read_bytes()
    file.write_bytes(content[: rng.randrange(len(content))])
    return {place.name}


def claim_success(home: Path, rng: random.Random) -> set[str]:
    """A summary that says another outcome than the records."""
    place = _one(home, rng)
    manifest = json.loads((place / atomic.MANIFEST).read_text())
    manifest["summary"]["outcome"] = "failure"
    (place / atomic.MANIFEST).write_text(json.dumps(manifest))
    return {place.name}


def reorder(home: Path, rng: random.Random) -> set[str]:
    """The records of an episode in another order, with a manifest that fits the file."""
    place = _one(home, rng)
    file = place / "000000.rrflog"
    records = [pack_record(record) for record, _ in records_in(file)]
    first, second = rng.sample(range(len(records)), 2)
    records[first], records[second] = records[second], records[first]
    file.write_bytes(b"".join(records))
    _fit(place)
    return {place.name}


def repeat(home: Path, rng: random.Random) -> set[str]:
    """A step twice, with a manifest that fits the file."""
    place = _one(home, rng)
    file = place / "000000.rrflog"
    records = [pack_record(record) for record, _ in records_in(file)]
    number = rng.randrange(len(records))
    file.write_bytes(b"".join([*records[:number], records[number], *records[number:]]))
    _fit(place)
    return {place.name}


def rename(home: Path, rng: random.Random) -> set[str]:
    """A whole episode once more under another name."""
    place = _one(home, rng)
    shutil.copytree(place, place.with_name(f"{place.name}-x"), dirs_exist_ok=True)
    return {f"{place.name}-x"}


def rename_and_say_so(home: Path, rng: random.Random) -> set[str]:
    """The same, with the new name in the manifest."""
    (name,) = rename(home, rng)
    file = home / "store/episodes" / name / atomic.MANIFEST
    file.write_text(file.read_text().replace(name.removesuffix("-x"), name))
    return {name}


def exchange(home: Path, rng: random.Random) -> set[str]:
    """The files of two episodes, exchanged."""
    first, second = rng.sample(sorted((home / "store/episodes").glob("[!.]*[!-x]")), 2)
    first.rename(home / "between")
    second.rename(first)
    (home / "between").rename(second)
    return {first.name, second.name}


def link(home: Path, rng: random.Random) -> set[str]:
    """A link instead of a file."""
    place = _one(home, rng)
    file = place / "000000.rrflog"
    shutil.copyfile(file, home / "elsewhere")
    file.unlink()
    file.symlink_to(home / "elsewhere")
    return {place.name}


def add(home: Path, rng: random.Random) -> set[str]:
    """A file that the manifest does not list; nobody fetches it."""
    (_one(home, rng) / "000001.rrflog").write_bytes(rng.randbytes(9))
    return set()


def change_at_robot(home: Path, rng: random.Random) -> set[str]:
    """The copy of the robot, after it was sent; the store keeps what it has."""
    folder = rng.choice(sorted((home / "logs").glob("[!.]*")))
    file = folder / "000000.rrflog"
    records = [record for record, _ in records_in(file)]
    records[-1]["outcome"] = "failure"
    file.write_bytes(b"".join(map(pack_record, records)))
    _fit(folder)
    return set()


_FORGERIES = [flip, cut, claim_success, reorder, repeat, rename, rename_and_say_so]
_FORGERIES += [exchange, link, add, change_at_robot]


def _fit(place: Path) -> None:
    """Let the manifest have the digests of the files; its summary stays."""
    manifest = json.loads((place / atomic.MANIFEST).read_text())
    manifest["files"] = {name: atomic.sha256(place / name) for name in manifest["files"]}
    manifest["digest"] = atomic.digest_of(manifest["files"])
    (place / atomic.MANIFEST).write_text(json.dumps(manifest))


PEOPLE = ("alice", "bob", "carol")


@contextlib.contextmanager
def acting(name: str, folder: Path | None = None) -> Iterator[None]:
    """Be somebody who has keys; in a folder of their own, if one is given."""
    before = dict(os.environ)
    os.environ[keys.NAME_VARIABLE] = name
    if folder:
        os.environ[keys.FOLDER_VARIABLE] = str(folder)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def prepare_signed(home: Path, **rules: typing.Any) -> None:
    """A workspace whose model needs signatures: of three versions, the second is the champion and
    the first was it before."""
    from rrf.registry import promotion

    with signing(home), acting("alice"):
        trusted = [TrustedKeyCfg(name=name, public=keys.new(name)) for name in PEOPLE]
        trust.save(TrustCfg(keys=trusted, models={NAME: ModelTrustCfg(**rules)}))
        prepare_registry(home, (1, 2, 3))
        for version in ("1", "2"):
            with contextlib.suppress(promotion.NotPromotedError):
                promotion.promote(NAME, version)
            if rules.get("approvals"):
                approve("bob", version)
                promotion.promote(NAME, version)


@contextlib.contextmanager
def signing(home: Path) -> Iterator[None]:
    """Have the keys that are in the workspace."""
    with acting("alice", home / "keys"):
        for name in (keys.PASSPHRASE_VARIABLE, keys.AGENT_VARIABLE):
            os.environ.pop(name, None)
        yield


def approve(name: str, version: str) -> None:
    """Approve the request for a version."""
    from rrf.registry import approvals, promotion

    with acting(name):
        promotion.approve(approvals.sign(promotion.ledger_of(NAME), version, "seen its videos"))


def read_champion() -> str | None:
    """What every reader takes for the champion; None if they refuse the ledger."""
    from rrf.registry import promotion, versions
    from rrf.registry.served import ServedModel

    found = set()
    for read in (
        lambda: promotion.ledger_of(NAME).champion,
        lambda: versions.find(f"{NAME}@champion").version,
        lambda: ServedModel(NAME).state().champion,
    ):
        with contextlib.suppress(ValueError):
            found.add(read())
    assert len(found) <= 1, f"readers find several champions: {found}"
    return found.pop() if found else None


class ForgedLedger(Attacked):
    """Who may write to MLflow's store edits, removes, exchanges, repeats and invents entries."""

    name = "ledger entries forged, replayed and reordered"

    def prepare(self, home: Path) -> None:
        prepare_signed(home)

    def play(self, home: Path, rng: random.Random) -> int:
        from rrf.mlflow_store import store
        from rrf.registry import changes, promotion, repair

        with signing(home):
            client, true = store.connect(), promotion.ledger_of(NAME)
            forgeries = rng.sample(range(len(_LIES)), rng.randint(1, 3))
            for number in forgeries:
                _LIES[number](client, true, rng)
            assert read_champion() in (None, true.champion), "a reader believes a lie"
            with contextlib.suppress(ValueError):
                promotion.promote(NAME, "3")
            assert read_champion() in (None, "2", "3"), "a promotion writes a lie for its author"
            with acting("bob"):
                repair.repair(NAME, "somebody wrote to the store")
                assert repair.repair(NAME, "again").findings == [], "a repair repairs not all"
            ledger = changes.agreed(client, NAME)
            known = {entry.hash for entry in true.entries}
            invented = [e.action for e in ledger.entries if e.hash not in known]
            assert {*invented} <= {"repair", "promote"}, f"the ledger has {invented}"
            assert ledger.champion in {None, *true.champions, "3"}
            assert champions() == [v for v in [ledger.champion] if v], champions()
            if ledger.registration("3"):  # it is in what is left
                promotion.promote(NAME, "3")
                assert champions() == ["3"]
        return len(forgeries)


def _tags(client: typing.Any) -> dict[str, str]:
    tags = client.get_registered_model(NAME).tags
    return {key: tags[key] for key in sorted(tags) if key.startswith("ledger.0")}


def _set(client: typing.Any, key: str, value: str) -> None:
    client.set_registered_model_tag(NAME, key, value)


def _append(client: typing.Any, text: str, hash: str) -> None:
    """Write a text where the next entry belongs, with the head after it."""
    from rrf.registry import ledger as ledgers

    _set(client, ledgers.key_of(len(_tags(client)) + 1), text)
    _set(client, ledgers.HEAD, hash)


def edit(client: typing.Any, true: typing.Any, rng: random.Random) -> None:
    """Another champion, reason or time in an entry, also with a hash that fits."""
    key = rng.choice([*_tags(client)])
    data = json.loads(_tags(client)[key])
    data |= rng.choice([{"champion": "3"}, {"reason": "because"}, {"time": "1999-01-01"}])
    _set(client, key, json.dumps(data))


def remove(client: typing.Any, true: typing.Any, rng: random.Random) -> None:
    """An entry less."""
    client.delete_registered_model_tag(NAME, rng.choice([*_tags(client)]))


def swap(client: typing.Any, true: typing.Any, rng: random.Random) -> None:
    """Two entries exchanged."""
    tags = _tags(client)
    first, second = rng.sample([*tags], 2)
    _set(client, first, tags[second])
    _set(client, second, tags[first])


def replay(client: typing.Any, true: typing.Any, rng: random.Random) -> None:
    """An entry once more at the end: the first promotion makes version 1 the champion again."""
    entry = rng.choice([e for e in true.entries if e.action == "promote"])
    _append(client, entry.text(), entry.hash)
    client.set_registered_model_alias(NAME, "champion", entry.version)


def end_early(client: typing.Any, true: typing.Any, rng: random.Random) -> None:
    """An older state of the whole store: the last entries are gone, head and alias fit."""
    from rrf.registry import ledger as ledgers

    kept = next(e for e in true.entries if e.action == "promote")
    for entry in true.entries[kept.index :]:
        if ledgers.key_of(entry.index) in _tags(client):
            client.delete_registered_model_tag(NAME, ledgers.key_of(entry.index))
    _set(client, ledgers.HEAD, kept.hash)
    client.set_registered_model_alias(NAME, "champion", "1")


def invent(client: typing.Any, true: typing.Any, rng: random.Random) -> None:
    """A consistent entry that nobody, or an unknown key, has signed."""
    from rrf.registry import signatures

    facts = {"action": "promote", "version": "3", "champion": "3", "reason": "trust me"}
    if rng.random() < 0.5:
        with acting("mallory"):
            keys.new("mallory", None) if "mallory" not in keys.names() else None
            signer = keys.find("mallory")
        entry = true.next_entry(**facts, key=signer.public)
        signed = signer.sign(signatures.ENTRY, entry.hash)
        entry = dataclasses.replace(entry, signature=signed)
    else:
        entry = true.next_entry(**facts)
    if rng.random() < 0.5:
        _append(client, entry.text(), entry.hash)
        client.set_registered_model_alias(NAME, "champion", "3")
    else:  # let the next one who changes the model write it
        claim = f"{NAME}.change-{entry.index:06d}"
        tags = {"rrf.change-of": NAME, "rrf.entry": entry.text()}
        client.create_registered_model(claim, tags=tags)


def point_elsewhere(client: typing.Any, true: typing.Any, rng: random.Random) -> None:
    """The alias alone."""
    client.set_registered_model_alias(NAME, "champion", rng.choice(["1", "3"]))


_LIES = [edit, remove, swap, replay, end_early, invent, point_elsewhere]
