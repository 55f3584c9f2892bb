"""Names of files that came with an artifact never lead out of its folder, neither by themselves nor
through a symbolic link."""

import json
from pathlib import Path

import numpy as np
import pytest

from rrf import atomic
from rrf.data.transport.download import download, read_record
from rrf.evaluation.gates.verdicts import verdict_file
from rrf.evaluation.reports.report import write_report
from rrf.evaluation.reports.videos import save_videos
from rrf.evaluation.results import EpisodeResult
from rrf.runners.checkpoints.deployable import copy_deployable, deployable_digest, kind_of
from tests.registry.conftest import make_checkpoint, make_evaluation

SECRET = "a file that is none of the artifact's business"
OUTSIDE = (
    "../secret",
    "sub/../../secret",
    "{root}/secret",
    "./a",
    "sub//b",
    "a/",
    "",
    "..",
    "a\0b",
)


@pytest.fixture
def secret(tmp_path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    return path


@pytest.fixture
def checkpoint(tmp_path, secret) -> Path:
    return make_checkpoint(tmp_path / "checkpoint")


def add_to_manifest(checkpoint: Path, name: str, digest: str) -> None:
    file = checkpoint / atomic.MANIFEST
    manifest = json.loads(file.read_text())
    manifest["files"][name] = digest
    file.write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_manifest_that_names_a_file_outside_is_refused_before_anything_is_read_or_written(
    checkpoint, tmp_path, secret, name
):
    add_to_manifest(checkpoint, name.format(root=tmp_path), atomic.sha256(secret))
    (tmp_path / "out/deep").mkdir(parents=True)
    for act in (
        atomic.check_manifest,
        kind_of,
        deployable_digest,
        lambda path: copy_deployable(path, tmp_path / "out/deep"),
    ):
        with pytest.raises(
            ValueError, match=r"manifest\.json names the file .* not the plain name"
        ):
            act(checkpoint)
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


def test_a_file_behind_a_symbolic_link_is_refused_even_if_its_digest_is_right(checkpoint, secret):
    weights = checkpoint / "model.safetensors"
    weights.rename(secret.with_name("weights"))
    weights.symlink_to(secret.with_name("weights"))
    with pytest.raises(
        ValueError, match=r"model\.safetensors is a symbolic link, which is not fol"
    ):
        atomic.check_manifest(checkpoint)


def test_a_folder_that_is_a_symbolic_link_is_refused(checkpoint, tmp_path):
    (checkpoint / "trainer_state").rename(tmp_path / "state")
    (checkpoint / "trainer_state").symlink_to(tmp_path / "state")
    with pytest.raises(ValueError, match="trainer_state is a symbolic link"):
        atomic.check_manifest(checkpoint)


@pytest.mark.parametrize("target", ["secret", "", "nowhere"])
def test_a_symbolic_link_that_no_manifest_lists_is_refused(checkpoint, tmp_path, target):
    (checkpoint / "extra").symlink_to(tmp_path / target)
    for act in (atomic.check_manifest, atomic.write_manifest):
        with pytest.raises(ValueError, match="extra is a symbolic link"):
            act(checkpoint)


def test_a_manifest_that_is_a_symbolic_link_is_refused(checkpoint, tmp_path):
    (checkpoint / atomic.MANIFEST).rename(tmp_path / "elsewhere.json")
    (checkpoint / atomic.MANIFEST).symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(ValueError, match="symbolic link"):
        atomic.read_manifest(checkpoint)


def test_a_symbolic_link_to_a_whole_checkpoint_is_fine(checkpoint, tmp_path):
    (tmp_path / "newest").symlink_to(checkpoint)
    assert deployable_digest(tmp_path / "newest") == deployable_digest(checkpoint)


@pytest.mark.parametrize("path", ["../secret", "{root}/secret", "videos/film.mp4", "videos/a.mp4"])
def test_a_report_never_shows_a_file_from_outside_its_folder(checkpoint, tmp_path, secret, path):
    folder = tmp_path / "evaluation"
    report = make_evaluation(folder, checkpoint, 18)
    (folder / "videos").mkdir()
    (folder / "videos/film.mp4").symlink_to(secret)
    (folder / "videos/a.mp4").write_bytes(b"film")
    (folder / "videos/a.jpg").symlink_to(secret)  # the picture that is shown before the film starts
    entry = {"task": "a", "index": 0, "success": True, "path": path.format(root=tmp_path)}
    report.videos = [entry]
    report.save(folder / "evaluation.json")
    with pytest.raises(ValueError, match="a video of the evaluation in"):
        write_report(folder)
    assert (folder / "report.html").read_text() == "<html></html>"  # as it was


def test_a_task_or_gate_cannot_name_a_file_outside_the_evaluation(tmp_path):
    episode = EpisodeResult("../../../x", 1, 0, True, 1, 1.0)
    frames = [np.zeros((2, 16, 16, 3), np.uint8)]
    with pytest.raises(ValueError, match="is not the plain name of a file inside"):
        save_videos(tmp_path / "a/b", [episode], frames, 5)
    with pytest.raises(ValueError, match="is not the plain name of a file inside"):
        verdict_file(tmp_path, "/../../x")
    assert list(tmp_path.iterdir()) == []


def test_a_record_of_a_download_cannot_name_a_file_outside_the_copy(tmp_path, secret):
    facts = {"size": secret.stat().st_size, "version": "1"}
    record = {"source": "s3://bucket/x", "revision": None, "files": {"../secret": facts}}
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/download.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"download\.json is damaged .*leads out of the copy"):
        read_record(tmp_path / "copy")


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_remote_cannot_name_a_file_outside_the_copy(tmp_path, name):
    class Remote:
        url = "s3://bucket/x"
        revision: str | None = None

        def files(self):
            from rrf.data.transport.download import RemoteFile

            return [RemoteFile(name.format(root=tmp_path), 1, "1")]

        def fetch(self, file, path, on_bytes):
            path.write_bytes(b"x")

    with pytest.raises(ValueError, match="leads out of the copy"):
        download(Remote(), tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []
