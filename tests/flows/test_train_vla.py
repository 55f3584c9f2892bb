"""The whole of `train-vla` on a server for tests, with stand-ins for the commands: what is run in
which order, on what, and what the registry has in the end. `test_live_flows.py` runs the
commands. Here is also what commands see that wait for cards on the server, which is started once.
"""

import itertools
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flows import commands, progress, slots
from flows.train_vla import NEW_MODEL_GATE, NEW_MODEL_RL_GATE, STAGES, train_vla
from rrf import workspace
from rrf.identity import keys, trust
from rrf.identity.trust import ModelTrustCfg, TrustCfg
from rrf.lineage import DatasetLineage, Lineage
from rrf.mlflow_store import store
from rrf.registry import promotion, versions
from rrf.run_directory import TrainingResult
from rrf.runners.checkpoints.deployable import deployable_digest
from tests.registry.conftest import (
    empty_store,  # noqa: F401 (a fixture of `home`)
    home,  # noqa: F401 (a fixture)
    make_checkpoint,
    make_evaluation,
    write_gate,
    write_json,
)

PRETRAIN, SFT, RL = "compact-vla-pretrain-others", "compact-vla-one-demo", "metaworld-grpo-demo"


@pytest.fixture
def gates(home) -> Path:  # noqa: F811
    """Files of a gate that 18 solved of 20 pass, and of one that they do not; and the files that
    a new model is judged by, in the same order.
    """
    folder = home / "configs/gates"
    for name, least in (
        ("easy", 0.5),
        ("hard", 0.99),
        (Path(NEW_MODEL_RL_GATE).stem, 0.5),
        (Path(NEW_MODEL_GATE).stem, 0.99),
    ):
        write_gate(folder / f"{name}.yaml", name=name, overall_lower_bound=least)
    return folder


class Commands:
    """In place of `flows.commands._run`: notes what is run, and leaves what it would leave."""

    def __init__(self, root: Path):
        self.root, self.ran, self.seed = root, [], 0

    def __call__(
        self, step: str, command: list[str], env: Mapping[str, str], stop_when: object = None
    ) -> list[str]:
        words = command[3:]  # behind `python -m rrf.cli`
        if command[2] == "flows.dvc_command":
            self.ran.append((step, words[1:]))
            write_json(Path(words[0]), {"errors": [], "cloud": None})
            return []
        words, path = words[:-2], words[-1]  # --result-file PATH
        self.ran.append((step, words))
        result = {}
        if words[0] == "train":
            run = json.loads((self._trained(step).parent / "result.json").read_text())
            result = run | {"reused": False}
        if words[0] == "eval":
            folder = self.root / f"evaluation-{len(self.ran)}"
            make_evaluation(folder, self._evaluated(words[1]), solved=18)
            result = {"evaluation": str(folder)}
        write_json(Path(path), {"exit_code": 0, "error": None, "result": result})
        return ["what a library prints at exit"]

    def checkpoint(self, stage: str) -> Path:
        return self.root / f"checkpoints/{stage}-{self.seed}/global_step_3"

    def _evaluated(self, policy: str) -> Path:
        if not policy.startswith("models:/"):
            return Path(policy)
        digest = versions.find(policy).checkpoint_digest
        made = self.root.glob("checkpoints/*/global_step_3")
        return next(path for path in made if deployable_digest(path) == digest)

    def _trained(self, stage: str) -> Path:
        path = self.checkpoint(stage)
        if path.is_dir():  # a finished run is reused
            return path
        client = store.connect()
        run_id = client.create_run(store.experiment_id(client, stage)).info.run_id
        lineage = Lineage((DatasetLineage("demo"),))
        make_checkpoint(path, STAGES.index(stage) + 10 * self.seed, lineage)
        digest = deployable_digest(path)
        TrainingResult(str(path), digest, 3, {}, 1.0, 1.0, run_id).write(path.parent)
        write_json(path.parent / "run.json", {"run_id": run_id})
        return path


@pytest.fixture
def made(home, monkeypatch) -> Commands:  # noqa: F811
    commands_made = Commands(home)
    monkeypatch.setattr(commands, "_run", commands_made)
    return commands_made


def test_each_stage_starts_from_the_one_before_and_the_last_one_is_judged(
    server,
    gates,
    made,
):
    easy, protocol = str(gates / "easy.yaml"), str(gates.parent / "protocols/p.yaml")
    result = train_vla(
        "demo", PRETRAIN, SFT, RL, gate=easy, model="reach",
        overrides={"sft.seed": 4, "rl.max_rounds": 1},
    )  # fmt: skip
    pretrain, sft, rl = (made.checkpoint(stage) for stage in STAGES)
    before_sft, before_rl = (f'init_from="{workspace.relative(path)}"' for path in (pretrain, sft))
    once = ["--protocol", protocol, "--extra-episodes", "0"]
    assert made.ran == [
        ("dvc", ["pull", "datasets.dvc", "--then", "repro", "publish@demo"]),
        ("pretrain", ["train", PRETRAIN, 'dataset="demo"']),
        ("sft", ["train", SFT, 'dataset="demo"', before_sft, "seed=4"]),
        ("evaluate", ["eval", str(sft), *once]),
        ("rl", ["train", RL, before_rl, "max_rounds=1"]),
        ("evaluate", ["eval", str(rl), *once]),
    ]
    assert result["promoted"]
    champion = versions.find("reach@champion")
    assert champion.version == "1"
    assert champion.run_id == result["training"]["rl"]["run_id"]
    [dataset] = result["lineage"]["datasets"]
    assert dataset["name"] == "demo"
    assert dataset["md5"] == "0123456789abcdef0123456789abcdef.dir"
    before = Path(result["before"], "evaluation.json").read_bytes()
    assert Path(result["evaluation"], "baseline-before-training.json").read_bytes() == before


