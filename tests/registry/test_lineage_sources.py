"""Lineage from DVC's files, git and the validation report; what is missing is named."""

import importlib.metadata
import shutil
import subprocess
import sys

import pytest
import yaml

from rrf.code_digest import source_digest
from rrf.lineage import DatasetLineage, Lineage
from rrf.registry.lineage_sources import collect_lineage, environment_lineage
from tests.registry.conftest import add_dataset, write_json


def test_lineage_of_a_complete_repository(home):
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=home, capture_output=True, text=True
    ).stdout
    lineage = collect_lineage("demo")
    assert len(source_digest()) == 64
    assert lineage == Lineage(
        datasets=(
            DatasetLineage(
                "demo",
                md5="0123456789abcdef0123456789abcdef.dir",
                raw_md5="fedcba9876543210fedcba9876543210.dir",
                validation="passed",
                validation_digest="748eda8085f7e3c82149775d9542083427f0f8a955173c4a0ed18c85c69c5c09",
                num_episodes=7,
                num_frames=91,
                card="datasets/demo/README.md",
            ),
        ),
        git_revision=head.strip(),
        git_dirty=False,
        # sha256sum of "numpy==1\n" and, above, of {"passed": true}
        lock_hash="b8a122d596af27fd3b6e2386e5c39db9e980b18a74e1e70faf4a8e1eb5817674",
        source_digest=source_digest(),
    )


def test_uncommitted_changes_and_a_failed_validation_show(home):
    (home / "new.py").write_text("x = 1\n")
    write_json(home / "datasets/reports/demo/validation.json", {"passed": False})
    lineage = collect_lineage("demo")
    assert (lineage.git_dirty, lineage.datasets[0].validation) == (True, "failed")


def test_everything_missing_is_named_with_the_command_that_makes_it(
    home, tmp_path_factory, monkeypatch
):
    bare = tmp_path_factory.mktemp("bare")
    monkeypatch.setenv("RRF_HOME", str(bare))
    lineage = collect_lineage("demo")
    names = [problem.split(":")[0] for problem in lineage.missing]
    assert names == [
        "dataset_md5",
        "raw_md5",
        "validation",
        "num_episodes, num_frames",
        "card",
        "git_revision",
        "lock_hash",
    ]
    assert "run `dvc repro`" in lineage.missing[0]
    assert lineage.datasets == (DatasetLineage("demo"),)
    assert (lineage.git_revision, lineage.git_dirty) == (None, None)


def test_a_source_is_known_by_what_its_pipeline_read(home):
    raw = "../lab/recordings"
    (home / "configs/datasets").mkdir(parents=True)
    config = home / "configs/datasets/other.yaml"
    config.write_text(f"source: {{path: {raw}}}\n")
    (home / "infra/lab").mkdir(parents=True)
    (home / "infra/lab/dvc.lock").write_text(
        "stages:\n"
        f"  convert@other: {{deps: [{{path: {raw}, md5: 12.dir}}]}}\n"
        "  publish@other: {outs: [{path: datasets/other, md5: 34.dir}]}\n"
    )
    lineage = collect_lineage("other")
    assert (lineage.datasets[0].raw_md5, lineage.datasets[0].md5) == ("12.dir", "34.dir")
    (home / "infra/lab/dvc.lock").write_text(  # of a DVC project of its own
        "stages:\n"
        f"  convert@other: {{deps: [{{path: ../../{raw}, md5: 56.dir}}]}}\n"
        "  publish@other: {outs: [{path: ../../datasets/other, md5: 78.dir}]}\n"
    )
    lineage = collect_lineage("other")
    assert (lineage.datasets[0].raw_md5, lineage.datasets[0].md5) == ("56.dir", "78.dir")
    config.write_text("source: {path: hf://lab/other}\n")
    assert not any("raw_md5" in problem for problem in collect_lineage("other").missing)
    config.write_text("source: {path: s3://lab/other}\n")
    missing = collect_lineage("other").missing
    assert any("raw_md5" in problem and "s3://lab/other" in problem for problem in missing)


def test_an_edited_dataset_is_known_by_what_was_edited(home):
    (home / "configs/datasets").mkdir(parents=True)
    (home / "configs/datasets/demo.yaml").write_text("edit_of: origin\n")
    lock = home / "dvc.lock"
    entry = "  convert@origin: {outs: [{path: datasets/converted/origin, md5: 12.dir}]}\n"
    lock.write_text(lock.read_text().rstrip("\n") + "\n" + entry)
    assert collect_lineage("demo").datasets[0].raw_md5 == "12.dir"


def test_a_dataset_that_was_changed_behind_dvcs_back_has_no_md5(home):
    info = home / "datasets/demo/meta/info.json"
    # README.md "# demo\n", 7 bytes, and meta/info.json
    out = {
        "path": "datasets/demo",
        "md5": "12.dir",
        "nfiles": 2,
        "size": 7 + len(info.read_bytes()),
    }
    (home / "dvc.lock").write_text(yaml.safe_dump({"stages": {"publish": {"outs": [out]}}}))
    assert collect_lineage("demo").datasets[0].md5 == "12.dir"
    info.write_text(info.read_text().replace("91", "1091"))
    lineage = collect_lineage("demo")
    assert (lineage.datasets[0].md5, lineage.datasets[0].num_frames) == (None, 1091)
    assert any("datasets/demo was changed since" in problem for problem in lineage.missing)
    shutil.rmtree(home / "datasets/demo")  # elsewhere: nothing speaks against the record
    assert collect_lineage("demo").datasets[0].md5 == "12.dir"


