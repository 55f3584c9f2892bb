"""rsl_rl's checkpoints of distillation: written so that rsl_rl goes on, and read."""

import pytest
import torch
from tensordict import TensorDict

from rrf.networks import plain_mlp
from rrf.policies import MemoryCfg
from rrf.policies.control.actor_critic import ControlPolicy
from rrf.runners import OffPolicyRunnerCfg
from rrf.runners.checkpoints import checkpoint, rsl_rl_students
from rrf.runners.checkpoints.control import load_module
from tests.algorithms.distillation.ridge import corridor_teacher, run_cfg, student
from tests.algorithms.off_policy.toy import ALGORITHMS as OFF_POLICY
from tests.envs.toy import CorridorCfg

OBSERVED = [
    TensorDict({"policy": torch.randn(4, 1), "critic": torch.randn(4, 2)}, [4]) for _ in range(5)
]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> str:
    """rsl_rl has no network without hidden layers."""
    folder = tmp_path_factory.mktemp("teacher")
    return corridor_teacher(folder, backbone_cfg=plain_mlp([4], "ELU"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory, teacher) -> str:
    """A checkpoint of a student, after four iterations."""
    cfg = run_cfg("distillation", teacher)
    return cfg.build(tmp_path_factory.mktemp("student")).run()["checkpoint"]


def exported(path, out):
    tensors = checkpoint.load_trainer_state(path).tensors
    rsl_rl_students.write(out, load_module(path), 4, tensors)
    return out


def rsl_rl_distillation():
    """rsl_rl's own algorithm with networks like ours."""
    pytest.importorskip("rsl_rl", reason="rsl_rl is not installed")
    from rsl_rl.algorithms import Distillation
    from rsl_rl.models import MLPModel, RNNModel
    from rsl_rl.storage import RolloutStorage

    groups = {"student": ["policy"], "teacher": ["critic"]}
    gaussian = {"class_name": "GaussianDistribution", "std_type": "log"}
    common = {"activation": "elu", "distribution_cfg": gaussian}
    recurrent = {"rnn_type": "gru", "rnn_hidden_dim": 8, "rnn_num_layers": 1}
    student = RNNModel(
        *(OBSERVED[0], groups, "student", 1, [16]),
        **{**common, "distribution_cfg": dict(gaussian)},
        **recurrent,
        obs_normalization=True,
    )
    teacher = MLPModel(OBSERVED[0], groups, "teacher", 1, [4], **common)
    storage = RolloutStorage("distillation", 4, 5, OBSERVED[0], [1], "cpu")
    return Distillation(student, teacher, storage, gradient_length=5)


def test_rsl_rl_goes_on_with_our_student(trained, teacher, tmp_path):
    theirs = rsl_rl_distillation()
    data = torch.load(exported(trained, tmp_path / "model_4.pt"), weights_only=True)
    assert theirs.load(data, None, strict=True)
    assert data["iter"] == 4
    ours, taught = (
        ControlPolicy(load_module(path).actor) for path in (trained, checkpoint.find(teacher))
    )
    for observations in OBSERVED:
        with torch.no_grad():
            close = torch.testing.assert_close
            close(theirs.student(observations), ours.act(observations), atol=1e-6, rtol=1e-5)
            close(theirs.teacher(observations), taught.act(observations), atol=1e-6, rtol=1e-5)
    # 4 iterations with 2 epochs of 2 gradient steps.
    steps = {float(entry["step"]) for entry in theirs.optimizer.state_dict()["state"].values()}
    assert steps == {16.0}


def test_a_student_of_rsl_rl_becomes_ours(trained, tmp_path):
    theirs = rsl_rl_distillation()
    torch.save(theirs.save() | {"iter": 7, "infos": None}, tmp_path / "model_7.pt")
    assert rsl_rl_students.holds_student(tmp_path / "model_7.pt")
    found = rsl_rl_students.read(tmp_path / "model_7.pt")
    assert (found.iteration, found.generation) == (7, "5")
    cfg = rsl_rl_students.fitted(student(None), found)
    assert cfg.actor_cfg.memory == MemoryCfg(hidden_size=8)
    assert cfg.actor_cfg.backbone_cfg == plain_mlp([16], "ELU")
    policy = cfg.build(load_module(trained).interface)
    checkpoint.fill(policy, rsl_rl_students.weights_of(found), what="model_7.pt")
    acting = policy.eval().deployable()
    for observations in OBSERVED:
        with torch.no_grad():
            expected = theirs.student(observations)
        torch.testing.assert_close(acting.act(observations), expected, atol=1e-6, rtol=1e-5)


def test_a_student_comes_back_as_it_went(trained, tmp_path):
    found = rsl_rl_students.read(exported(trained, tmp_path / "model_4.pt"))
    weights = load_module(trained).state_dict()
    back = rsl_rl_students.weights_of(found)
    assert back.keys() == weights.keys()
    assert all(torch.equal(back[name], weights[name]) for name in weights)


def test_without_a_teacher_of_ppo_there_is_nothing_to_export(trained, tmp_path):
    with pytest.raises(ValueError, match=r"teacher is not in this checkpoint.*run directory"):
        rsl_rl_students.write(tmp_path / "model.pt", load_module(trained), 4, {})
    algorithm, policy = OFF_POLICY["sac"]
    sac = OffPolicyRunnerCfg(
        env=CorridorCfg(num_envs=4), policy=policy, algorithm=algorithm, replay_size=400
    )
    teacher = sac.build(tmp_path / "teacher").save()
    student_of_sac = run_cfg("distillation", str(teacher)).build(tmp_path / "student").save()
    with pytest.raises(ValueError, match=r"teacher is not a Gaussian policy of PPO.*--onnx"):
        exported(student_of_sac, tmp_path / "model.pt")