@pytest.mark.slow
def test_a_new_model_is_judged_by_the_gate_of_its_last_stage_and_keeps_that_gate(
    server,
    gates,
    made,
    monkeypatch,
):
    monkeypatch.chdir(made.root)
    result = train_vla("demo", None, SFT, None, model="reach")
    assert [step for step, _ in made.ran] == ["dvc", "sft", "evaluate"]
    assert not result["promoted"]
    assert versions.find("reach/1").tags["gate.outcome"] == "fail"
    assert versions.champion("reach") is None
    assert ruled_by("reach") == NEW_MODEL_GATE
    assert not train_vla("demo", None, SFT, RL, model="reach")["promoted"]  # the same gate
    assert train_vla("demo", None, SFT, RL, model="another")["promoted"]
    assert ruled_by("another") == NEW_MODEL_RL_GATE


def ruled_by(model: str) -> str:
    found = promotion.gate_of(model)
    assert found is not None
    return found.file


@pytest.mark.slow
def test_a_model_is_judged_by_no_other_gate_than_its_own(server, gates, made):
    hard, easy = str(gates / "hard.yaml"), str(gates / "easy.yaml")
    train_vla("demo", None, SFT, None, gate=hard, model="reach")
    made.ran.clear()
    with pytest.raises(ValueError, match=r"'reach' is ruled by configs/gates/hard\.yaml .*, not"):
        train_vla("demo", None, SFT, None, gate=easy, model="reach")
    assert made.ran == []
    promotion.rule("reach", easy, "a first policy is needed on the robot")
    assert train_vla("demo", None, SFT, None, gate=easy, model="reach")["promoted"]


@pytest.mark.slow
def test_what_was_rolled_back_is_not_promoted_again_by_the_same_flow(
    server,
    gates,
    made,
):
    def run() -> dict:
        return train_vla("demo", None, SFT, None, gate=str(gates / "easy.yaml"), model="reach")

    assert run()["version"] == "1"
    made.seed = 1
    assert run()["promoted"]
    assert versions.find("reach@champion").version == "2"
    promotion.rollback("reach", "drops the cup", "2")
    again = run()
    assert (again["version"], again["verdict"], again["promoted"]) == ("2", "pass", False)
    assert "it was rolled back (drops the cup)" in again["decision"]
    assert "--unrevoke" in again["decision"]
    assert versions.find("reach@champion").version == "1"


def test_a_gate_that_cannot_be_read_ends_the_flow_before_anything_is_run(server, made):
    with pytest.raises(ValueError, match=r"no file 'gone\.yaml'"):
        train_vla("demo", None, SFT, None, gate="gone.yaml")
    assert made.ran == []


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"rl": "metaworld-grpo-dmeo"}, "rl: .*did you mean .*metaworld-grpo-demo"),
        ({"overrides": {"rl.max_round": 1}}, "rl: .*max_round.*did you mean 'max_rounds'"),
        ({"overrides": {"sft.trackers": []}}, "sft: trackers is .*add mlflow"),
        ({"pretrain": "pendulum-ppo"}, "pretrain is pendulum-ppo, which trains a state-based"),
        ({"rl": "maniskill-ppo-openvla"}, "does not fit the policy that is to be trained"),
    ],
)
def test_a_stage_that_could_not_be_trained_ends_the_flow_before_anything_is_run(
    server, gates, made, changed, why
):
    asked = {"pretrain": PRETRAIN, "sft": SFT, "rl": RL, "gate": str(gates / "easy.yaml")}
    with pytest.raises(ValueError, match=why):
        train_vla("demo", model="reach", **asked | changed)
    assert made.ran == []


def test_who_may_not_register_the_policy_trains_none(server, gates, made, monkeypatch, tmp_path):
    monkeypatch.setenv(keys.FOLDER_VARIABLE, str(tmp_path / "keys"))
    trust.save(TrustCfg(models={"*": ModelTrustCfg()}))
    with pytest.raises(ValueError, match="rrf keys new"):
        train_vla("demo", None, SFT, None, gate=str(gates / "easy.yaml"), model="reach")
    assert made.ran == []


def seen_by_command(step: str) -> tuple[str, str, float, float]:
    """The card and the order of cards that a command of a flow sees, and when it ran."""
    with progress.listening(lambda step, line: None), slots.gpu_slot() as card:
        (line,) = commands.module(step, "seen", env=card.env)
    gpu, order, start, end = line.split()
    return gpu, order, float(start), float(end)


def test_commands_of_flows_that_run_at_once_see_different_cards(tmp_path, monkeypatch, server):
    """A GPU slot names a card: flows that run at the same time train on different ones."""
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("RRF_MACHINE", "two-cards")  # the flows above have made the limit for one
    (tmp_path / "seen.py").write_text(
        "import os, sys, time\n"
        "start = time.time()\n"
        "time.sleep(1)\n"
        "print(os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ.get('CUDA_DEVICE_ORDER'),\n"
        "      start, time.time())\n"
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-5ab2/1")
    assert slots.num_gpus() == 2
    with ThreadPoolExecutor(4) as threads:
        seen = list(threads.map(seen_by_command, "abcd"))
    assert {gpu for gpu, *_ in seen} == {"3", "GPU-5ab2/1"}
    assert {order for _, order, *_ in seen} == {"PCI_BUS_ID"}
    for gpu in ("3", "GPU-5ab2/1"):  # never two on the same card
        times = sorted((start, end) for name, _, start, end in seen if name == gpu)
        assert all(end < start for (_, end), (start, _) in itertools.pairwise(times))
