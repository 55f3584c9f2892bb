"""State-based policies in the registry: promoted on their environment's lineage, fetched, and
answering through mlflow.pyfunc as they do here.
"""

import json
import subprocess

import numpy as np
import pytest
import torch
import yaml
from tensordict import TensorDict

from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.evaluation.control.configs import ControlProtocolCfg
from rrf.evaluation.control.evaluate import evaluate_control
from rrf.evaluation.gates.gate import GateCfg
from rrf.evaluation.protocols.limits import LimitCfg
from rrf.lineage import Lineage, lacking
from rrf.mlflow_store import store
from rrf.policies.control.configs import MemoryCfg
from rrf.registry import loading, promotion, registration, versions
from rrf.registry.lineage_sources import environment_lineage
from rrf.runners.checkpoints.control import load_control_policy, load_interface
from rrf.runners.checkpoints.deployable import deployable_digest
from rrf.runners.checkpoints.deployed_control import DeployedControl
from tests.evaluation.control.control_checkpoints import write_control_checkpoint

PROTOCOL = ControlProtocolCfg(
    name="p",
    seed=1,
    episodes_per_task=2,
    env=GymnasiumEnvCfg(task="Pendulum-v1", num_envs=2),
    max_episode_steps=5,
    success={"return": LimitCfg(min=-1000)},
)
GATE = GateCfg(name="g", protocol=PROTOCOL, overall_lower_bound=0.0, looks=[2])
SEEN = torch.tensor([[1.0, 0.0, 0.5], [0.0, 1.0, -3.0]])


def new_run() -> str:
    client = store.connect()
    return client.create_run(store.experiment_id(client, "train")).info.run_id


def registered(home, checkpoint, lineage) -> str:
    """The version of 'pendulum' that a checkpoint became, with its evaluation and its gate."""
    report = evaluate_control(
        *load_control_policy(checkpoint), PROTOCOL, checkpoint_digest=deployable_digest(checkpoint)
    )
    report.save(home / "checkpoints/evaluation/evaluation.json")
    gate = home / "checkpoints/gate.yaml"
    gate.write_text(yaml.safe_dump(GATE.to_dict()))
    return registration.register(
        checkpoint, "pendulum", new_run(), lineage, home / "checkpoints/evaluation", gate=gate
    )


def ask(policy, rows: torch.Tensor) -> np.ndarray:
    return policy.act(TensorDict({"policy": rows}, [len(rows)])).numpy()


@pytest.fixture
def champion(home, request):
    """A checkpoint made the champion of 'pendulum', recurrent if the test asks for it."""
    lineage = environment_lineage(PROTOCOL.env.to_dict())
    memory = MemoryCfg(hidden_size=4) if getattr(request, "param", False) else None
    checkpoint = write_control_checkpoint(home / "checkpoints/run", "Pendulum-v1", lineage, memory)
    promotion.promote("pendulum", registered(home, checkpoint, lineage))
    return checkpoint


@pytest.fixture
def model(home, champion, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home / '.rrf/mlflow.db'}")
    return mlflow.pyfunc.load_model("models:/pendulum@champion")


def test_the_lineage_of_the_environment_and_the_means_are_tags(home, champion):
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=home, capture_output=True, text=True, check=True
    ).stdout.strip()
    tags = versions.champion("pendulum").tags
    assert tags["lineage.environment.task"] == "Pendulum-v1"
    assert len(tags["lineage.environment.config_digest"]) == 64
    assert "lineage.environment.packages.gymnasium" in tags
    assert tags["lineage.git_revision"] == head
    assert "lineage.dataset" not in tags
    written = json.loads((home / "checkpoints/evaluation/evaluation.json").read_text())
    assert float(tags["evaluation.mean.return"]) == pytest.approx(
        written["metrics"]["return"], rel=1e-5
    )


def test_pyfunc_answers_with_the_actions_of_the_policy(champion, model):
    import mlflow

    policy, _ = load_control_policy(champion)
    answer = model.predict({"policy": SEEN.numpy()})
    assert answer.dtype == np.float32
    np.testing.assert_array_equal(answer, ask(policy, SEEN))
    assert np.ptp(answer) > 1e-3
    assert [spec.name for spec in model.metadata.signature.inputs] == ["policy"]
    with pytest.raises(mlflow.exceptions.MlflowException, match="policy"):
        model.predict({"policy": np.zeros((2, 4), np.float32)})
    one = SEEN[:1].numpy()
    np.testing.assert_array_equal(model.predict({"policy": one}), answer[:1])


