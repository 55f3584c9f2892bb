"""Every kind of lerobot's policies goes the whole way: trained on recordings, saved, loaded where
the models in it no longer exist, evaluated, gated, served, and written for lerobot.

Real lerobot, tiny sizes, random weights. tests/policies/vla/lerobot compares each with
lerobot's own code.
"""

import shutil

import numpy as np
import pytest

from rrf.algorithms import BehaviorCloningCfg
from rrf.envs import ENVS
from rrf.evaluation.gates.decision import decide
from rrf.evaluation.gates.gate import GateCfg
from rrf.evaluation.vla.configs import ProtocolCfg
from rrf.evaluation.vla.evaluate import evaluate
from rrf.policies.vla.lerobot.configs import LerobotPolicyCfg
from rrf.policies.vla.lerobot.kinds import KINDS
from rrf.policies.vla.published import lerobot
from rrf.presets import PRESETS
from rrf.runners import AdamWCfg, EMACfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.supervised.runner import build_runner
from rrf.serving.batching import Row
from rrf.serving.model import ServedPolicy
from tests.policies.vla.lerobot.lerobot_cases import CHUNK, OPTIONS, directories
from tests.runners.supervised.conftest import tiny_run_cfg

TASKS = ["reach-red", "reach-blue"]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """The simulator of the tutorial, as a user adds it, and demonstrations in it."""
    with pytest.MonkeyPatch.context() as patch:
        for registry in (ENVS, PRESETS):  # other tests look at all there are
            patch.setattr(registry, "_targets", dict(registry._targets))
        from tests.toy_simulator.demonstrations import demonstrate

        if "toy" not in list(ENVS):  # other tests have imported it, and forgotten its name
            ENVS.register("toy", "tests.toy_simulator.configs:ToyCfg")
        dataset = tmp_path_factory.mktemp("datasets") / "toy"
        demonstrate(dataset, episodes_per_task=4)
        yield dataset


def run_cfg(kind, dataset, models):
    """Four steps of training."""
    policy = LerobotPolicyCfg(kind=kind, options={**OPTIONS[kind], **models}, chunk_length=CHUNK)
    return tiny_run_cfg(
        dataset,
        policy=policy,
        algorithm=BehaviorCloningCfg(augmentation=None),
        optimizer=AdamWCfg(lr=1e-3),
        ema=EMACfg(decay=0.5),
        max_steps=4,
        batch_size=4,
        validation_interval=4,
        save_interval=4,
    )


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[] if k == "act" else [pytest.mark.slow]) for k in KINDS]
)
def test_a_kind_goes_the_whole_way(kind, toy, tmp_path):
    models = directories(kind, tmp_path / "models")
    runner = build_runner(run_cfg(kind, toy, models), tmp_path / "run")
    found = runner.run()
    assert found["metrics"]["validation/total"] > 0
    seen = runner.split.training.batch(np.arange(2)).observation
    trained = runner.deployed.eval().sample(seen, greedy=True).actions
    theirs = lerobot.write(runner.deployed, tmp_path / "trained")
    again, _ = lerobot.read(theirs)  # whose statistics are float32
    np.testing.assert_allclose(again.sample(seen, greedy=True).actions, trained, atol=1e-5)

    shutil.rmtree(tmp_path / "models", ignore_errors=True)
    saved = checkpoint.export(found["checkpoint"], tmp_path / "deployable")
    policy = checkpoint.load_policy(saved)
    np.testing.assert_allclose(policy.sample(seen, greedy=True).actions, trained, atol=1e-6)

    protocol = ProtocolCfg(
        name="toy",
        env="toy",
        tasks=TASKS,
        seed=4242,
        episodes_per_task=1,
        max_episode_steps=8,
        execute_steps=CHUNK,
        action_repeat=1,
        image_size=16,
        cameras=["top"],
    )
    env = ENVS.get("toy")(num_envs=2, chunk_length=CHUNK, max_episode_steps=8).build()
    report = evaluate(policy, env, protocol)
    assert len(report.episodes) == 2
    gate = GateCfg(name="toy", protocol=protocol, overall_lower_bound=0.0, looks=[1])
    assert decide(report, gate).outcome == "pass"  # of nothing: two episodes may fail

    served = ServedPolicy(saved, "tiny")
    inputs = {
        "observation.images.top": seen.images["top"][0],
        "observation.state": seen.state[0],
        "instruction": np.array(seen.instruction[0]),
    }
    (answer,) = served.answer([Row(inputs, None, 0)])
    assert np.array_equal(answer, policy.sample(rows(seen, 1), greedy=True).actions[0])
    exported = lerobot.write(policy, tmp_path / "exported")
    for file in ("config.json", "policy_preprocessor.json", "policy_postprocessor.json"):
        assert (exported / file).read_text() == (theirs / file).read_text()


def rows(seen, count):
    """The first rows of an observation."""
    images = {name: images[:count] for name, images in seen.images.items()}
    return type(seen)(images, seen.state[:count], seen.instruction[:count])
