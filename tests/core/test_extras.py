"""What to type for a missing extra depends on how rrf was installed."""

import json
from pathlib import Path

import pytest

from rrf.extras import install_command

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
            f"uv pip install -e '{Path(__file__).parents[2]}[onnx]'",
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
    monkeypatch.chdir(Path(__file__).parents[2])
    assert install_command("onnx") == "uv pip install -e '.[onnx]'"
