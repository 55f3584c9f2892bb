"""A small repository with real files: git, DVC's lock file, a validation report, and a migrated
MLflow store.
"""

import functools
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from rrf import atomic
from rrf.evaluation.gates.decision import Rival, decide
from rrf.evaluation.gates.gate import GateCfg
from rrf.evaluation.results import EpisodeResult, Evaluation
from rrf.evaluation.vla.configs import ProtocolCfg
from rrf.lineage import Lineage
from rrf.mlflow_store import store
from rrf.registry import listing, promotion, registration
from rrf.registry.entries import Entry
from rrf.registry.lineage_sources import collect_lineage
from rrf.runners.checkpoints.deployable import deployable_digest

NAME = "policy"
PROTOCOL = ProtocolCfg(name="p", tasks=["a"], seed=1, episodes_per_task=20)
GATE = GateCfg(
    name="g", protocol=PROTOCOL, overall_lower_bound=0.5, looks=[20], champion_margin=0.5
)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory) -> Path:
    """An MLflow database with its tables, in the repository that `home` copies; made once, because
    the migrations take seconds.
    """
    from mlflow.store.db import utils

    # MLflow reads all its migrations to know the last one, for each test's copy again.
    utils._get_latest_schema_revision = functools.cache(utils._get_latest_schema_revision)
    root = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RRF_HOME", str(root))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        new_repository(root)
    return root / ".rrf/mlflow.db"


@pytest.fixture
def home(tmp_path, monkeypatch, empty_store) -> Path:
    """A repository with a dataset that DVC, git and the validation know."""
    return copy_of(empty_store.parents[1], tmp_path, monkeypatch)


@pytest.fixture
def client(home):
    """A client of the repository's store."""
    return store.connect()


@pytest.fixture
def run_id(client) -> str:
    """A run of MLflow that trained all checkpoints of a test."""
    return new_run(client)


@pytest.fixture
def add(home, run_id):
    """Register checkpoint number `seed`, of which `solved` episodes of 20 succeeded."""

    def _add(seed: int, solved: int = 18, lineage: Lineage | None = None):
        return register(home, NAME, run_id, seed, solved, lineage)

    return _add


def copy_of(repository: Path, target: Path, patch: pytest.MonkeyPatch) -> Path:
    """Copy a repository, with what its registry holds, and work in the copy."""
    patch.setenv("RRF_HOME", str(target))
    patch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copytree(repository, target, dirs_exist_ok=True)
    return target


def new_repository(root: Path) -> None:
    """Make the repository that `home` copies in `root`, which is the workspace."""
    store.connect()
    write_gate(root / "configs/gates/g.yaml")
    out = {"path": "datasets/demo", "hash": "md5", "md5": "0123456789abcdef0123456789abcdef.dir"}
    (root / "dvc.lock").write_text(yaml.safe_dump({"stages": {"publish": {"outs": [out]}}}))
    raw = {"path": "datasets/raw", "md5": "fedcba9876543210fedcba9876543210.dir"}
    (root / "datasets.dvc").write_text(yaml.safe_dump({"outs": [raw]}))
    (root / "requirements.lock").write_text("numpy==1\n")
    (root / ".gitignore").write_text(".rrf/\ndatasets/\ncheckpoints/\n")
    write_json(root / "datasets/reports/demo/validation.json", {"passed": True})
    write_json(root / "datasets/demo/meta/info.json", {"total_episodes": 7, "total_frames": 91})
    (root / "datasets/demo/README.md").write_text("# demo\n")
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for arguments in (
        ["init", "-q", "--template="],
        ["add", "."],
        [*identity, "commit", "-q", "-m", "data"],
    ):
        subprocess.run(["git", *arguments], cwd=root, check=True)


def aliases() -> dict[str, str]:
    """The aliases of the model in MLflow -> their version."""
    return {alias: v.version for v in listing.versions(NAME) for alias in v.aliases}


def decisions() -> list[Entry]:
    """The changes of champion and gate in the ledger, without registrations and evaluations."""
    entries = promotion.ledger_of(NAME).entries
    return [entry for entry in entries if entry.action not in ("register", "evaluate")]


