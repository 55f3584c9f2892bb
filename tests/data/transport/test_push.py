"""Published datasets to the Hugging Face hub, here a server on this machine that speaks its
language: what arrives is what was sent.
"""

import json

import pytest

from rrf import atomic
from rrf.data.dataset import layout
from rrf.data.dataset.stats import norm_stats
from rrf.data.files import content_digest
from rrf.data.transport.download import download
from rrf.data.transport.hub import HubDataset
from rrf.data.transport.push import push
from rrf.data.validation.summary import DatasetPlace
from tests.data.conversion.test_lerobot_writer import content
from tests.data.conversion.test_merge import write
from tests.data.hub_uploads import upload_hub  # noqa: F401

REPO = "lab/pick"


@pytest.fixture
def place(tmp_path):
    """A published dataset of two episodes, as `publish` leaves it."""
    return publish(tmp_path, [0, 1])


def publish(folder, numbers, passed=True):
    root, reports = folder / "pick", folder / "reports"
    write(root, numbers)
    report = {
        "name": "pick", "digest": content_digest(root), "passed": passed, "checks": [],
        "counts": {"pass": 3, "warn": 0, "fail": 0, "crashed": 0}, "facts": {},
    }  # fmt: skip
    atomic.write_json(root / "norm_stats.json", norm_stats(root))
    (root / "README.md").write_text("# the card of datasets/pick\n")
    atomic.write_json(reports / "validation.json", report)
    (reports / "validation.html").write_text("<html>all good</html>")
    return DatasetPlace("pick", root, reports)


def held(hub, revision="main"):
    return hub.commits[hub.revisions[REPO][revision]]


def test_everything_arrives_in_one_commit_with_card_report_and_tag(upload_hub, place, tmp_path):  # noqa: F811
    done = push(place, REPO)
    assert done.page == f"{upload_hub.endpoint}/datasets/lab/pick"
    assert upload_hub.revisions[REPO]["main"] == upload_hub.revisions[REPO]["v3.0"] == done.revision
    assert upload_hub.is_private == {REPO: True}
    assert len(upload_hub.messages) == 1
    there, here = held(upload_hub), content(place.root)
    added = {"validation.html", ".gitattributes"}
    assert set(there) == set(here) | added
    assert {name: there[name] for name in here if name != "README.md"} == {
        name: text for name, text in here.items() if name != "README.md"
    }
    card = there["README.md"].decode()
    assert "license: mit" in card
    assert "[validation.html](validation.html)" in card
    assert 'LeRobotDataset("lab/pick")' in card
    copy = download(HubDataset(REPO, "v3.0", upload_hub.endpoint), tmp_path / "copy")
    assert layout.read_info(copy.out)["total_episodes"] == 2
    assert not (tmp_path / "pick/validation.html").exists()


def test_a_new_version_replaces_the_old_and_sends_only_what_changed(
    upload_hub,  # noqa: F811
    place,
    tmp_path,
):
    first = push(place, REPO, is_public=True)
    upload_hub.sent.clear()
    again = push(place, REPO)
    assert upload_hub.sent == []
    assert upload_hub.is_private == {REPO: False}
    held(upload_hub)["data/chunk-000/file-007.parquet"] = b"of an older version"
    newer = push(publish(tmp_path, [0, 1, 2]), REPO, message="three")
    assert newer.revision not in (first.revision, again.revision)
    assert "data/chunk-000/file-007.parquet" not in held(upload_hub)
    assert json.loads(held(upload_hub, "v3.0")["meta/info.json"])["total_episodes"] == 3
    assert json.loads(held(upload_hub, first.revision)["meta/info.json"])["total_episodes"] == 2
    assert upload_hub.messages[-1] == "three"


def test_what_arrives_otherwise_is_noticed_and_gets_no_tag(upload_hub, place):  # noqa: F811
    upload_hub.spoiled.add("meta/stats.json")
    with pytest.raises(
        ConnectionError, match=r"meta/stats.json is not what was sent; run the same"
    ):
        push(place, REPO)
    assert "v3.0" not in upload_hub.revisions[REPO]


def test_only_what_passed_validation_as_it_is_now_is_pushed(upload_hub, place, tmp_path):  # noqa: F811
    (place.root / "meta/tasks.parquet").write_bytes(b"changed since")
    with pytest.raises(ValueError, match="publish it by its name: rrf data stats NAME"):
        push(place, REPO)
    with pytest.raises(ValueError, match="not a published dataset that passed"):
        push(publish(tmp_path, [0], passed=False), REPO)
    assert upload_hub.revisions == {}


def test_without_the_right_to_write_the_error_says_what_to_type(upload_hub, place, monkeypatch):  # noqa: F811
    upload_hub.foreign.add("lab")
    with pytest.raises(
        ValueError, match=r"may not be written by you; type `hf auth login` .*to lab"
    ):
        push(place, REPO)
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(ValueError, match="may not be written by you"):
        push(place, REPO)
    upload_hub.stop()
    with pytest.raises(ConnectionError, match="cannot be reached"):
        push(place, REPO)
