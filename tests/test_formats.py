"""What a newer rrf wrote is refused in one line, what an older one wrote is converted."""

import dataclasses
import json

import pytest
import yaml

from rrf import atomic, formats
from rrf.config import read_yaml
from rrf.data.conversion.conversion_record import read_conversion, write_conversion
from rrf.evaluation.gates.verdicts import Check, Verdict
from rrf.evaluation.protocols.limits import LimitCfg
from rrf.evaluation.results import EpisodeResult, Evaluation
from rrf.formats import Format, NewerFormatError
from rrf.registry import ledger as ledgers
from rrf.registry.ledger import Ledger
from rrf.run_directory import read_facts, write_facts
from rrf.runners.checkpoints.deployable import copy_deployable, kind_of, manifest_of

NEWER = "was written by a newer rrf"
LATER = Format(  # what was called wide became width, then counted in cm
    "box",
    [
        lambda data: {"width": data["wide"]},
        lambda data: {"width": data["width"] * 100},
    ],
)


def a_checkpoint(folder):
    (folder / "config.yaml").write_text(LimitCfg(max=1.0).to_yaml())
    atomic.write_manifest(folder, **formats.CHECKPOINT.mark, kind="vla", step=3, lineage={})
    return folder / atomic.MANIFEST


def a_config(folder):
    (folder / "config.yaml").write_text(LimitCfg(max=1.0).to_yaml())
    return folder / "config.yaml"


def a_run(folder):
    write_facts(folder / "run.json", {"run_id": "r"})
    return folder / "run.json"


def an_evaluation(folder):
    episode = EpisodeResult("reach", 1, 0, True, 5, 2.0)
    Evaluation({}, "p", "c", [episode], {}).save(folder / "evaluation.json")
    return folder / "evaluation.json"


def a_verdict(folder):
    checks = (Check("overall", "pass", "because"),)
    hashes = ("pass", "g", "1", "2", "3", "4", None, None)
    Verdict(*hashes, 1, 3, 0.99, {"rate": 1.0}, checks).save(folder / "verdict-g.json")
    return folder / "verdict-g.json"


def a_dataset_record(folder):
    (folder / "meta").mkdir()
    write_conversion(folder, "rlds", "datasets/raw/x", [])
    return folder / "meta/conversion.json"


KINDS = {
    "checkpoint": (a_checkpoint, lambda file: manifest_of(file.parent)),
    "config": (a_config, read_yaml),
    "run": (a_run, read_facts),
    "evaluation": (an_evaluation, Evaluation.load),
    "verdict": (a_verdict, Verdict.load),
    "dataset record": (a_dataset_record, lambda file: read_conversion(file.parents[1])),
}


@pytest.mark.parametrize("what", KINDS)
def test_everything_says_its_version_and_a_newer_one_is_refused(what, tmp_path):
    write, read = KINDS[what]
    file = write(tmp_path)
    assert read(file)
    data = yaml.safe_load(file.read_text())  # JSON is YAML
    assert data["format_version"] == 1
    newest = 2 if what == "evaluation" else 1
    file.write_text(json.dumps(data | {"format_version": newest + 1}))
    versions = f"{what} of version {newest + 1}, this rrf reads up to {newest}"
    message = f"{file.name} {NEWER} \\({versions}\\); install a ne"
    with pytest.raises(NewerFormatError, match=message):
        read(file)


def test_a_checkpoint_that_a_newer_rrf_wrote_is_refused_before_a_file_is_read(tmp_path):
    for name in ("checkpoint", "out"):
        (tmp_path / name).mkdir()
    file = a_checkpoint(tmp_path / "checkpoint")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format_version": 2}))
    for act in (atomic.check_manifest, kind_of, lambda path: copy_deployable(path, file.parent)):
        with pytest.raises(NewerFormatError, match=NEWER):
            act(file.parent)