def promote_three(add) -> None:
    for seed in (1, 2, 3):
        add(seed)
    for version in ("1", "2", "3"):
        promotion.promote(NAME, version)


def new_run(client) -> str:
    return client.create_run(store.experiment_id(client, "train")).info.run_id


def register(
    home: Path,
    name: str,
    run_id: str,
    seed: int,
    solved: int,
    lineage: Lineage | None = None,
    gate: str = "g",
) -> tuple[str, Evaluation]:
    """Register checkpoint number `seed`, of which `solved` episodes of 20 succeeded; returns the
    version and the evaluation.
    """
    checkpoint = make_checkpoint(home / f"checkpoints/{seed}", seed)
    evaluation = home / f"checkpoints/evaluation-{seed}"
    report = make_evaluation(evaluation, checkpoint, solved)
    facts = collect_lineage("demo") if lineage is None else lineage
    file = home / f"configs/gates/{gate}.yaml"
    return registration.register(checkpoint, name, run_id, facts, evaluation, gate=file), report


def write_gate(file: Path, **changes) -> Path:
    """The tests' gate, or one with other thresholds, as a file; the protocol is beside it."""
    rules = {key: value for key, value in GATE.to_dict().items() if key not in ("type", "protocol")}
    protocol = {key: value for key, value in PROTOCOL.to_dict().items() if key != "type"}
    for path, data in (
        (file, rules | {"protocol": "p"} | changes),
        (file.parent.parent / "protocols/p.yaml", protocol),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(data))
    return file


def add_dataset(home: Path, name: str, md5: str, passed: bool = True) -> None:
    """A second published dataset beside `demo`, of 3 episodes and 9 frames."""
    lock = yaml.safe_load((home / "dvc.lock").read_text())
    lock["stages"][name] = {"outs": [{"path": f"datasets/{name}", "md5": md5}]}
    (home / "dvc.lock").write_text(yaml.safe_dump(lock))
    write_json(home / f"datasets/reports/{name}/validation.json", {"passed": passed})
    write_json(home / f"datasets/{name}/meta/info.json", {"total_episodes": 3, "total_frames": 9})
    (home / f"datasets/{name}/README.md").write_text(f"# {name}\n")


def write_json(path: Path, data) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def make_checkpoint(
    path: Path, seed: int = 0, lineage: Lineage | None = None, kind: str = "vla"
) -> Path:
    """A complete checkpoint whose weights depend on `seed`; nothing here needs to run it."""
    with atomic.directory(path) as root:
        policy = {"cameras": ["top"], "image_size": [8, 8], "state_dim": 4, "chunk_length": 2}
        (root / "config.yaml").write_text(yaml.safe_dump({"policy": policy | {"action_dim": 3}}))
        weights = np.random.default_rng(seed).normal(size=5).astype(np.float32)
        save_file({"w": weights}, root / "model.safetensors")
        (root / "norm_stats.json").write_text("{}")
        (root / "trainer_state").mkdir()
        (root / "trainer_state/state.json").write_text("{}")
        atomic.write_manifest(root, kind=kind, step=seed, lineage=(lineage or Lineage()).to_dict())
    return path


def make_evaluation(folder: Path, checkpoint: Path, solved: int) -> Evaluation:
    """An evaluation in which the first `solved` of 20 episodes succeeded, written to `folder`."""
    episodes = [EpisodeResult("a", 1, i, i < solved, 10, 1.0) for i in range(20)]
    report = Evaluation(
        PROTOCOL.to_dict(), PROTOCOL.hash, deployable_digest(checkpoint), episodes, {"wall_s": 1.0}
    )
    report.save(folder / "evaluation.json")
    (folder / "report.html").write_text("<html></html>")
    return report


def judge(report: Evaluation, champion: Evaluation | None = None, version: str | None = None):
    """The verdict of the tests' gate."""
    return decide(report, GATE, Rival(champion, version) if champion else None)
