"""`rrf train` as a user or a flow runs it: processes that are reused, stopped and killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import rrf
from rrf.cli.dataset_training import run_inputs
from rrf.cli.training_run import finished_training, run_training
from rrf.cli.trainings import training_of
from rrf.presets import PRESETS, resolve
from rrf.presets.rlinf import recipes
from rrf.run_directory import RUN, UNSENT, TrainingResult, read_facts, write_facts
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.deployable import deployable_digest, load_lineage
from rrf.runners.interruption import SignalWatch
from tests.runners.supervised.conftest import tiny_run_cfg

# The command's work without a preset in between: the config comes as a file.
SCRIPT = """
import pathlib, sys
import rrf
from rrf.cli.training_run import run_training
from rrf.runners import SupervisedRunnerCfg
cfg = SupervisedRunnerCfg.from_yaml(pathlib.Path(sys.argv[1]).read_text())
for run_dir in sys.argv[2:]:
    run_training(cfg, pathlib.Path(run_dir))
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A repository as far as training looks at one."""
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def frozen(home):
    """A copy of the package: its source is part of a run's identity, and someone may be editing."""
    shutil.copytree(Path(rrf.__file__).parent, home / "frozen" / "rrf")
    return home / "frozen"


def start(home, frozen, cfg, *run_dirs):
    """The command, which cannot get far ahead of who reads what it prints: its pipe holds a page,
    that is about 60 steps, and is read byte by byte."""
    (home / "cfg.yaml").write_text(cfg.to_yaml())
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "cfg.yaml", *run_dirs],
        cwd=home,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(frozen)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        pipesize=4096,
    )


def reported(process, step) -> int:
    """Reads until the process has reported `step`. Returns the first step it reported."""
    lines, first = [], None
    for line in process.stdout:
        lines.append(line)
        if line.startswith(b"step "):
            number = int(line.split()[1].split(b"/")[0])
            first = first or number
            if number >= step:
                return first
    raise AssertionError("the process ended early:\n" + b"".join(lines).decode())


def saved_step(run_dir) -> int:
    return int(checkpoint.latest(run_dir).name.removeprefix("global_step_"))


def weights(run_dir):
    return load_file(checkpoint.latest(run_dir) / "model.safetensors")


@pytest.mark.slow
def test_a_run_stopped_by_sigterm_and_then_killed_ends_with_the_weights_of_an_undisturbed_one(
    home, frozen, dataset
):
    cfg = tiny_run_cfg(
        dataset, max_steps=250, save_interval=50, validation_interval=200, log_interval=1
    )
    stopped = start(home, frozen, cfg, "run")
    reported(stopped, 30)
    stopped.send_signal(signal.SIGTERM)
    output, _ = stopped.communicate(timeout=300)
    assert stopped.returncode == 143, output
    at_stop = saved_step(home / "run")
    assert 30 < at_stop < 250

    killed = start(home, frozen, cfg, "run")
    first = reported(killed, at_stop + 60)
    killed.kill()
    killed.wait()
    assert first == at_stop + 1
    assert at_stop < saved_step(home / "run") < 250
    assert not (home / "run" / "result.json").exists()

    finishing = start(home, frozen, cfg, "run", "undisturbed")
    output, _ = finishing.communicate(timeout=300)
    assert finishing.returncode == 0, output
    results = [
        json.loads((home / name / "result.json").read_text()) for name in ("run", "undisturbed")
    ]
    assert results[0]["checkpoint_digest"] == results[1]["checkpoint_digest"]
    mine, other = weights(home / "run"), weights(home / "undisturbed")
    assert all(torch.equal(mine[name], other[name]) for name in mine)


def test_a_finished_run_is_reused_until_something_that_decides_its_result_changes(home, dataset):
    cfg = tiny_run_cfg(dataset, max_steps=4)
    first = run_training(cfg)
    assert first.reused is False
    assert first.steps == 4
    assert deployable_digest(first.checkpoint) == first.checkpoint_digest
    assert run_training(cfg) == first.replace(reused=True)
    assert run_training(cfg.replace(seed=1)).checkpoint != first.checkpoint
    again = run_training(cfg, resume=False)
    assert again.reused is False
    assert again.checkpoint_digest == first.checkpoint_digest


def test_what_is_found_finished_is_what_the_command_would_reuse_without_work(home, dataset):
    cfg = tiny_run_cfg(dataset, max_steps=4)
    assert finished_training(cfg) is None
    run = Path(run_training(cfg).checkpoint).parent
    assert finished_training(cfg) == run_training(cfg)
    assert finished_training(cfg.replace(seed=1)) is None
    assert finished_training(cfg.replace(init_from="none")) is None
    (run / UNSENT).touch()  # the command would send its records
    assert finished_training(cfg) is None
    (run / UNSENT).unlink()
    facts = read_facts(run / RUN)
    write_facts(run / RUN, facts | {"inputs": facts["inputs"] | {"config": "another"}})
    assert finished_training(cfg) is None
    write_facts(run / RUN, facts)
    assert finished_training(cfg)
    next(run.glob("global_step_*/model.safetensors")).write_bytes(b"damaged")
    assert finished_training(cfg) is None


