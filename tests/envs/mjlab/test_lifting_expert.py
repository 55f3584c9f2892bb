"""The scripted expert of mjlab's lifting task, and students of states and of images."""

import pytest
import torch

pytest.importorskip("mjlab")

from rrf.algorithms import DistillationCfg
from rrf.envs.mjlab.lifting_expert import LiftingExpert
from rrf.networks import plain_mlp
from rrf.policies import ActorCriticPackCfg, ImageActorCfg, StateIndStdActorCfg, StudentCfg
from rrf.presets import resolve
from rrf.runners import DistillationRunnerCfg, OnPolicyRunnerCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.deployable import load_lineage
from tests.envs.mjlab.mjlab_tasks import CARTPOLE, build

LIFT, DEPTH = "Mjlab-Lift-Cube-Yam", "Mjlab-Lift-Cube-Yam-Depth"
EXPERT = "rrf.envs.mjlab.lifting_expert:LiftingExpert"
SMALL = plain_mlp([16], "ELU")


def test_the_expert_brings_every_cube_to_its_goal():
    env = build(LIFT, num_envs=16)
    try:
        expert, ended = LiftingExpert(env), torch.zeros(16, dtype=torch.bool)
        assert env.goal_distance().min() > 0.15
        for _ in range(200):
            _, _, dones, _ = env.step(expert(env.get_observations()))
            ended |= dones
        assert not ended.any(), "the gripper never hit the table"
        assert env.goal_distance().max() < 0.02
    finally:
        env.close()


def test_a_task_that_the_expert_does_not_know_is_refused():
    env = build(CARTPOLE, num_envs=1)
    with pytest.raises(ValueError, match=r"reads the terms joint_pos, .* use Mjlab-Lift-Cube-Yam"):
        LiftingExpert(env)
    env.close()


def test_environments_without_a_goal_have_no_distance():
    env = build(CARTPOLE, num_envs=1)
    assert env.goal_distance() is None
    env.close()


# ---------------------------------------------------------------------- students


def losses_of(cfg: DistillationRunnerCfg, folder) -> list[float]:
    losses = []
    cfg.build(folder).run(
        on_progress=lambda progress: losses.append(progress.metrics["loss/behavior"])
    )
    return losses


def small(preset: str, **fields) -> DistillationRunnerCfg:
    cfg = resolve(preset)
    assert isinstance(cfg, DistillationRunnerCfg)
    return cfg.replace(
        env=cfg.env.replace(num_envs=8),
        algorithm=DistillationCfg(num_learning_epochs=4, gradient_length=5, learning_rate=1e-2),
        num_steps_per_env=10,
        max_iterations=8,
        **fields,
    )


def test_an_arm_that_has_imitated_the_expert_goes_on_with_ppo(tmp_path):
    actor = StateIndStdActorCfg(backbone_cfg=SMALL)
    cfg = small("yam-lift-cube-imitation", policy=StudentCfg(actor_cfg=actor))
    losses = losses_of(cfg, tmp_path / "student")
    assert losses[-1] < 0.8 * losses[0]
    assert not load_lineage(checkpoint.find(tmp_path / "student")).teacher_checkpoint
    ppo = OnPolicyRunnerCfg(
        env=cfg.env,
        policy=ActorCriticPackCfg(actor_cfg=actor),
        num_steps_per_env=4,
        max_iterations=1,
        init_from=str(tmp_path / "student"),
    )
    runner = ppo.build(tmp_path / "ppo")
    weights = checkpoint.read_weights(checkpoint.find(tmp_path / "student"))
    begun = runner.policy.state_dict()
    assert all(torch.equal(begun[name], value) for name, value in weights.items())
    assert any(name.startswith("critic.") for name in begun.keys() - weights.keys())
    runner.run()


def test_an_expert_that_nobody_named_is_not_imported(tmp_path):
    cfg = small("yam-lift-cube-imitation", teacher="os:system")
    with pytest.raises(ValueError, match=r"teacher is 'os:system', .* add --import os"):
        cfg.build(tmp_path)
    with pytest.raises(ValueError, match=r"the script .* knows; set teacher_groups=\{\}"):
        small("yam-lift-cube-depth", teacher=EXPERT).build(tmp_path)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> str:
    cfg = OnPolicyRunnerCfg(
        env=resolve("yam-lift-cube-ppo").env.replace(num_envs=4),
        policy=ActorCriticPackCfg(actor_cfg=StateIndStdActorCfg(backbone_cfg=SMALL)),
        num_steps_per_env=8,
        max_iterations=1,
    )
    run = tmp_path_factory.mktemp("teacher")
    cfg.build(run).run()
    return str(run)


def seeing(teacher: str, **fields) -> DistillationRunnerCfg:
    actor = ImageActorCfg(
        observation_groups=["actor", "camera"],
        images={"camera": [1, 32, 32]},
        backbone_cfg=SMALL,
    )
    policy = StudentCfg(actor_cfg=actor)
    return small("yam-lift-cube-depth", teacher=teacher, policy=policy, **fields)


@pytest.mark.parametrize(
    "network", [pytest.param("mjlab's", marks=pytest.mark.slow), "the preset's"]
)
def test_a_student_of_images_learns_from_a_teacher_of_states(tmp_path, teacher, network):
    as_preset = small("yam-lift-cube-depth", teacher=teacher)
    losses = losses_of(as_preset if network == "the preset's" else seeing(teacher), tmp_path)
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({}, "reads 29 numbers of observation group 'actor', but Mjlab-Lift-Cube-Yam-Depth has 26"),
        ({"actor": "camera"}, "knows the terms joint_pos, .*'camera' of .* has camera_d405_depth"),
        ({"policy": "critic"}, "teacher_groups names 'policy', but the teacher .* reads actor"),
    ],
)
def test_a_teacher_that_would_read_other_numbers_is_refused(tmp_path, teacher, groups, message):
    with pytest.raises(ValueError, match=message):
        seeing(teacher, teacher_groups=groups).build(tmp_path)
