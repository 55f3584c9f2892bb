"""Published models are fetched, checked and found again; the hub is a server on this machine."""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rrf.cli import app
from rrf.data.transport import download as download_module
from rrf.data.transport import hub as hub_module
from rrf.data.transport.download import is_pickle
from rrf.networks.vlm import setup as published
from rrf.networks.vlm.catalogue import CATALOGUE, folder_of, located, record_of
from rrf.networks.vlm.weights import weight_files
from rrf.workspace import HOME_VARIABLE
from tests.data.hub_server import hub  # noqa: F401

NAME = "qwen2-vl-2b"
REPO = CATALOGUE[NAME].repository
FILES = {
    "README.md": b"# the card\n",
    "config.json": b"{}",
    "model.safetensors": hashlib.shake_128(b"w").digest(9000),
    "original/consolidated.pth": b"a pickle",
    "pytorch_model.bin": b"another",
    "tokenizer.json": b'{"a": 1}',
    "training_args.pt.json": b"{}",
}
FETCHED = {"README.md", "config.json", "model.safetensors", "tokenizer.json"}


@pytest.fixture
def models(hub, tmp_path, monkeypatch):  # noqa: F811
    """A hub with one model, and an empty workspace."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    address = hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address)
    hub.large.add("model.safetensors")
    hub.commit = hub.add(REPO, "main", FILES)
    return hub


def files_here():
    return {p.relative_to(folder_of(NAME)).as_posix() for p in folder_of(NAME).rglob("*.*")}


def test_a_model_is_fetched_without_pickles_and_its_commit_is_pinned(models):
    told = []
    record = published.setup(NAME, say=told.append)
    assert files_here() == FETCHED | {"source.json", "download.json"}
    assert record == json.loads((folder_of(NAME) / "source.json").read_text())
    assert (record["repository"], record["commit"]) == (REPO, models.commit)
    assert record["files"] == {name: hashlib.sha256(FILES[name]).hexdigest() for name in FETCHED}
    assert "0.00 GB" in told[0]
    assert "GB free" in told[0]
    newer = models.add(REPO, "main", FILES | {"config.json": b'{"new": 1}'})
    models.status = 500  # the second setup asks nobody
    assert published.setup(NAME) == record
    models.status = None
    assert published.setup(NAME, "main")["commit"] == newer
    assert (folder_of(NAME) / "config.json").read_bytes() == b'{"new": 1}'
    assert published.setup(NAME)["commit"] == newer


def test_names_lead_to_what_was_set_up_and_errors_to_the_command(models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"not here yet; fetch it: rrf models setup {NAME}$"):
        weight_files(NAME)
    with pytest.raises(ValueError, match=r"did you mean 'qwen2-vl-2b'\? nor a directory"):
        located("qwen2vl-2b")
    published.setup(NAME)
    assert weight_files(NAME) == [tmp_path / ".rrf/pretrained" / NAME / "model.safetensors"]
    assert located("some/where").as_posix() == "some/where"


def test_an_interrupted_download_goes_on_where_it_stopped(models, monkeypatch):
    monkeypatch.setattr(hub_module, "_BLOCK_BYTES", 1000)
    # one at a time: a file beside it that fails first would end this one earlier
    monkeypatch.setattr(download_module, "_NUM_THREADS", 1)
    models.cuts["model.safetensors"] = 5000
    with pytest.raises(OSError, match="run the same command again to continue"):
        published.setup(NAME)
    assert not folder_of(NAME).exists()
    models.start()
    models.contents.clear()
    published.setup(NAME)
    asked = dict(models.contents)["model.safetensors"]
    assert 4000 <= int(asked.removeprefix("bytes=").split("-")[0]) <= 5000
    assert record_of(NAME) is not None


def test_a_disk_that_is_too_small_is_told_before_anything_is_fetched(models, monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=8000))
    with pytest.raises(OSError, match=r"no space left to download 90\d\d bytes: 8000") as caught:
        published.setup(NAME)
    assert caught.value.errno == errno.ENOSPC
    assert not [name for name, _ in models.contents]
    assert not folder_of(NAME).exists()


@pytest.mark.parametrize("places", ["gated", "gated_contents"])
def test_a_gated_model_says_how_to_get_access(models, places, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    getattr(models, places).add(REPO)
    with pytest.raises(ValueError, match=r"is gated: accept its terms .* hf auth login") as caught:
        published.setup(NAME)
    assert "hf_secret" not in str(caught.value)
    assert "hf_secret" not in " ".join(
        published.described("paligemma-3b", CATALOGUE["paligemma-3b"])
    )


def test_a_file_that_was_changed_afterwards_is_noticed(models):
    published.setup(NAME)
    (folder_of(NAME) / "config.json").write_text("{ }")
    with pytest.raises(ValueError, match=r"config\.json differs from source\.json; remove"):
        published.setup(NAME)
    (folder_of(NAME) / "source.json").write_text("{")
    with pytest.raises(ValueError, match=r"source\.json is damaged"):
        located(NAME)


def test_a_directory_that_is_here_already_is_taken_over(models, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    index = {"weight_map": {"a": "model.safetensors", "b": "second.safetensors"}}
    for name in FETCHED:
        (folder / name).write_bytes(FILES[name])
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"incomplete, it lacks second\.safetensors"):
        published.adopt(NAME, folder)
    (folder / "model.safetensors.index.json").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    record = published.adopt(NAME, folder)
    assert record["commit"] is None
    assert files_here() == FETCHED | {"source.json"}
    path = folder_of(NAME) / "model.safetensors"
    assert path.samefile(folder / "model.safetensors")  # no second copy on the disk
    assert published.setup(NAME) == record


def test_parts_that_are_pickles_come_only_by_hand(models, tmp_path):
    with pytest.raises(ValueError, match=r"as pickles only.*hf download moojink.*--from DIR"):
        published.setup("openvla-oft")
    for name in ("model.safetensors", "action_head--9_checkpoint.pt", "other.pt"):
        (tmp_path / "oft").mkdir(exist_ok=True)
        (tmp_path / "oft" / name).write_bytes(b"x")
    assert set(published.adopt("openvla-oft", tmp_path / "oft")["files"]) == {
        "model.safetensors", "action_head--9_checkpoint.pt",
    }  # fmt: skip


def test_the_command_shows_the_table_and_tells_licence_and_use(models):
    shown = CliRunner().invoke(app, ["models", "setup"])
    assert shown.exit_code == 0
    assert all(name in shown.output for name in CATALOGUE)
    done = CliRunner().invoke(app, ["models", "setup", NAME], catch_exceptions=False)
    assert "licence of the code: Apache-2.0; of the weights: Apache-2.0" in done.output
    assert f"4 files, checked; commit {models.commit}" in done.output
    assert "use: rrf train qwen2vl-2b-pretrain" in done.output


def test_the_endpoint_of_the_environment_is_asked(models, tmp_path):
    own = {"HF_ENDPOINT": models.endpoint, HOME_VARIABLE: str(tmp_path), "HF_HUB_OFFLINE": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "rrf", "models", "setup", NAME],
        env=os.environ | own, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"4 files, checked; commit {models.commit}" in done.stdout


def test_every_entry_is_complete():
    for name, entry in CATALOGUE.items():
        assert entry.tokenizer is None or entry.tokenizer in CATALOGUE
        assert entry.repository.count("/") == 1
        assert 1 < entry.gigabytes < 40, name
        assert all(is_pickle(kind) for kind in entry.pickles)
