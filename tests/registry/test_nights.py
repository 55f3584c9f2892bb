"""Nights of a champion on a real store: series, alarms, acknowledgements, and other workspaces."""

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.testing

from rrf.cli.nightly import app
from rrf.evaluation.nightly.matrix import SpeedCfg
from rrf.evaluation.nightly.series import ALL
from rrf.mlflow_store import store
from rrf.registry import night_changes, night_record, nights, promotion, speeds, versions
from tests.registry.conftest import copy_of, make_evaluation, new_run, register
from tests.registry.test_two_machines import ROOT, shared_store  # noqa: F401 (a fixture)

NAME = "m"


@pytest.fixture(scope="module")
def promoted(tmp_path_factory, empty_store) -> Path:
    """A repository with a model whose champion solved 18 of 20 episodes when it was promoted."""
    with pytest.MonkeyPatch.context() as patch:
        root = copy_of(empty_store.parents[1], tmp_path_factory.mktemp("one"), patch)
        version, _ = register(root, NAME, new_run(store.connect()), 1, solved=18)
        promotion.promote(NAME, version)
    return root


@pytest.fixture
def champion(home, promoted, monkeypatch) -> str:
    """Its version; to be asked for before the client of the store that is copied."""
    copy_of(promoted, home, monkeypatch)
    return "1"


def spend(home: Path, number: int, solved: int, seed: int = 1, **changes) -> str:
    """A night in which the first `solved` of 20 episodes succeeded; returns its MLflow run."""
    folder = home / f"nights/{number}"
    report = make_evaluation(folder, home / f"checkpoints/{seed}", solved)
    for key, value in changes.items():
        setattr(report, key, value)
    report.save(folder / "evaluation.json")
    version = versions.champion(NAME)
    assert version is not None
    time = f"2026-11-{number:02d}T020000Z"
    return night_record.record(NAME, version.version, folder, time, f"flow run {number}")


def only() -> nights.Series:
    [series] = nights.series_of(NAME)
    return series


def rrf(*words) -> tuple[str, BaseException | None]:
    """Output and exception of `rrf nightly WORDS`."""
    result = typer.testing.CliRunner().invoke(app, [str(word) for word in words])
    return result.output, result.exception


def test_nights_are_compared_with_the_promotion_and_an_alarm_stays_until_it_is_acknowledged(
    home, champion
):
    assert "no nights yet" in rrf("status", NAME)[0]
    first = spend(home, 1, solved=18)
    assert spend(home, 1, solved=18) == first  # a retried flow run
    spend(home, 2, solved=17)
    assert not only().is_red
    assert "green" in rrf("status")[0]
    assert "nothing to acknowledge" in str(rrf("ack", NAME, "--reason", "x")[1])
    # 9 lost, none won: p = 1/512, and the second night that differs is tested at 0.02 / 6.
    spend(home, 3, solved=9)
    spend(home, 4, solved=18)
    alarms = only().alarms
    assert alarms == [
        "all tasks: 9 episodes lost and 0 won since the reference (p 0.002, an alarm up to "
        "0.0033), night of 2026-11-03T020000Z"
    ]
    shown = rrf("status", NAME)[0]
    assert alarms[0] in shown
    assert "rrf nightly ack m --reason" in shown
    assert "needs a reason" in str(rrf("ack", NAME, "--reason", " ")[1])
    assert "give a shorter reason" in str(rrf("ack", NAME, "--reason", "x" * 5000)[1])
    assert "acknowledged m version 1 under p: camera" in rrf("ack", NAME, "--reason", "camera")[0]
    assert not only().is_red
    assert "camera" in rrf("status", NAME)[0]
    spend(home, 5, solved=8)
    assert only().is_red
    words = ("ack", NAME, "--reason", "a new simulator", "--as-reference")
    assert "the reference from now on" in rrf(*words)[0]
    spend(home, 6, solved=8)
    series = only()
    assert not series.is_red
    assert series.reference.what == "the night of 2026-11-05T020000Z"
    assert series.levels[ALL].successes == 8
    assert len(series.points) == 6


def test_what_differs_is_kept_with_the_night_and_named(home, champion):
    spend(home, 1, solved=18)
    spend(home, 2, solved=17, source_digest="d" * 64)
    spend(home, 3, solved=17, source_digest="d" * 64)
    told = [point.night.differences for point in only().points]
    assert told[0] == (
        "all 20 episodes run exactly as in the evaluation at promotion; nothing that is recorded "
        "has changed",
    )
    assert "1 of 20 episodes end otherwise than in the evaluation at promotion" in told[1][0]
    assert "than in the night of 2026-11-01T020000Z; changed since then: code" in told[1][1]
    assert "run exactly as in the night of 2026-11-02T020000Z" in told[2][1]


def commit(home: Path, subject: str) -> str:
    me = ("-c", "user.name=me", "-c", "user.email=me@here")
    (home / ".git/info").mkdir(exist_ok=True)
    (home / ".git/info/exclude").write_text("nights/\n")
    done = None
    for words in ((*me, "commit", "-q", "--allow-empty", "-m", subject), ("rev-parse", "HEAD")):
        done = subprocess.run(["git", *words], cwd=home, check=True, capture_output=True, text=True)
    assert done is not None
    return done.stdout.strip()


def test_a_change_is_dated_and_names_commits_and_data(home, champion):
    lock, old = home / "dvc.lock", "0123456789ab"
    assert old in lock.read_text()
    first = commit(home, "one")
    spend(home, 1, solved=18)
    with pytest.raises(ValueError, match=r"no success of 'm' fell .*--good COMMIT --bad COMMIT"):
        night_changes.turn(NAME, None)
    second = commit(home, "two")
    lock.write_text(lock.read_text().replace(old, "f" * 12))
    spend(home, 2, solved=4)
    spend(home, 3, solved=4)
    [line] = night_changes.told(only())
    assert line == (
        "success fell between the nights of 2026-11-01T020000Z and 2026-11-02T020000Z: 14 episodes "
        f"lost and 0 won (p 0.00012); commits {first[:12]}..{second[:12]} and changes that were "
        f"not committed; data: demo {old} → {'f' * 12}"
    )
    assert line in rrf("status", NAME)[0]
    assert html.escape(line) in night_record.page_of(only())
    before, after = night_changes.turn(NAME, None)
    assert (before.commit, before.is_dirty) == (first, False)
    assert (after.commit, after.is_dirty) == (second, True)
    assert night_changes.protocol_of(NAME, "p") == night_changes.protocol_of(NAME, None)
    with pytest.raises(ValueError, match=r"'q' is no file and no protocol .*there are: p"):
        night_changes.turn(NAME, "q")


def test_one_page_has_all_nights_and_says_when_a_training_became_slower(home, champion, tmp_path):
    spend(home, 1, solved=18)
    spend(home, 2, solved=4)
    (home / "configs").mkdir(exist_ok=True)
    slow = SpeedCfg(preset="p", overrides={"seed": 1}, least=0.9)
    text = "speeds: [{preset: p, overrides: {seed: 1}, least: 0.9%s}]"
    (home / "configs/nightly.yaml").write_text(text % "")
    commits = []
    for day, speed in enumerate((1000, 980, 850, 840, 990), start=1):
        commits.append(commit(home, f"day {day}")[:12])
        speeds.record(slow, speed, f"2026-11-0{day}T020000Z")
    fell = (
        f"{slow.key} fell to 0.85 of its first speed between the nights of 2026-11-02T020000Z and "
        f"2026-11-03T020000Z; commits {commits[1]}..{commits[2]}"
    )
    nightly = {"time": [one.night.time for one in speeds.compared(speeds.history()) if one.is_low]}
    assert nightly == {"time": ["2026-11-03T020000Z", "2026-11-04T020000Z"]}
    assert fell in rrf("speeds")[0]
    rrf("status", "--pages", str(tmp_path))
    page = (tmp_path / "index.html").read_text()
    (trend,) = (path.name for path in tmp_path.glob(f"{NAME}-*.html"))
    assert f'<a href="{trend}">{NAME} version 1 under p</a>' in page
    assert re.findall(r'<td class="(pass|fail)" title=".*?">(\d+)</td>', page) == [
        ("pass", "90"), ("fail", "20"),
        ("pass", "100"), ("pass", "98"), ("fail", "85"), ("fail", "84"), ("pass", "99"),
    ]  # fmt: skip
    assert fell in html.unescape(page)
    assert "success fell between the nights" in page
    (home / "configs/nightly.yaml").write_text(text % ", since: 2026-11-03")
    assert not any(one.is_low for one in speeds.compared(speeds.history()))