@pytest.mark.parametrize("champion", [True], indirect=True)
def test_a_recurrent_model_remembers_until_it_is_reset(champion, model):
    policy, _ = load_control_policy(champion)
    expected = [ask(policy, SEEN) for _ in range(2)]
    inputs = {"policy": SEEN.numpy()}
    answers = [model.predict(inputs) for _ in range(2)]
    for answer, right in zip(answers, expected, strict=True):
        np.testing.assert_array_equal(answer, right)
    assert not np.array_equal(answers[0], answers[1])
    again = model.predict(inputs, params={"reset": True})
    np.testing.assert_array_equal(again, answers[0])
    with pytest.raises(ValueError, match=r"memory of 2 robots, but .* has 1; .* reset=true"):
        model.predict({"policy": SEEN[:1].numpy()})
    model.predict({"policy": SEEN[:1].numpy()}, params={"reset": True})


def test_an_observation_that_is_not_finite_is_refused_and_not_remembered(tmp_path):
    memory = MemoryCfg(hidden_size=4)
    path = write_control_checkpoint(tmp_path / "run", "Pendulum-v1", Lineage(), memory)
    broken, whole = DeployedControl(path), DeployedControl(path)
    seen = SEEN.numpy()
    for deployed in (broken, whole):
        deployed.act({"policy": seen})
    for value in (np.nan, np.inf):
        wrong = seen.copy()
        wrong[1, 2] = value
        with pytest.raises(ValueError, match=f"'policy' of robot 1, dimension 2, is {value}, w"):
            broken.act({"policy": wrong})
    np.testing.assert_array_equal(broken.act({"policy": seen}), whole.act({"policy": seen}))


def test_an_interface_of_another_version_is_named(tmp_path):
    path = write_control_checkpoint(tmp_path / "run", "Pendulum-v1", Lineage())
    data = json.loads((path / "interface.json").read_text())
    for content in (data | {"colour": "red"}, []):
        (path / "interface.json").write_text(json.dumps(content))
        with pytest.raises(ValueError, match=r"interface\.json is not a valid interface"):
            load_interface(path)


def test_a_fetched_policy_is_the_same_one(home, champion):
    loading.fetch("pendulum@champion", home / "fetched")
    assert (home / "fetched/interface.json").is_file()
    assert not (home / "fetched/trainer_state").exists()
    ours, theirs = (load_control_policy(path)[0] for path in (champion, home / "fetched"))
    np.testing.assert_array_equal(ask(ours, SEEN), ask(theirs, SEEN))


def test_a_run_outside_a_commit_is_registered_and_not_promoted(home, monkeypatch):
    whole = environment_lineage(PROTOCOL.env.to_dict())
    lineage = whole.replace(git_revision=None, git_dirty=None)
    checkpoint = write_control_checkpoint(home / "checkpoints/run", "Pendulum-v1", lineage)
    version = registered(home, checkpoint, lineage)
    with pytest.raises(
        ValueError, match=r"lineage lacks git_revision; train it in a workspace with a commit"
    ):
        promotion.promote("pendulum", version)


def test_nothing_gets_around_the_validation_of_its_data_by_naming_an_environment():
    whole = environment_lineage(PROTOCOL.env.to_dict()).facts() | {"git_revision": "ab"}
    assert lacking(whole) == []
    assert lacking(whole | {"dataset": "demo"}) == ["dataset_md5", "validation"]
    assert lacking({"git_revision": "ab"}) == ["dataset_md5", "validation"]
    assert lacking({"environment.task": "T", "environment.config_digest": "1"}) == ["git_revision"]


def test_models_register_takes_the_lineage_that_training_wrote_down(home):
    from rrf.cli.models import lineage_behind

    lineage = environment_lineage(PROTOCOL.env.to_dict())
    checkpoint = write_control_checkpoint(home / "checkpoints/run", "Pendulum-v1", lineage)
    assert lineage_behind(checkpoint) == lineage
