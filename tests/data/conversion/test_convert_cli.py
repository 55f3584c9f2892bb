"""`rrf data convert`: what its flags change, and what a mistake ends in."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rrf.data.conversion.dataset_cfg import MergeCfg, MergePartCfg, SourceCfg
from rrf.data.dataset import layout
from rrf.workspace import HOME_VARIABLE
from tests.data.conftest import make_cfg, run, write_raw
from tests.data.conversion.test_lerobot_writer import content

ROOT = Path(__file__).parents[3]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A repository with the datasets toy and other, and the merged dataset both."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    folder = tmp_path / "configs/datasets"
    folder.mkdir(parents=True)
    for name in ("toy", "other"):
        cfg = make_cfg(name=name, source=SourceCfg(path=f"datasets/raw/{name}"))
        (folder / f"{name}.yaml").write_text(cfg.to_yaml())
        write_raw(tmp_path / f"datasets/raw/{name}", {f"{name} task": [8, 6]})
    parts = [MergePartCfg(dataset="toy", weight=2.0), MergePartCfg(dataset="other")]
    both = MergeCfg(name="both", merge=parts, licence="MIT", provenance="toy and other")
    (folder / "both.yaml").write_text(both.to_yaml())
    return tmp_path


def test_flags_change_rate_size_and_storage(home):
    code, output, _ = run(
        "convert", "toy", "--fps", 5, "--image-size", "4x8", "--storage", "video", "--workers", 1
    )
    assert code == 0
    assert "warning: one of 2 frames is kept: 10 to 5 frames/s (in 2 episodes" in output
    assert "7 frames in" in output
    info = layout.read_info(home / "datasets/converted/toy")
    assert (info["fps"], info["total_frames"]) == (5, 7)
    assert info["features"]["observation.images.front"]["shape"] == [4, 8, 3]
    assert info["features"]["observation.images.front"]["dtype"] == "video"


def test_a_size_that_is_none_is_refused(home):
    _, _, error = run("convert", "toy", "--image-size", "big")
    assert str(error) == "--image-size is 'big', but must be like 224 or 240x320"


def test_a_merged_dataset_is_made_of_published_ones(home):
    for name in ("toy", "other"):
        assert run("convert", name, "--workers", 1, "--out", home / f"datasets/{name}")[0] == 0
    code, output, _ = run("convert", "both")
    assert code == 0
    assert "28 frames in" in output
    info = layout.read_info(home / "datasets/converted/both")
    assert info["weights"] == {"toy": 2.0, "other": 1.0}
    _, _, error = run("convert", "both", "--fps", 5)
    assert "both is merged from other datasets; use these options to" in str(error)
    assert str(error).endswith("convert its parts instead: fps")


def test_the_command_converts_in_processes_and_ends_a_mistake_in_one_line(home):
    def rrf(*words):
        command = [sys.executable, "-m", "rrf.cli", "data", "convert", *words]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )

    write_raw(home / "datasets/raw/toy", {"second task": [5]})
    assert rrf("toy", "--workers", "2").returncode == 0
    assert run("convert", "toy", "--workers", 1, "--out", home / "one")[0] == 0
    assert content(home / "datasets/converted/toy") == content(home / "one")
    path = home / "configs/datasets/toy.yaml"
    data = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(data | {"cameras": {"front": "obs/frnt_image"}}))
    found = rrf("toy")
    assert found.returncode == 2
    assert found.stderr.strip().splitlines()[-1].startswith("error: toy: cameras.front: the rec")
    assert "Traceback" not in found.stderr
