"""The whole of `train-vla` on a server for tests, with stand-ins for the commands: what is run in
which order, on what, and what the registry has in the end. `test_live.py` runs the commands."""

from pathlib import Path

import pytest
import yaml

from flows import commands
from flows.train_vla import STAGES, train_vla
from rrf.tracking import registry, store
from tests.flows.test_names import server  # noqa: F401 (a fixture)
from tests.tracking.conftest import (
    GATE,
    PROTOCOL,
    empty_store,  # noqa: F401 (a fixture of `home`)
    home,  # noqa: F401 (a fixture)
    make_checkpoint,
    make_evaluation,
    write_json,
)


@pytest.fixture
def gates(home) -> Path:  # noqa: F811
    """Files of a gate that 18 solved of 20 pass, and of one that they do not."""
    protocol = {key: value for key, value in PROTOCOL.to_dict().items() if key != "type"}
    (home / "configs/protocols").mkdir(parents=True)
    (home / "configs/protocols/p.yaml").write_text(yaml.safe_dump(protocol))
    (home / "configs/gates").mkdir()
    for name, least in (("easy", 0.5), ("hard", 0.99)):
        rules = {"name": name, "protocol": "p", "overall_lower_bound": least, "looks": [20]}
        text = yaml.safe_dump(rules | {"champion_margin": GATE.champion_margin})
        (home / f"configs/gates/{name}.yaml").write_text(text)
    return home / "configs/gates"


class Commands:
    """In place of `flows.commands._run`: notes what is run, and leaves what it would leave."""

    def __init__(self, root: Path):
        self.root, self.ran = root, []

    def __call__(self, step: str, command: list[str]) -> list[str]:
        words = command[3:]  # behind `python -m rrf.cli`, or `python -m dvc`
        self.ran.append((step, words))
        if words[0] == "train":
            return [f"checkpoint {self._trained(step)}"]
        if words[0] == "eval":
            folder = self.root / f"evaluation-{len(self.ran)}"
            make_evaluation(folder, Path(words[1]), solved=18)
            return [f"report {folder / 'report.html'}"]
        return []

    def checkpoint(self, stage: str) -> Path:
        return self.root / f"checkpoints/{stage}/global_step_3"

    def _trained(self, stage: str) -> Path:
        path = self.checkpoint(stage)
        client = store.connect()
        run_id = client.create_run(store.experiment_id(client, stage)).info.run_id
        make_checkpoint(path, STAGES.index(stage), {"dataset": "demo", "dataset_card": None})
        result = {"checkpoint": str(path), "run_id": run_id, "steps": 3}
        write_json(path.parent / "result.json", result)
        write_json(path.parent / "run.json", {"run_id": run_id})
        return path


@pytest.fixture
def made(home, monkeypatch) -> Commands:  # noqa: F811
    commands_made = Commands(home)
    monkeypatch.setattr(commands, "_run", commands_made)
    return commands_made


def test_each_stage_starts_from_the_one_before_and_the_last_one_is_judged(
    server,  # noqa: F811
    gates,
    made,
):
    easy, protocol = str(gates / "easy.yaml"), str(gates.parent / "protocols/p.yaml")
    result = train_vla(
        "demo", "a", "b", "c", gate="unused.yaml", rl_gate=easy, model="reach",
        overrides={"sft.seed": 4, "rl.max_rounds": 1},
    )  # fmt: skip
    pretrain, sft, rl = (made.checkpoint(stage) for stage in STAGES)
    once = ["--protocol", protocol, "--extra-episodes", "0"]
    assert made.ran == [
        ("dvc-pull", ["pull", "datasets.dvc"]),
        ("dvc-repro", ["repro", "publish@demo"]),
        ("pretrain", ["train", "a", 'dataset="demo"']),
        ("sft", ["train", "b", 'dataset="demo"', f'init_from="{pretrain}"', "seed=4"]),
        ("evaluate", ["eval", str(sft), *once]),
        ("rl", ["train", "c", f'init_from="{sft}"', "max_rounds=1"]),
        ("evaluate", ["eval", str(rl), *once]),
    ]
    assert result["promoted"]
    champion = registry.find("reach@champion")
    assert champion.version == "1"
    assert champion.run_id == result["training"]["rl"]["run_id"]
    assert result["lineage"]["dataset"] == "demo"
    assert result["lineage"]["dataset_md5"] == "0123456789abcdef0123456789abcdef.dir"
    before = Path(result["before"], "evaluation.json").read_bytes()
    assert Path(result["evaluation"], "baseline-before-training.json").read_bytes() == before


def test_fine_tuning_alone_is_judged_by_its_own_gate(
    server,  # noqa: F811
    gates,
    made,
):
    files = {"gate": str(gates / "hard.yaml"), "rl_gate": str(gates / "easy.yaml")}
    result = train_vla("demo", None, "b", None, model="reach", **files)
    assert [step for step, _ in made.ran] == ["dvc-pull", "dvc-repro", "sft", "evaluate"]
    assert not result["promoted"]
    assert registry.find("reach/1").tags["gate.outcome"] == "fail"
    assert registry.champion("reach") is None


def test_a_gate_that_cannot_be_read_ends_the_flow_before_anything_is_run(server, made):  # noqa: F811
    with pytest.raises(ValueError, match=r"no file 'gone\.yaml'"):
        train_vla("demo", None, "b", None, gate="gone.yaml")
    assert made.ran == []