def test_a_copy_of_a_checkpoint_keeps_the_version_of_its_files(tmp_path, monkeypatch):
    for name in ("checkpoint", "out"):
        (tmp_path / name).mkdir()
    a_checkpoint(tmp_path / "checkpoint")
    later = Format("checkpoint", [lambda manifest: manifest | {"kind": manifest["kind"].upper()}])
    monkeypatch.setattr(formats, "CHECKPOINT", later)
    copy_deployable(tmp_path / "checkpoint", tmp_path / "out")
    assert json.loads((tmp_path / "out/manifest.json").read_text())["format_version"] == 1
    assert kind_of(tmp_path / "out") == "VLA"


def tags_of(ledger: Ledger) -> dict[str, str]:
    return {ledgers.key_of(entry.index): entry.text() for entry in ledger.entries}


def promoted(ledger: Ledger, version: str) -> Ledger:
    """The ledger with one more promotion."""
    entry = ledger.next_entry(action="promote", champion=version, version=version, reason="good")
    return Ledger(ledger.name, (*ledger.entries, entry))


ONE = promoted(Ledger("m"), "1")


def test_a_ledger_with_an_entry_of_a_newer_rrf_is_refused_and_not_called_damaged():
    two = promoted(ONE, "2")
    tags = tags_of(two)
    assert ledgers.proved("m", tags) == (two, "")
    newer = json.loads(tags["ledger.000002"]) | {"format_version": 9, "robot": "arm"}
    tags["ledger.000002"] = json.dumps(newer)
    with pytest.raises(NewerFormatError, match=f"entry 2 of the promotion ledger {NEWER}"):
        ledgers.proved("m", tags)  # what `rrf models repair` reads, too: it must not cut this off


def test_the_version_of_an_entry_is_a_part_of_what_its_hash_proves():
    content = json.loads(ONE.entries[0].text())
    assert content.pop("format_version") == 7
    tags = {ledgers.key_of(1): json.dumps(content)}
    assert ledgers.proved("m", tags) == (Ledger("m"), "entry 1 was edited")


def test_entries_of_an_older_version_are_proved_as_they_were_written(monkeypatch):
    louder = [lambda entry: entry | {"reason": entry["reason"].upper()}]
    later = Format("ledger entry", [*formats.LEDGER.conversions, *louder])
    tags = tags_of(ONE)
    monkeypatch.setattr(formats, "LEDGER", later)
    converted, damage = ledgers.proved("m", tags)
    assert damage == ""
    assert converted.entries == (dataclasses.replace(ONE.entries[0], reason="GOOD"),)
    two = promoted(converted, "2")
    assert ledgers.proved("m", tags | tags_of(Ledger("m", two.entries[1:]))) == (two, "")


def test_an_entry_from_before_entries_could_be_signed_is_proved():
    (entry,) = ONE.entries
    old = json.loads(entry.text()) | {"format_version": 1, "hash": ""}
    for field in ("approval", "key", "signature"):
        del old[field]
    old["hash"] = atomic.digest_of(old)
    ledger, damage = ledgers.proved("m", {ledgers.key_of(1): json.dumps(old)})
    assert damage == ""
    assert ledger.entries == (dataclasses.replace(entry, hash=old["hash"], format_version=1),)


def test_older_versions_are_converted_one_after_the_other():
    assert LATER.version == 3
    assert LATER.mark == {"format_version": 3}
    for data in ({"wide": 2}, {"format_version": 1, "wide": 2}, {"format_version": 2, "width": 2}):
        assert LATER.read(data, "box.json") == {"width": 200}
    assert LATER.read({"format_version": 3, "width": 2}, "box.json") == {"width": 2}


@pytest.mark.parametrize("version", [0, -1, "1", 1.0, True, None])
def test_what_is_no_version_is_named(version):
    with pytest.raises(ValueError, match=r"box.json: format_version is .*, allowed: 1 to 3"):
        LATER.read({"format_version": version}, "box.json")


def test_a_config_that_a_person_wrote_needs_no_version(tmp_path):
    (tmp_path / "limit.yaml").write_text("max: 3\n")
    limit = LimitCfg(max=3.0)
    assert LimitCfg.from_dict(read_yaml(tmp_path / "limit.yaml")) == limit
    assert LimitCfg.from_yaml(limit.to_yaml()) == limit
    with pytest.raises(NewerFormatError, match=f"this LimitCfg {NEWER}"):
        LimitCfg.from_yaml("format_version: 2\nmax: 3\n")
