"""What to type for a missing extra depends on how rrf was installed."""

import importlib.metadata
import json
from pathlib import Path

import pytest

from rrf.extras import install_command, lock

WHEEL = "file:///tmp/rrf-0.1.0-py3-none-any.whl"
GIT = {"url": "https://host/team/rrf", "vcs_info": {"vcs": "git", "commit_id": "4f2a"}}


@pytest.mark.parametrize(
    ("direct_url", "command"),
    [
        (None, "pip install 'rrf[onnx]'"),
        ({"url": WHEEL, "archive_info": {}}, f"pip install 'rrf[onnx] @ {WHEEL}'"),
        ({"url": "file:///src", "dir_info": {}}, "pip install 'rrf[onnx] @ file:///src'"),
        (GIT, "pip install 'rrf[onnx] @ git+https://host/team/rrf@4f2a'"),
        (
            {"url": "file:///src", "dir_info": {"editable": True}},
            f"uv pip install -e '{Path(__file__).parents[1]}[onnx]'",
        ),
    ],
    ids=["index", "wheel", "folder", "git", "checkout"],
)
def test_the_command_names_where_rrf_came_from(tmp_path, monkeypatch, direct_url, command):
    about = tmp_path / "rrf-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.4\nName: rrf\nVersion: 0.1.0\n")
    if direct_url:
        (about / "direct_url.json").write_text(json.dumps(direct_url))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert install_command("onnx") == command
    assert install_command() == command.replace("[onnx]", "")


def test_in_the_checkout_itself_the_command_is_short(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[1])
    assert install_command("onnx") == "uv pip install -e '.[onnx]'"


def test_what_setuptools_leaves_in_a_checkout_is_the_checkout(tmp_path, monkeypatch):
    """Its egg-info is found first there, and says nothing about where rrf came from."""
    (tmp_path / "rrf.egg-info").mkdir()
    (tmp_path / "rrf.egg-info/PKG-INFO").write_text("Name: rrf\nVersion: 0.1.0\n")
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert install_command("onnx").startswith("uv pip install -e '")
    assert f"-e {tmp_path}\n" in lock()


def test_a_lock_pins_what_is_installed_and_says_where_the_rest_came_from(tmp_path, monkeypatch):
    about = tmp_path / "rrf-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.4\nName: rrf\nVersion: 0.1.0\n")
    (about / "direct_url.json").write_text(json.dumps({"url": WHEEL, "archive_info": {}}))
    monkeypatch.syspath_prepend(tmp_path)
    lines = lock().splitlines()
    assert f"rrf @ {WHEEL}" in lines
    assert f"numpy=={importlib.metadata.version('numpy')}" in lines
    assert len([line for line in lines if line.partition(" ")[0] == "rrf"]) == 1
