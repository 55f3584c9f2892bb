"""The registered policy through mlflow.pyfunc: the same actions as rrf's own, and inputs are
checked.
"""

import numpy as np
import pytest

from rrf.data.schema import Observation
from rrf.lineage import Lineage
from rrf.mlflow_store import store
from rrf.registry import changes, loading, promotion, registration
from rrf.registry.lineage_sources import collect_lineage
from rrf.registry.origin import RevokedError
from tests.registry.conftest import make_evaluation

STATS = {
    "observation.state": {"mean": [0.1, 0.2, 0.3, 0.4], "std": [1.0, 2.0, 1.0, 0.5]},
    "action": {"min": [-1.0, -0.5, -1.0, 0.0], "max": [1.0, 0.5, 1.0, 1.0]},
}


@pytest.fixture
def checkpoint(home):
    """A checkpoint of the compact policy with random weights, written as training writes it."""
    import torch

    from rrf.presets import resolve
    from rrf.runners.checkpoints.checkpoint import TrainerState, save

    torch.manual_seed(0)
    cfg = resolve("compact-vla-pretrain")
    stats = {key: {k: list(v) for k, v in value.items()} for key, value in STATS.items()}
    for value in stats.values():
        for name in ("mean", "std", "min", "max", "q01", "q99"):
            value.setdefault(name, [0.0] * 4 if name in ("mean", "min", "q01") else [1.0] * 4)
        value["count"] = [10]
    policy = cfg.policy.build(stats)
    trainer = TrainerState({"x": torch.zeros(1)}, {"step": 1})
    return save(home / "checkpoints/run", 1, cfg, policy.state_dict(), stats, trainer, Lineage())


def test_a_version_is_loaded_until_it_is_withdrawn(home, checkpoint, caplog, monkeypatch):
    import mlflow

    import rrf

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home / '.rrf/mlflow.db'}")
    client = store.connect()
    run_id = client.create_run(store.experiment_id(client, "train")).info.run_id
    registration.register(checkpoint, "policy", run_id, collect_lineage("demo"))
    loading.fetch("policy/1", home / "mine")
    _, inputs = observe(batch=1)
    actions = rrf.load_policy("policy/1").predict(inputs)
    assert np.array_equal(rrf.load_policy(str(home / "mine")).predict(inputs), actions)
    by_mlflow = mlflow.pyfunc.load_model("models:/policy/1")
    assert np.array_equal(by_mlflow.predict(inputs), actions)
    nobody = {"champion": None, "previous": None, "checkpoint_digest": None}
    ledger = promotion.ledger_of("policy")
    changes.append(client, ledger, action="withdraw", version="1", reason="it hit me", **nobody)
    for reference in ("policy/1", home / "mine"):
        with pytest.raises(RevokedError, match="it hit me"):
            rrf.load_policy(reference)
    with pytest.raises(RevokedError, match="it hit me"):
        mlflow.pyfunc.load_model("models:/policy/1")
    allowed = rrf.load_policy(home / "mine", allow_withdrawn=True)
    assert np.array_equal(allowed.predict(inputs), actions)
    assert "it hit me; it is used all the same" in caplog.text
    (home / "mine/norm_stats.json").write_text("{}")
    with pytest.raises(ValueError, match=r"norm_stats\.json was changed"):
        rrf.load_policy(home / "mine")


def observe(batch: int, size: int = 64) -> tuple[Observation, dict]:
    rng = np.random.default_rng(5)
    images = rng.integers(0, 256, (batch, size, size, 3), dtype=np.uint8)
    state = rng.normal(size=(batch, 4)).astype(np.float32)
    words = ["open the drawer", "press the button"][:batch]
    inputs = {
        "observation.images.corner2": images,
        "observation.state": state,
        "instruction": np.array(words),
    }
    return Observation({"corner2": images}, state, words), inputs


def test_pyfunc_answers_with_the_actions_of_the_policy(home, checkpoint, monkeypatch):
    import mlflow

    from rrf.runners.checkpoints.checkpoint import load_policy
    from rrf.runners.checkpoints.deployable import deployable_digest

    client = store.connect()
    run_id = client.create_run(store.experiment_id(client, "train")).info.run_id
    report = make_evaluation(home / "checkpoints/evaluation", checkpoint, 18)
    assert report.checkpoint_digest == deployable_digest(checkpoint)
    version = registration.register(
        checkpoint,
        "vla",
        run_id,
        collect_lineage("demo"),
        home / "checkpoints/evaluation",
        gate=home / "configs/gates/g.yaml",
    )
    promotion.promote("vla", version)

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home / '.rrf/mlflow.db'}")
    model = mlflow.pyfunc.load_model("models:/vla@champion")
    observation, inputs = observe(2)
    expected = load_policy(checkpoint).sample(observation, greedy=True).actions
    predicted = model.predict(inputs)
    assert predicted.dtype == np.float32
    assert np.ptp(predicted) > 0.01
    np.testing.assert_array_equal(predicted, expected)

    assert [i.name for i in model.metadata.signature.inputs] == list(inputs)
    with pytest.raises(mlflow.exceptions.MlflowException, match=r"observation\.images\.corner2"):
        model.predict(observe(2, size=32)[1])