def test_a_merged_dataset_depends_on_the_datasets_it_was_made_from(home):
    (home / "configs/datasets").mkdir(parents=True)
    (home / "configs/datasets/both.yaml").write_text(
        "merge: [{dataset: demo}, {dataset: lab, weight: 2}]\n"
    )
    lineage = collect_lineage("both")
    assert lineage.datasets[0].raw_md5 == "datasets/demo 0123456789abcdef0123456789abcdef.dir"
    (problem,) = [text for text in lineage.missing if text.startswith("raw_md5")]
    assert "knows datasets/lab; run `dvc repro`" in problem


@pytest.mark.parametrize("name", ["reports/demo/validation.json", "demo/meta/info.json"])
def test_a_damaged_record_is_an_error_with_its_name(home, name):
    (home / "datasets" / name).write_text("{")
    with pytest.raises(ValueError, match=f"{name} is damaged .* run `dvc repro`"):
        collect_lineage("demo")


def test_a_damaged_file_of_another_pipeline_is_left_out_and_named(home, caplog):
    (home / "infra/lab").mkdir(parents=True)
    (home / "infra/lab/dvc.lock").write_text("stages: [")
    (home / "others.dvc").write_text("- a list")
    assert collect_lineage("demo").datasets[0].md5
    for name in ("lab/dvc.lock is not YAML", "others.dvc holds a list"):
        assert f"left out, because it cannot be read: {home}" in caplog.text
        assert name in caplog.text


def test_a_damaged_lock_file_is_an_error_with_its_name(home):
    (home / "dvc.lock").write_text("stages: [")
    with pytest.raises(ValueError, match=r"dvc\.lock is not YAML"):
        collect_lineage("demo")


def test_what_depends_on_several_datasets_has_the_lineage_of_each_and_one_for_all(home):
    add_dataset(home, "lab", "77.dir", passed=False)
    lineage = collect_lineage("demo", "lab")
    facts = lineage.facts()
    assert facts["dataset"] == "demo, lab"
    assert facts["dataset_md5"] == "0123456789abcdef0123456789abcdef.dir, 77.dir"
    assert (facts["num_episodes"], facts["num_frames"]) == (10, 100)
    assert facts["validation"] == "passed, failed"
    assert lineage.git_dirty is True
    assert lineage.missing == ()
    [demo], [lab] = collect_lineage("demo").datasets, collect_lineage("lab").datasets
    assert lineage.datasets == (demo, lab)
    assert lineage.dataset_names == ["demo", "lab"]
    assert collect_lineage() == Lineage()
    (home / "datasets/lab/new").touch()
    lineage = collect_lineage("demo", "lab", "absent")
    assert not {"dataset_md5", "num_frames"} & lineage.facts().keys()
    assert lineage.missing[0].startswith("absent: dataset_md5: dvc.lock has no output")


def test_a_dataset_given_by_path_is_known_by_that_and_not_by_other_recordings(home, monkeypatch):
    monkeypatch.chdir(home)
    lineage = collect_lineage("datasets/demo")
    [dataset] = lineage.datasets
    assert dataset.md5 == "0123456789abcdef0123456789abcdef.dir"
    assert (dataset.num_frames, dataset.raw_md5) == (91, None)
    assert dataset.card == str(home / "datasets/demo/README.md")


def test_what_learned_in_a_simulator_depends_on_its_config_and_packages(home):
    env = {"type": "x", "task": "CartPole-v1", "num_envs": 8}
    lineage = environment_lineage(env)
    environment = lineage.environment
    assert environment is not None
    assert environment.task == "CartPole-v1"
    assert environment.packages["gymnasium"] == importlib.metadata.version("gymnasium")
    others = environment_lineage({**env, "num_envs": 9}).environment
    assert others.config_digest != environment.config_digest
    assert environment_lineage(dict(reversed(env.items()))).environment == environment
    assert lineage.git_revision
    assert lineage.source_digest
    assert (lineage.git_dirty, lineage.missing, lineage.datasets) == (False, (), ())
    (home / "requirements.lock").unlink()
    assert environment_lineage(env).missing == ("lock_hash: there is no requirements.lock",)


@pytest.mark.slow
def test_recordings_that_are_in_no_remote_show(home):
    def dvc(*words: str) -> None:
        command = [sys.executable, "-m", "dvc", *words]
        subprocess.run(command, cwd=home, check=True, capture_output=True)

    assert collect_lineage("demo").datasets[0].pushed is None  # without DVC nobody can say
    (home / "datasets.dvc").unlink()
    (home / "recordings").mkdir()
    (home / "recordings/episode.bin").write_bytes(b"joint angles")
    (home / "configs/datasets").mkdir()
    (home / "configs/datasets/demo.yaml").write_text("source: {path: recordings}\n")
    dvc("init", "--quiet")
    dvc("remote", "add", "--default", "shelf", str(home / "shelf"))
    dvc("add", "--quiet", "recordings")
    assert collect_lineage("demo").datasets[0].pushed is False
    dvc("push", "--quiet")
    assert collect_lineage("demo").datasets[0].pushed is True


def test_outside_of_a_workspace_no_repository_around_the_data_folder_counts(
    home, monkeypatch, tmp_path_factory
):
    """Some keep their home directory in git."""
    monkeypatch.delenv("RRF_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    monkeypatch.chdir(tmp_path_factory.mktemp("nowhere"))
    lineage = environment_lineage({"task": "CartPole-v1"})
    assert lineage.git_revision is None
    assert "git_revision: not in a workspace; make one: rrf init FOLDER" in lineage.missing
