import importlib.util
from pathlib import Path

import pytest
import torch

from rrf.algorithms import PPOCfg, SAPGCfg, SymmetryCfg
from rrf.algorithms.mirrors import joints, left_right, pendulum
from rrf.config import trust
from rrf.envs.control_env import Interface
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.policies import ActorCriticPackCfg, CategoricalActorCfg
from tests.algorithms.on_policy import linear, populations
from tests.envs.toy import CorridorCfg

trust(__name__)  # as --import does

GO1 = [
    f"{leg}_{part}_joint" for leg in ("FR", "FL", "RR", "RL") for part in ("hip", "thigh", "calf")
]
TERMS = [
    *("base_lin_vel", "base_ang_vel", "projected_gravity", "joint_pos", "joint_vel", "actions"),
    "command",
]
FLAT = Interface(
    {"actor": 48, "critic": 72},
    12,
    task="Mjlab-Velocity-Flat-Unitree-Go1",
    robot={"joint_names": GO1, "observation_names": TERMS},
)


def flipped(interface):
    """A mirror for tests: everything changes its sign."""
    return {name: torch.neg for name in (*interface.observation_dims, "actions")}


def other_groups(interface):
    return {"camera": torch.neg, "actions": torch.neg}


def test_joints_of_a_quadruped_by_hand():
    values = torch.arange(1.0, 13.0)  # FR 1 2 3, FL 4 5 6, RR 7 8 9, RL 10 11 12
    assert joints(GO1)(values).tolist() == [-4, 5, 6, -1, 2, 3, -10, 11, 12, -7, 8, 9]


@pytest.mark.parametrize(("robot", "model"), [("unitree_go1", "go1"), ("unitree_g1", "g1")])
def test_signs_follow_from_the_axes_of_the_robots_model(robot, model):
    mujoco = pytest.importorskip("mujoco")
    mjlab = importlib.util.find_spec("mjlab")
    if mjlab is None:
        pytest.skip("mjlab is not installed")
    path = Path(mjlab.origin).parent / f"asset_zoo/robots/{robot}/xmls/{model}.xml"
    built = mujoco.MjModel.from_xml_path(str(path))
    hinges = [built.joint(i) for i in range(built.njnt) if built.joint(i).type[0] != 0]
    mirror = joints([joint.name for joint in hinges])
    for joint, partner, sign in zip(hinges, mirror.indices.tolist(), mirror.signs, strict=True):
        x, y, z = hinges[partner].axis
        # In the mirror the axis of a turn (axial) becomes (-x, y, -z).
        expected = torch.tensor([-x, y, -z]) * sign
        torch.testing.assert_close(torch.tensor(joint.axis), expected.double())


def test_every_term_of_an_observation_by_hand():
    mirrors = left_right(FLAT)
    x = torch.arange(1.0, 73.0)
    actor = mirrors["actor"](x[:48])
    assert actor[:9].tolist() == [1, -2, 3, -4, 5, -6, 7, -8, 9]
    assert actor[9:21].tolist() == [-13, 14, 15, -10, 11, 12, -19, 20, 21, -16, 17, 18]
    assert actor[45:48].tolist() == [46, -47, -48]
    feet = mirrors["critic"](x)[48:]
    assert feet[:4].tolist() == [50, 49, 52, 51]
    assert feet[12:18].tolist() == [64, -65, 66, 61, -62, 63]


def test_a_scan_of_the_ground_is_turned_over():
    rough = Interface(
        {"actor": 235},
        12,
        robot={"joint_names": GO1, "observation_names": [*TERMS, "height_scan"]},
    )
    x = torch.zeros(235)
    x[48] = 1.0  # the ray furthest back on the right; 17 along, 11 across
    scan = left_right(rough)["actor"](x)[48:].view(11, 17)
    assert scan[10, 0] == 1.0
    assert scan.sum() == 1.0


@pytest.mark.parametrize("group", ["actor", "critic", "actions"])
def test_the_mirror_image_of_a_mirror_image_is_the_original(group):
    mirror = left_right(FLAT)[group]
    x = torch.randn(5, len(mirror))
    torch.testing.assert_close(mirror(mirror(x)), x)


def learner(settings, width=2, **runtime):
    cfg = PPOCfg(symmetry_cfg=SymmetryCfg(mirrors=f"{__name__}:flipped", **settings))
    policy = linear.policy([[1.0] * width])
    return linear.algorithm(cfg, policy, **runtime)


def test_samples_are_doubled():
    algorithm = learner({}, width=1, num_envs=2, num_steps=3)
    material = algorithm.returns(linear.fill(algorithm, CorridorCfg(num_envs=2).build())[-1])
    assert len(material) == 12
    own, image = slice(0, 6), slice(6, 12)
    for name in ("actor_obs", "critic_obs", "next_actor_obs", "actions"):
        values = getattr(material, name)
        torch.testing.assert_close(values[image], -values[own])
    for name in ("log_prob", "returns", "values", "advantages", "goes_on"):
        values = getattr(material, name)
        assert torch.equal(values[image], values[own])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_divergence_is_measured_from_what_the_policy_did_in_the_mirror(precision):
    algorithm = learner({}, width=1, num_envs=2, num_steps=3)
    algorithm.cfg = algorithm.cfg.replace(precision=precision)
    with torch.no_grad():
        algorithm.policy.actor.backbone.layers[0].bias.fill_(5.0)  # far from symmetric
    material = algorithm.returns(linear.fill(algorithm, CorridorCfg(num_envs=2).build())[-1])
    batch = material.rows(torch.arange(12))
    _, metrics = algorithm.actor_loss(batch)
    assert metrics["policy/kl"].item() == pytest.approx(0.0, abs=1e-6)