def test_what_is_no_commit_is_not_bisected(home, champion):
    commit(home, "one")
    spend(home, 1, solved=18)
    (home / "requirements.lock").write_text("numpy==2\n")
    spend(home, 2, solved=4)
    with pytest.raises(ValueError, match=r"both nights .*were not committed: what changed is no"):
        night_changes.turn(NAME, None)


def test_another_champion_begins_another_series_and_a_rollback_does_too(
    home, champion, client, run_id
):
    spend(home, 1, solved=3)
    assert only().is_red
    version, _ = register(home, NAME, run_id, 2, solved=19)
    promotion.promote(NAME, version)
    assert nights.series_of(NAME) == []
    spend(home, 2, solved=19, seed=2)
    assert [(point.night.time[:10], point.is_red) for point in only().points] == [
        ("2026-11-02", False)
    ]
    promotion.rollback(NAME, "it shakes")
    assert nights.series_of(NAME) == []
    with pytest.raises(ValueError, match="'m' version 3 never was champion"):
        nights.reign(NAME, "3")


def test_a_champion_without_an_evaluation_of_this_protocol_is_compared_with_its_first_night(
    home, champion
):
    from tests.registry.conftest import PROTOCOL

    other = PROTOCOL.replace(seed=2)
    changes = {"protocol": other.to_dict(), "protocol_hash": other.hash}
    run = spend(home, 1, solved=10, **changes)
    spend(home, 2, solved=10, **changes)
    series = only()
    assert series.reference == nights.Reference("the first night", run, series.reference.digest)
    assert series.levels[ALL].successes == 10
    assert series.points[0].night.differences == ()


def test_a_night_that_was_not_written_to_its_end_does_not_count(
    home, champion, client, monkeypatch
):
    spend(home, 1, solved=18)
    monkeypatch.setattr(night_record, "_counted", lambda *reports: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        spend(home, 2, solved=3)
    assert len(only().points) == 1
    runs = client.search_runs([store.experiment_id(client, "nightly-m")])
    assert sorted(run.info.status for run in runs) == ["FAILED", "FINISHED"]


def test_the_page_is_stored_with_the_night_and_another_workspace_reads_the_same(
    home, champion, client, monkeypatch, tmp_path
):
    run = spend(home, 1, solved=9)
    series = nights.series_with(NAME, run)
    page = home / night_record.PAGE
    page.write_text(night_record.page_of(series))
    night_record.attach(series, run, page)
    assert night_record.PAGE in [file.path for file in client.list_artifacts(run)]
    found = client.get_run(run).data
    assert found.tags["nightly.state"] == "red"
    assert found.metrics["cusum/all tasks"] > 0
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/.rrf/mlflow.db")
    other = tmp_path / "other"
    (other / ".rrf").mkdir(parents=True)
    monkeypatch.setenv("RRF_HOME", str(other))
    assert only() == series
    assert "it links 1 trend pages" in rrf("status", NAME, "--pages", other)[0]
    assert (other / "m-1-p.html").read_text() == page.read_text()


@pytest.mark.slow
def test_of_two_machines_that_write_nights_at_once_nothing_is_lost(home, shared_store, monkeypatch):  # noqa: F811
    client = store.connect()
    version, _ = register(home, NAME, new_run(client), 1, solved=18)
    promotion.promote(NAME, version)
    make_evaluation(home / "night", home / "checkpoints/1", 9)
    code = (
        "import sys; from rrf.registry import night_record, nights\n"
        "for n in range(4):\n"
        "    who = sys.argv[2]\n"
        "    night_record.record('m', '1', sys.argv[1], f'2026-11-{n + 1:02d}', f'{who} {n}')\n"
        "nights.acknowledge('m', who)\n"
    )
    machines = []
    for who in ("ann", "bob"):
        (home / who / ".rrf").mkdir(parents=True)
        env = os.environ | {"RRF_HOME": str(home / who), "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-c", code, str(home / "night"), who]
        machines.append(subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True))
    for machine in machines:
        _, errors = machine.communicate(timeout=600)
        assert machine.returncode == 0 or "nothing to acknowledge" in errors, errors[-2000:]
    runs = nights.runs_of(client, NAME, nights.reign(NAME, "1"))
    keys = sorted(run.data.tags["nightly.key"] for run in runs)
    assert keys == sorted(f"{who} {n}" for who in ("ann", "bob") for n in range(4))
    acks = [json.loads(v) for run in runs for k, v in run.data.tags.items() if "ack." in k]
    assert {one["reason"] for one in acks} <= {"ann", "bob"}
    assert acks