def test_a_run_knows_its_parent_by_content_and_not_by_place():
    config = {"seed": 0, "init_from": "/here"}
    moved = {"seed": 0, "init_from": "/there"}
    inputs = run_inputs(config, "md5", "source", "p")
    assert inputs == run_inputs(moved, "md5", "source", "p")
    assert inputs != run_inputs(config, "md5", "source", "q")
    assert inputs != run_inputs({"seed": 1}, "md5", "source", "p")


def test_a_run_directory_of_other_inputs_is_refused_and_can_be_started_over(home, dataset):
    cfg = tiny_run_cfg(dataset, max_steps=2)
    run_training(cfg, home / "run")
    with pytest.raises(ValueError, match=r"another config \(seed: 0 -> 1\); .*--no-resume"):
        run_training(cfg.replace(seed=1), home / "run")
    assert run_training(cfg.replace(seed=1), home / "run", resume=False).reused is False


def test_the_first_line_comes_before_dvcs_remote_is_asked(home, dataset, monkeypatch, capsys):
    printed = []

    def is_pushed(*_) -> bool:
        printed.append(capsys.readouterr().out)
        return True

    monkeypatch.setattr("rrf.registry.lineage_sources._is_pushed", is_pushed)
    result = run_training(tiny_run_cfg(dataset, max_steps=2), home / "run")
    assert printed == [f"training tiny on cpu in {home / 'run'}: starts anew\n"]
    assert load_lineage(result.checkpoint).datasets[0].pushed is True


def test_a_simulator_that_is_not_set_up_is_said_before_the_training_starts(home):
    reinforced = resolve("robosuite-grpo-compact")
    corrected = resolve("metaworld-dagger-compact").replace(env=reinforced.env, tasks=["Lift"])
    for cfg in (reinforced, corrected):
        with pytest.raises(ValueError, match="not set up here; type: rrf envs setup robosuite"):
            training_of(cfg).check()
    elsewhere = resolve("robosuite-grpo-compact", ["ray.address=10.0.0.1:6379"])
    training_of(elsewhere).check()  # the machines of the cluster may have it


def test_a_result_is_read_as_it_was_written(tmp_path):
    result = TrainingResult("run/global_step_4", "c1", 4, {"loss/total": 0.5}, 3.0, 2.0)
    result.write(tmp_path)
    written = json.loads((tmp_path / "result.json").read_text())
    assert written == {
        "format_version": 1,
        "checkpoint": "run/global_step_4",
        "checkpoint_digest": "c1",
        "steps": 4,
        "metrics": {"loss/total": 0.5},
        "wall_s": 3.0,
        "cpu_s": 2.0,
        "run_id": None,
        "reused": False,
    }
    assert TrainingResult.read(tmp_path) == result
    (tmp_path / "result.json").write_text('{"checkpoint": "run/global_step_4", "steps": 4}')
    with pytest.raises(ValueError, match=r"\(it lacks checkpoint_digest, cpu_s, metrics, wall_s\)"):
        TrainingResult.read(tmp_path)


def test_a_reused_result_whose_checkpoint_was_tampered_with_is_refused(home, dataset):
    cfg = tiny_run_cfg(dataset, max_steps=2)
    result = run_training(cfg)
    (Path(result.checkpoint) / "model.safetensors").write_bytes(b"other")
    with pytest.raises(ValueError, match=r"model.safetensors was changed after it was written"):
        run_training(cfg)


def test_the_command_names_the_closest_preset_and_field():
    with pytest.raises(ValueError, match=r"no preset 'compact-vla-stf'; did you mean"):
        resolve("compact-vla-stf")
    with pytest.raises(ValueError, match=r"no config field 'optimizer.lrr'; did you mean 'lr'"):
        resolve("compact-vla-sft", ["optimizer.lrr=1"])


def test_a_training_file_with_an_unknown_key_or_no_preset_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("preset: compact-vla-sft\noverride: {}\n")
    with pytest.raises(ValueError, match=r"has no key 'override'; did you mean 'overrides'"):
        resolve(str(tmp_path / "a.yaml"))
    (tmp_path / "b.yaml").write_text("overrides: {}\n")
    with pytest.raises(ValueError, match=r"not name a preset; .* Known: .*compact-vla-pretrain, "):
        resolve(str(tmp_path / "b.yaml"))


def test_overrides_of_the_command_win_over_those_of_the_file(tmp_path):
    (tmp_path / "a.yaml").write_text(
        "preset: compact-vla-sft\noverrides: {max_steps: 7, optimizer.lr: 0.5}\n"
    )
    cfg = resolve(str(tmp_path / "a.yaml"), ["max_steps=9"])
    assert (cfg.max_steps, cfg.optimizer.lr) == (9, 0.5)


@pytest.mark.parametrize("name", sorted({*PRESETS} - {*recipes.names()}))
def test_every_preset_survives_yaml(name):
    cfg = resolve(name)
    assert type(cfg).from_yaml(cfg.to_yaml()) == cfg
    assert cfg.experiment_name == name


def test_pretraining_and_fine_tuning_share_one_architecture():
    for suffix in ("", "-tokens"):
        pretrain, sft = (
            resolve(f"compact-vla-pretrain{suffix}"),
            resolve(f"compact-vla-sft{suffix}"),
        )
        assert pretrain.policy == sft.policy
        assert set(sft.instructions) < set(pretrain.instructions)


def test_a_second_interrupt_is_not_swallowed():
    before = signal.getsignal(signal.SIGINT)
    with SignalWatch() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
