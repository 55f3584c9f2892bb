"""`rrf import-config`: a file, or what became of each key."""

import yaml
from typer.testing import CliRunner

from rrf.cli import app
from rrf.presets import resolve
from tests.presets.rlinf.test_training_file import GRPO


def test_a_config_becomes_a_training_file_and_the_rest_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.yaml").write_text(yaml.safe_dump(GRPO))
    call = ["import-config", "theirs.yaml", "max_rounds=5", "--out", "trainings/ours.yaml"]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0, result.output
    assert "training file trainings/ours.yaml: rrf train trainings/ours.yaml" in result.stdout
    assert "without counterpart: rollout.enable_offload=True: ray.offload is" in result.stderr
    assert "keys have a counterpart" in result.stderr
    assert "rrf models import /models/oft --out CHECKPOINT" in result.stderr
    cfg = resolve("trainings/ours.yaml")
    assert (cfg.max_rounds, cfg.experiment_name) == (5, "mine")


def test_without_out_it_is_printed_and_with_keys_every_key_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.yaml").write_text(yaml.safe_dump(GRPO))
    printed = CliRunner().invoke(app, ["import-config", "theirs.yaml"]).stdout
    (tmp_path / "ours.yaml").write_text(printed)
    assert resolve("ours.yaml").num_groups == 128
    lines = CliRunner().invoke(app, ["import-config", "theirs.yaml", "--keys"]).stdout.splitlines()
    assert "-> algorithm.clip_ratio_high=0.28  algorithm.clip_high: 0.28" in lines
    assert [line for line in lines if line.startswith(" = algorithm.kl_beta=0.1  nothing in")]
    assert [line for line in lines if line.startswith(" ! rollout.enable_offload=True  ")]