def test_mirror_loss_by_hand():
    # mu(s) = s_0 + s_1 + 2; in the mirror -s: -3 + 2 = -1, where -(3 + 2) = -5 is wanted: 16.
    algorithm = learner({"use_data_augmentation": False, "mirror_loss_coef": 0.5})
    with torch.no_grad():
        algorithm.policy.actor.backbone.layers[0].bias.fill_(2.0)
    batch = linear.batch_of(linear.samples([[1.0, 2.0]], [[0.0, 0.0]], [True]))
    distribution = linear.distribution(algorithm.policy, batch)
    loss, numbers = algorithm.extensions["symmetry"].penalty(batch, distribution)
    assert numbers["loss/mirror"].item() == pytest.approx(16.0)
    assert loss.item() == pytest.approx(8.0)


def test_learning_with_augmentation_makes_a_policy_symmetric():
    torch.manual_seed(0)
    algorithm = learner({"mirror_loss_coef": 5.0}, width=1, num_envs=4, num_steps=8)
    actor = algorithm.policy.actor
    with torch.no_grad():
        actor.backbone.layers[0].bias.fill_(1.0)
    env = CorridorCfg(num_envs=4).build()
    for _ in range(10):
        metrics = algorithm.update(linear.fill(algorithm, env)[-1])
    assert metrics["loss/mirror"] < 0.5  # 4 at the start


def test_without_foot_heights_the_critic_has_a_mirror_image_too():
    whole = left_right(FLAT)["critic"]
    without = Interface({"actor": 48, "critic": 68}, 12, robot=FLAT.robot)
    x = torch.randn(3, 72)
    kept = [*range(48), *range(52, 72)]
    torch.testing.assert_close(left_right(without)["critic"](x[:, kept]), whole(x)[:, kept])


def test_a_pendulum_falls_to_the_other_side_in_the_mirror():
    env = GymnasiumEnvCfg(task="Pendulum-v1", num_envs=2).build(seed=0)
    mirrors = pendulum(env.interface)
    other = GymnasiumEnvCfg(task="Pendulum-v1", num_envs=2).build(seed=0)
    for one in other.gym_envs:
        one.unwrapped.state = -one.unwrapped.state
    actions = torch.tensor([[0.7], [-0.3]])
    for _ in range(5):
        found, rewards, _, _ = env.step(actions)
        seen, same, _, _ = other.step(mirrors["actions"](actions))
    torch.testing.assert_close(mirrors["policy"](found["policy"]), seen["policy"])
    torch.testing.assert_close(rewards, same)


def test_members_of_a_population_keep_their_numbers():
    cfg = SAPGCfg(symmetry_cfg=SymmetryCfg(mirrors=f"{__name__}:flipped"))
    algorithm = populations.learner(cfg, populations.population(width=1), num_envs=6, num_steps=2)
    material = algorithm.returns(linear.fill(algorithm, CorridorCfg(num_envs=6).build())[-1])
    assert len(material) == 2 * (12 + 4)
    assert torch.equal(material.actor_obs[16:, -1], material.actor_obs[:16, -1])
    assert torch.equal(material.extra["source"][16:], material.extra["source"][:16])


@pytest.mark.parametrize(
    ("robot", "dims", "message"),
    [
        ({}, {"actor": 48}, "does not provide joint_names and observation_names"),
        (FLAT.robot | {"joint_names": GO1[:3]}, {"actor": 21}, "no partner 'FL_hip_joint'"),
        (FLAT.robot | {"joint_names": ["gripper"]}, {"actor": 15}, "'gripper' does not show"),
        (FLAT.robot | {"observation_names": ["smell"]}, {"actor": 1}, "mirror .* 'smell'; known"),
        (FLAT.robot, {"actor": 50}, "'actor' has 50 numbers"),
        (
            FLAT.robot | {"default_joint_pos": [0.1] * 12},
            {"actor": 48},
            "not symmetric at .*FR_hip",
        ),
    ],
)
def test_a_robot_without_known_mirror_is_refused(robot, dims, message):
    with pytest.raises(ValueError, match=message):
        left_right(Interface(dims, 12, robot=robot))


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match=r"other_groups returns no mirror for 'policy'"):
        linear.algorithm(symmetric("other_groups"), linear.policy([[1.0]]))
    with pytest.raises(ValueError, match="single steps"):
        linear.algorithm(symmetric("flipped"), linear.recurrent_policy(), num_envs=8)
    chooses = ActorCriticPackCfg(actor_cfg=CategoricalActorCfg())
    with pytest.raises(ValueError, match="CategoricalActor has discrete actions"):
        linear.algorithm(
            PPOCfg(symmetry_cfg=SymmetryCfg(mirrors=f"{__name__}:flipped", mirror_loss_coef=1.0)),
            chooses.build(Interface({"policy": 1}, 1, num_choices=2)),
        )
    with pytest.raises(ValueError, match="expected module:attr"):
        SymmetryCfg(mirrors="flipped")
    with pytest.raises(ValueError, match="symmetry has no effect"):
        SymmetryCfg(use_data_augmentation=False)


def symmetric(mirrors):
    return PPOCfg(symmetry_cfg=SymmetryCfg(mirrors=f"{__name__}:{mirrors}"))
