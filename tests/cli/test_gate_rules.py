"""Rules of one's own, as the page of the documentation says it, and limits on the served policy:
from `rrf eval` to `rrf models promote`."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rrf.evaluation.results import Evaluation
from rrf.evaluation.serving_profile import ServingProfile
from rrf.lineage import EnvironmentLineage, Lineage
from rrf.mlflow_store import store
from rrf.policies.control.configs import MemoryCfg
from rrf.run_directory import write_facts
from tests.docs.pages import DOCS, blocks, commands
from tests.evaluation.control.control_checkpoints import write_control_checkpoint

PAGE = DOCS / "how-to/add-a-gate-rule.md"
QUICK = """
name: quick
env: {type: "rrf.envs.gymnasium.configs:GymnasiumEnvCfg", task: Pendulum-v1, num_envs: 2}
seed: 7
episodes_per_task: 2
max_episode_steps: 20
success: {return: {min: -1000}}
"""


@pytest.fixture
def checkpoint(home, monkeypatch) -> Path:
    """A run directory whose MLflow run and lineage are complete."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    client = store.connect()
    run_id = client.create_run(store.experiment_id(client, "train")).info.run_id
    environment = EnvironmentLineage("Pendulum-v1", "12")
    lineage = Lineage(
        environment=environment, git_revision="ab" * 20, git_dirty=False, lock_hash="cd"
    )
    write_control_checkpoint(home / "run", "Pendulum-v1", lineage)
    write_facts(home / "run/run.json", {"run_id": run_id})
    return home / "run"


def written(home: Path, gate: str, protocol: str = "") -> Path:
    """A gate's file, and its protocol beside it, if rrf does not ship that."""
    file = home / "configs/gates/my-gate.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(gate)
    if protocol:
        (home / "configs/protocols").mkdir()
        (home / "configs/protocols/quick.yaml").write_text(protocol)
    return file


