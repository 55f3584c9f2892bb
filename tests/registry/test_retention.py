"""By configs/retention.yaml, `rrf gc` lets go of old versions and videos, and of nothing needed."""

import dataclasses
import os
import time

import pytest

from rrf import atomic
from rrf.lineage import Lineage
from rrf.registry import (
    changes,
    garbage,
    listing,
    promotion,
    registration,
    releases,
    retention,
)
from rrf.registry.entries import PlannedTrial
from rrf.registry.loading import fetch
from rrf.registry.retention import RetentionCfg
from tests.registry.conftest import NAME, make_checkpoint, new_run, promote_three, register
from tests.registry.test_garbage import write_run

DAY_S = 86_400.0


NOW = dict.fromkeys(retention.KINDS, 0.0)


def keeping(num_versions: int | None) -> RetentionCfg:
    """Nothing is kept because it is young."""
    return RetentionCfg(keep_versions=num_versions, version_days=0, days=NOW)


def listed(kind: str, policy: RetentionCfg) -> list[str]:
    return [leftover.name for leftover in garbage.find(None, policy) if leftover.kind == kind]


def test_champions_and_the_newest_versions_stay(home, add, client):
    promote_three(add)
    for seed in range(4, 9):
        add(seed)
    policy = keeping(2)
    assert listed("version", policy) == [f"{NAME}/{n}" for n in (4, 5, 6)]
    assert listed("version", RetentionCfg(keep_versions=2)) == []
    assert listed("version", keeping(None)) == []
    for leftover in garbage.find(None, policy):
        if leftover.kind == "version":
            leftover.remove()
    assert sorted(v.version for v in listing.versions(NAME)) == ["1", "2", "3", "7", "8"]
    assert listing.problems() == []
    models = [leftover for leftover in garbage.find(None, policy) if leftover.kind != "run"]
    assert [one.kind for one in models].count("logged model") == 3
    for one in models:
        one.remove()
    for number in ("1", "2", "3", "7", "8"):
        fetch(f"{NAME}/{number}", home / "out" / number)
    promotion.rollback(NAME, "drops the cup")  # to a version of long ago
    assert promotion.ledger_of(NAME).champion == "2"


@pytest.mark.slow
def test_revoked_versions_and_those_with_an_alias_stay(add, client):
    promote_three(add)
    promotion.rollback(NAME, "drops the cup")
    for seed in range(4, 8):
        add(seed)
    client.set_registered_model_alias(NAME, "baseline", "4")
    assert listed("version", keeping(1)) == [f"{NAME}/5", f"{NAME}/6"]


@pytest.mark.slow
def test_what_a_kept_version_was_trained_from_stays(home, add, client):
    for seed in range(1, 6):
        add(seed)
    promotion.promote(NAME, "5")
    digest = {v.version: v.checkpoint_digest for v in listing.versions(NAME)}
    client.set_model_version_tag(NAME, "5", retention.ORIGINS[0], digest["3"])
    client.set_model_version_tag(NAME, "3", retention.ORIGINS[-1], digest["1"])
    assert listed("version", keeping(1)) == [f"{NAME}/2", f"{NAME}/4"]


@pytest.mark.slow
def test_a_canary_an_arm_of_a_trial_and_a_part_of_another_model_stay(home, add, run_id, client):
    for seed in range(1, 7):
        add(seed)
    promotion.promote(NAME, "6")
    digest = {v.version: v.checkpoint_digest for v in listing.versions(NAME)}
    releases.begin(NAME, "1")
    trial = PlannedTrial("s", "0" * 64, "0" * 64, "", "6", [digest["6"], digest["2"]], 1)
    ledger = promotion.ledger_of(NAME)
    changes.append(client, ledger, action="trial", trial=dataclasses.asdict(trial), reason="-")
    lineage = Lineage(system0_checkpoint=digest["3"], parent_checkpoint=digest["4"])
    registration.register(make_checkpoint(home / "checkpoints/7", 7), "other", run_id, lineage)
    assert listed("version", keeping(1)) == [f"{NAME}/5"]
    releases.stop(NAME, "enough seen")
    old = next(v for v in listing.versions(NAME) if v.version == "3")
    with pytest.raises(ValueError, match="something needs it by now"):
        retention.delete(client, old, 1, time.time())


def test_a_version_that_becomes_champion_after_it_was_listed_is_not_deleted(add):
    for seed in (1, 2, 3):
        add(seed)
    first, second = garbage.find(None, keeping(1))
    promotion.promote(NAME, "1")
    with pytest.raises(ValueError, match="something needs it by now"):
        first.remove()
    second.remove()
    assert sorted(v.version for v in listing.versions(NAME)) == ["1", "3"]


def video(folder, age_days: float = 0.0):
    atomic.write_bytes(folder / "videos/first.mp4", b"frames")
    moment = time.time() - age_days * DAY_S
    for path in (folder / "videos", folder / "videos/first.mp4"):
        os.utime(path, (moment, moment))


def test_old_videos_go_except_those_of_champions(home, run_id, client):
    version, _ = register(home, NAME, run_id, seed=1, solved=18)
    promotion.promote(NAME, version)
    for name, place in (("good", "checkpoints/evaluation-1"), ("other", None)):
        folder = home / ".rrf/evaluations" / name
        if place:
            atomic.write_bytes(
                folder / "evaluation.json", (home / place / "evaluation.json").read_bytes()
            )
        video(folder, age_days=40)
    old, young = (write_run(home, name, run_id) for name in ("old", "young"))
    video(old, age_days=40)
    video(young, age_days=20)
    policy = RetentionCfg(video_days=30)
    found = [one for one in garbage.find(1000 * DAY_S, policy) if one.kind == "videos"]
    assert [one.name for one in found] == [".rrf/evaluations/other/videos", ".rrf/runs/old/videos"]
    assert found[0].size == len(b"frames")
    for one in found:
        one.remove()
    assert (home / ".rrf/evaluations/good/videos/first.mp4").is_file()
    assert (young / "videos/first.mp4").is_file()
    assert (old / "run.json").is_file()
    assert listed("videos", policy) == []


def test_kinds_are_kept_as_long_as_the_file_says(home, add, client):
    run, night = write_run(home, "first", new_run(client)), home / ".rrf/nightly/m/2026-01-01"
    night.mkdir(parents=True)
    moment = time.time() - 20 * DAY_S
    for path in (run / "run.json", run, night):
        os.utime(path, (moment, moment))
    assert listed("run", RetentionCfg()) == [".rrf/runs/first"]
    assert listed("run", RetentionCfg(days={"run": 21})) == []
    assert listed("night", RetentionCfg(days={"run": 21})) == [".rrf/nightly/m/2026-01-01"]


def test_the_file_of_a_workspace_is_read_and_its_mistakes_are_named(home):
    assert retention.load() == RetentionCfg()
    file = home / "configs/retention.yaml"
    atomic.write_text(file, "days: {run: 30}\nkeep_versions: 20\nvideo_days: 10\n")
    cfg = retention.load()
    assert (cfg.days_of("run"), cfg.days_of("night"), cfg.keep_versions) == (30.0, 14.0, 20)
    for text, message in {
        "days: {rum: 3}": "there is no kind 'rum'.*run",
        "days: {run: -3}": "-3 is negative",
        "keep_versions: 0": "keep_versions is 0, allowed: 1 and more",
        "video_days: -1": "video_days is -1, which is negative",
        "keep_version: 3": "keep_version",
    }.items():
        atomic.write_text(file, text)
        with pytest.raises(ValueError, match=f"retention.yaml: .*{message}"):
            retention.load()