def shell(home: Path, line: str) -> tuple[int, str]:
    """Run a line in a process of its own, as another machine would; its exit code and output."""
    words = [sys.executable, "-m", *shlex.split(line)]
    done = subprocess.run(
        words, cwd=home, env={**os.environ, "COLUMNS": "300"}, capture_output=True, text=True
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.slow
def test_the_page_is_true_and_edits_of_the_rule_are_refused(home, checkpoint):
    [module] = blocks(PAGE, "python")
    [gate] = [text for text in blocks(PAGE, "yaml") if "my_rules:" in text]
    (home / "my_rules.py").write_text(module)
    written(home, gate)
    eval_, promote = [line for line in commands(PAGE, "rrf") if "--import" in line]
    eval_ = eval_.replace("CHECKPOINT", str(checkpoint))
    code, said = shell(home, f"{eval_} --num-videos 0")
    assert code == 0, said
    assert "gate my-gate: pass" in said
    [worst] = re.findall(
        r"pass: worst return: (-[\d.]+) in episode \d+ of Pendulum-v1, asked", said
    )
    evaluation = Evaluation.load(next((home / ".rrf/evaluations").iterdir()))
    worst_of_look = min(e.episode_return for e in evaluation.episodes[:10])
    assert float(worst) == pytest.approx(worst_of_look, abs=0.05)
    assert "to promote it: rrf models promote my-model 1 --import my_rules" in said

    code, said = shell(home, promote.replace(" --import my_rules", ""))
    assert code == 2
    assert "the gate's rule is 'my_rules:worst_return'" in said
    assert "add --import my_rules" in said
    (home / "my_rules.py").write_text(module.replace(">= least", ">= 2 * least"))
    code, said = shell(home, promote)
    assert code == 2
    assert "the gate's rule 'my_rules:worst_return' has changed" in said
    assert "rrf models gate NAME FILE --reason" in said
    (home / "my_rules.py").write_text(module)
    code, said = shell(home, promote)
    assert code == 0, said
    assert "my-model version 1 is @champion" in said


@pytest.mark.slow
def test_the_served_policy_is_measured_judged_shown_and_promoted(home, checkpoint, rrf):
    limits = {"latency_ms_p95": {"max": 60_000}, "peak_memory_mb": {"max": 1}}
    rules = {"name": "my-gate", "protocol": "quick", "overall_lower_bound": 0, "looks": [2]}
    file = written(home, yaml.safe_dump(rules | {"serving": limits, "hardware": "*"}), QUICK)
    words = ("eval", checkpoint, "--gate", file, "--num-videos", 0, "--out", home / "e")
    said = rrf(*words)
    assert said.code == 0, said.err
    assert "gate my-gate: fail" in said.out
    assert "fail: peak_memory_mb: " in said.out
    assert "pass: latency_ms_p95: " in said.out
    measured = Evaluation.load(home / "e").profile
    assert measured is not None
    assert (measured.num_requests, measured.device) == (500, "cpu")
    assert "<h2>As it is served</h2>" in (home / "e/report.html").read_text()

    # The same command again measures nothing new; what the robot's computer measured is taken.
    assert "to measure it" not in rrf(*words).out
    assert Evaluation.load(home / "e").profile == measured
    limits["peak_memory_mb"]["max"] = 20_000
    file.write_text(yaml.safe_dump(rules | {"serving": limits, "hardware": "Jetson*"}))
    assert "fail: serving: not measured on 'Jetson*', only on '" in rrf(*words).out
    profile = home / "profile.json"
    said = rrf("profile", checkpoint, "--out", profile, "--requests", 100)
    assert said.lines[-1] == f"profile {profile}; next: rrf eval {checkpoint} --profile {profile}"
    named = profile.read_text().replace(measured.processor, "Jetson Orin")
    profile.write_text(named)
    said = rrf(*words, "--profile", profile, "--register", "my-model")
    assert said.code == 0, said.err
    assert Evaluation.load(home / "e").profile == ServingProfile.load(profile)
    assert "gate my-gate: pass" in said.out
    assert rrf("models", "promote", "my-model", 1).code == 0
    listed = " ".join(rrf("models", "list").out.split())
    assert "95 of 100 requests in" in listed

    profile.write_text(named.replace(measured.checkpoint_digest, "0" * 64))
    said = rrf(*words, "--profile", profile)
    assert said.code == 2
    assert "was measured on checkpoint 000000000000, but this is" in said.err
    assert "no profile at 'nowhere'" in rrf(*words, "--profile", "nowhere").err


@pytest.mark.slow
def test_a_policy_that_cannot_be_served_fails_with_a_verdict(home, rrf):
    environment = EnvironmentLineage("Pendulum-v1", "12")
    lineage = Lineage(environment=environment)
    memory = MemoryCfg(hidden_size=4)
    write_control_checkpoint(home / "run", "Pendulum-v1", lineage, memory)
    rules = {"name": "my-gate", "protocol": "quick", "overall_lower_bound": 0, "looks": [2]}
    limits = {"serving": {"latency_ms_p95": {"max": 60_000}}, "hardware": "*"}
    file = written(home, yaml.safe_dump(rules | limits), QUICK)
    words = ("eval", home / "run", "--num-videos", 0, "--out", home / "e")
    said = rrf(*words, "--gate", file)
    assert said.code == 0, said.err
    assert "warning: not measured, so the gate fails: " in said.err
    assert "remembers what it saw in earlier steps" in said.err
    assert "fail: serving: not measured on '*'; there: rrf profile CHECKPOINT" in said.out
    asked = rrf(*words, "--profile", "here")
    assert asked.code == 2
    assert "remembers what it saw in earlier steps" in asked.err


@pytest.mark.slow
def test_a_signature_of_the_evaluation_without_its_profile_is_not_kept(home, rrf):
    lineage = Lineage(environment=EnvironmentLineage("Pendulum-v1", "12"))
    write_control_checkpoint(home / "run", "Pendulum-v1", lineage)
    (home / "quick.yaml").write_text(QUICK)
    assert rrf("profile", home / "run", "--out", "profile.json", "--requests", 100).code == 0
    words = ("eval", home / "run", "--protocol", "quick.yaml", "--num-videos", 0, "--out", "e")
    assert rrf(*words).code == 0
    signature = home / "e/evaluation.signature.json"
    signature.write_text("{}")
    said = rrf(*words, "--profile", "profile.json")
    assert "its signature is removed, because it now has a profile" in said.out
    assert not signature.exists()
    signature.write_text("{}")
    assert "signature" not in rrf(*words, "--profile", "profile.json").out
    assert signature.exists()
