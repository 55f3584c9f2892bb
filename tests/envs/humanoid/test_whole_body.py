import dataclasses

import mujoco
import numpy as np
import pytest
import torch

from rrf.algorithms.mirrors import whole_body as mirrors_of
from rrf.envs.humanoid import balancer, body, command
from rrf.envs.humanoid.proprioception import COMMAND_NAMES, VELOCITY, Gait, History, moves
from rrf.envs.humanoid.whole_body_commands import (
    ARM_RATE,
    RATES,
    WALKS_FROM,
    Commands,
    limits,
    resting,
)
from rrf.envs.humanoid.whole_body_configs import WholeBodyEnvCfg
from rrf.envs.humanoid.whole_body_rewards import terms
from rrf.evaluation.control.metrics import VelocityEnv

pytest.importorskip("mjlab", reason="the robot's model is in mjlab's wheel")


def build(**changes):
    cfg = WholeBodyEnvCfg(**{"num_envs": 4, "physics": "fast", "num_threads": 0} | changes)
    return cfg.build(seed=3)


@pytest.fixture(scope="module")
def env():
    env = build(first_level=1.0)
    yield env
    env.close()


def test_it_is_observed_as_amo_observes_it(env):
    observed, _ = env.reset()
    assert {name: group.shape[1] for name, group in observed.items()} == {
        "actor": 93 + 15,
        "history": 10 * 93,
        "long_history": 25 * 93,
        "critic": 93 + 15 + 18,
    }
    torch.testing.assert_close(observed["history"][:, -93:], observed["actor"][:, :93])
    torch.testing.assert_close(observed["long_history"][:, -930:], observed["history"])


def test_who_falls_begins_again_and_leaves_his_last_observation(env):
    env.reset()
    fell = 0
    for _ in range(120):
        observed, rewards, dones, extras = env.step(torch.full((4, 15), 4.0))
        assert rewards.isfinite().all()
        assert (rewards >= 0).all()
        fell += int(dones.sum())
        if dones.any():
            assert len(extras["final_obs"]["actor"]) == int(dones.sum())
            assert not extras["time_outs"].any()
            assert not extras["success"][dones].any()
            assert (env.episode_length_buf[dones] == 0).all()
            first = observed["history"][dones].unflatten(1, (10, 93))
            torch.testing.assert_close(first, first[:, :1].expand_as(first))
    assert fell > 3


def test_it_continues_bit_for_bit(env):
    env.reset()
    generator = torch.Generator().manual_seed(0)
    actions = torch.randn(40, 4, 15, generator=generator)
    for action in actions[:20]:
        env.step(action)
    state = env.state()
    seen = [env.step(action)[0]["critic"].clone() for action in actions[20:]]
    other = build(first_level=1.0)
    other.load_state(state)
    again = [other.step(action)[0]["critic"].clone() for action in actions[20:]]
    other.close()
    assert all(torch.equal(a, b) for a, b in zip(seen, again, strict=True))


def test_the_number_of_threads_changes_nothing():
    results = []
    for threads in (0, 2):
        env = build(first_level=1.0, num_threads=threads)
        for _ in range(10):
            observed = env.step(torch.zeros(4, 15))[0]
        results.append(observed["critic"])
        env.close()
    assert torch.equal(*results)


def test_a_state_of_another_number_of_robots_is_refused(env):
    other = build(num_envs=2)
    with pytest.raises(ValueError, match="of 4 environments, but there are 2 here"):
        other.load_state(env.state())
    other.close()


def test_robots_learn_to_stand_before_they_walk_and_then_go_on_walking():
    env = build(num_envs=64, first_level=0.0)
    velocities = slice(8, 11)
    assert not env._commands.goal_n15[:, velocities].any()
    env._end(np.arange(64), np.zeros(64, bool))  # each ended an episode on its feet
    env.reset()
    walk = env._commands.goal_n15[:, velocities].any(1)
    assert 0.5 < walk.mean() < 0.9
    for _ in range(5):
        env._end(np.arange(64), np.ones(64, bool))
    assert env.level == WALKS_FROM
    env.reset()
    assert env._commands.goal_n15[:, velocities].any()
    env.close()


def test_a_balancer_does_what_the_policy_did_in_training():
    """Same states, same command, same policy: same targets, without the training's noise."""
    env = build(randomises=False, first_level=0.1, histories="both")
    weights = torch.randn(108 + 930 + 2325, 15, generator=torch.Generator().manual_seed(1)) * 0.003
    groups = ("actor", "history", "long_history")

    def act(observed):
        rows = [torch.as_tensor(np.asarray(observed[name])) for name in groups]
        return torch.cat(rows, 1) @ weights

    model = body.spec().compile()  # which has wrists, too
    robots = np.arange(4)

    def whole():
        qpos, qvel = np.zeros((4, model.nq)), np.zeros((4, model.nv))
        qpos[:, :7], qvel[:, :6] = env._physics.qpos[:, :7], env._physics.qvel[:, :6]
        qpos[:, body.qpos_addresses(model, body.OBSERVED)] = env._observe.joints(env._physics.qpos)
        speeds = env._observe.velocities(env._physics.qvel)
        qvel[:, body.qvel_addresses(model, body.OBSERVED)] = speeds
        return qpos, qvel

    kept = balancer.PolicyBalancer(lambda o: act(o).numpy(), groups, model, 4)
    kept.reset(robots, *whole())
    wanted = np.zeros((4, 36))
    taken = command.indices(COMMAND_NAMES)
    for _ in range(30):
        observed = env.get_observations()
        before = whole()
        # the training has advanced command and gait already, which a balancer does when it is asked
        kept._gait.phase_n2 = _one_step_back(env._gait)
        kept._command_n15 = env._commands.now_n15.copy()
        wanted[:, taken] = env._commands.now_n15
        wanted[:, -1] = env._heading_n - kept._start_n
        targets = kept.targets(robots, *before, wanted)
        env.step(act(observed))
        np.testing.assert_allclose(targets[:, :15], env._controls_nc[:, :15], atol=1e-5)
    env.close()


def test_arms_approach_what_is_commanded_no_faster_than_in_training():
    model = body.spec().compile()
    kept = balancer.PolicyBalancer(lambda observed: np.zeros((1, 15)), ("actor",), model, 1)
    row, qpos, qvel = np.zeros(1, np.int64), np.zeros((1, model.nq)), np.zeros((1, model.nv))
    qpos[:, 2], qpos[:, 3] = 0.74, 1.0
    kept.reset(row, qpos, qvel)
    wanted = balancer.standing_command(1)
    wanted[:, command.ARMS] = 1.0
    for step in range(1, 40):
        arms = kept.targets(row, qpos, qvel, wanted)[0, 15:]
        np.testing.assert_allclose(arms, min(1.0, step * 0.02 * ARM_RATE))


def _one_step_back(gait: Gait) -> np.ndarray:
    """Phases from which the next step of a moving or standing gait leads to the present ones."""
    stands = (np.abs(gait.phase_n2 - 0.25) < 1e-9).all(1)
    return np.where(stands[:, None], gait.phase_n2, (gait.phase_n2 - 0.02 * 1.3) % 1.0)


def test_commands_stay_in_their_ranges_and_change_slowly():
    commands = Commands(64, np.random.default_rng(0))
    commands.reset(np.arange(64), 1.0)
    low, high = limits()
    seen = []
    for _ in range(300):
        before = commands.now_n15.copy()
        commands.advance(0.02, 1.0)
        assert (np.abs(commands.now_n15 - before) <= RATES * 0.02 + 1e-9).all()
        assert ((commands.now_n15 >= low - 1e-9) & (commands.now_n15 <= high + 1e-9)).all()
        seen.append(commands.now_n15)
    spread = np.ptp(np.concatenate(seen), axis=0)
    assert (spread > 0.6 * (high - low)).all()  # the whole range is asked for
    is_still = (np.abs(commands.goal_n15[:, 8:11]) < 1e-9).all(1)
    assert 0.1 < is_still.mean() < 0.6


def test_held_velocities_stay_after_falls_and_are_those_of_the_body():
    env = build(first_level=1.0, randomises=False, physics="exact")
    assert isinstance(env, VelocityEnv)
    asked = torch.tensor([[0.3, 0.0, 0.0], [0.0, -0.2, 0.0], [0.0, 0.0, 0.5], [0.0, 0.0, 0.0]])
    wanted = np.tile(resting(), (4, 1))
    wanted[:, VELOCITY] = asked
    env.set_command(asked)
    fell = 0
    for _ in range(450):  # longer than a draw is held
        fell += int(env.step(torch.full((4, 15), 4.0))[2].sum())
        np.testing.assert_allclose(env._commands.goal_n15, wanted)
        gone = np.abs(env._commands.now_n15 - wanted)
        assert (gone[:, VELOCITY] <= np.abs(asked.numpy()) + 1e-6).all()
        gone[:, VELOCITY] = 0.0
        assert not gone.any()  # upright, with still arms
    assert fell
    env.reset()
    qpos = env._physics.qpos
    env.step(torch.zeros(4, 15))
    before = qpos.copy()
    env.step(torch.zeros(4, 15))
    way = (qpos[:, :3] - before[:, :3]) / env.interface.step_dt
    turn = np.zeros((4, 9))
    for i in range(4):
        mujoco.mju_quat2Mat(turn[i], qpos[i, 3:7])
    inside = np.einsum("nji,nj->ni", turn.reshape(4, 3, 3), way)[:, :2]
    np.testing.assert_allclose(env.body_velocity()[:, :2], inside, atol=0.05)
    assert (env.power() >= 0).all()
    env.set_command(None)
    for _ in range(450):
        env.step(torch.zeros(4, 15))
    assert (env._commands.goal_n15 != wanted).any(axis=1).all()
    env.close()


def test_nobody_is_pushed_where_pushes_are_off(env):
    calm = build(first_level=1.0, pushes=False)
    for built, is_pushed in ((env, True), (calm, False)):
        built._push_left_s[:] = 0.0
        before = built._physics.qvel.copy()
        built._push_some()
        assert (built._physics.qvel != before).any() == is_pushed
    calm.close()


def test_feet_step_in_turn_and_stop_on_the_ground():
    gait = Gait(1)
    sines = []
    for is_asked in [True] * 100 + [False] * 60:
        gait.advance(0.02, np.array([is_asked]))
        sines.append(gait.sine_n2[0].copy())
    walking, standing = np.array(sines[5:100]), np.array(sines[-1])
    assert ((walking < 0).sum(1) <= 1).all()
    assert (walking < 0).any(0).all()
    assert (standing > 0.99).all()


@pytest.mark.parametrize(
    ("change", "steps"),
    [
        ({}, False),
        ({"speed": (0.3, 0.0, 0.0)}, True),
        ({"speed": (0.0, 0.0, 0.3)}, True),
        ({"heading": -0.3}, True),
        ({"pitch": 0.2}, True),
        ({"pitch": 0.1}, False),
        ({"pitch": 0.2, "bow": 0.75}, False),  # more than the waist can: the pelvis leans
        ({"pitch": 0.0, "bow": 0.75}, True),
    ],
)
def test_who_goes_or_turns_or_tips_over_steps(change, steps):
    asked, qpos = np.zeros((1, 15)), np.zeros((1, 36))
    asked[:, -7:-4], asked[:, -3] = change.get("speed", 0), change.get("bow", 0)
    half = change.get("pitch", 0) / 2
    qpos[:, 3], qpos[:, 5] = np.cos(half), np.sin(half)
    assert moves(asked, np.array([change.get("heading", 0.0)]), qpos) == [steps]


def test_steps_that_nobody_asked_for_cost(env):
    env.reset()
    env.step(torch.zeros(env.num_envs, env.num_actions))
    standing, walking = np.zeros((2, len(env._commands.now_n15), 15))
    walking[:, -7] = 0.5
    action = np.zeros((len(standing), 15))
    costs = []
    for asked, sine in ((standing, 1.0), (standing, 0.5), (walking, 0.5)):
        gait = np.full((len(asked), 2), sine)
        found = terms(env._motion, asked, action, gait, action, action)
        costs.append(found["unasked_steps"].mean())
    assert costs[0] == 0 == costs[2]
    assert costs[1] < -1


def test_who_rocks_while_nothing_asks_it_to_step_sways(env):
    env.reset()
    measured = env.step(torch.zeros(env.num_envs, env.num_actions))[-1]["measured"]
    assert set(measured) == set(env.cfg.measures)
    motion, action = env._motion, np.zeros((env.num_envs, 15))
    motion.spin_n3[:] = 0.3, 0.4, 9.0
    env._commands.now_n15[:, -7:-4] = 0
    env._commands.now_n15[0, -7] = 0.5
    motion.heading_error_n[:] = 0
    motion.heading_error_n[1] = 0.3
    sways = env._judge(motion, action).measured["unasked_sway"]
    assert sways == pytest.approx([0.0, 0.0, *[0.5] * (env.num_envs - 2)])


def test_the_history_begins_with_the_first_frame():
    history = History(2)
    history.begin(np.array([1]), np.full((1, 93), 5.0, np.float32))
    history.push(np.full((1, 93), 6.0, np.float32), np.array([1]))
    assert history.frames[1, :, 0].tolist() == [5.0] * 24 + [6.0]
    assert not history.frames[0].any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"robot": {}}, "does not take the command"),
        ({"step_dt": 0.01}, r"acts every 0\.01 s, expected 0\.02"),
        ({"observation_dims": {"actor": 100}}, "sees 100 numbers, expected 108"),
        ({"num_actions": 12}, "expected left_hip_pitch_joint"),
    ],
)
def test_a_policy_of_another_interface_is_refused_by_what_differs(env, change, message):
    balancer.check_interface(env.interface)
    with pytest.raises(ValueError, match=message):
        balancer.check_interface(dataclasses.replace(env.interface, **change))


def test_a_command_with_another_signal_is_named(env):
    names = [*COMMAND_NAMES[:-1], "stride"]
    other = dataclasses.replace(env.interface, robot=env.interface.robot | {"command_names": names})
    with pytest.raises(ValueError, match="'height' differs"):
        balancer.check_interface(other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"histories": "long"}, "histories is 'long', allowed: none, short, both"),
        ({"first_level": 2.0}, "first_level is 2.0, allowed: 0 to 1"),
        ({"episode_s": 0.1}, "episode_s is 0.1, allowed: 1 or more"),
        ({"num_threads": -1}, "num_threads"),
    ],
)
def test_bad_configs_say_what_is_allowed(change, message):
    with pytest.raises(ValueError, match=message):
        WholeBodyEnvCfg(**change)


def test_what_is_shown_is_the_whole_task():
    assert WholeBodyEnvCfg(first_level=0.0, num_envs=3).drawable() == WholeBodyEnvCfg(
        first_level=1.0, num_envs=3
    )


def test_it_can_be_drawn(env):
    data = env.mj_datas([1])[0]
    np.testing.assert_allclose(data.qpos[:7], env._physics.qpos[1, :7])
    np.testing.assert_allclose(data.qvel[:6], env._physics.qvel[1, :6])
    assert env.command.shape == (4, 3)  # in the caption, beside the velocity
    assert env.mj_model.njnt == 30
    assert body.qpos_addresses(env.mj_model, body.OBSERVED).shape == (23,)


def test_a_mirrored_robot_sees_the_mirror_image():
    """What the second robot sees after mirrored actions is the mirror image of the first one's."""
    env = build(num_envs=2, physics="exact", randomises=False, first_level=0.0)
    mirrors = mirrors_of(env.interface)
    joints = mirrors["actions"].indices.numpy(), mirrors["actions"].signs.numpy()
    arms = slice(len(body.DRIVEN), None)
    q, v = env._physics.qpos, env._physics.qvel
    at, speeds = env._observe.addresses, body.qvel_addresses(env._physics.model, body.OBSERVED)
    flip = np.array([1.0, -1.0, -1.0, 1.0] * 2)
    swap = np.array([4, 5, 6, 7, 0, 1, 2, 3])
    generator = torch.Generator().manual_seed(0)
    env._commands.goal_n15[0, 8:14] = [0.3, 0.2, -0.3, 0.1, 0.1, 0.2]
    env._gait.phase_n2[0] = 0.4, 0.9  # the first step of all is always the right foot's
    for _ in range(6):  # the second robot is put into the mirror image in each step
        for values, addresses in ((q, at), (v, speeds)):
            driven, rest = values[0, addresses][: arms.start], values[0, addresses][arms]
            values[1, addresses[: arms.start]] = driven[joints[0]] * joints[1]
            values[1, addresses[arms]] = rest[swap] * flip
        q[1, :7] = q[0, :7] * [1, -1, 1, 1, -1, 1, -1]
        v[1, :6] = v[0, :6] * [1, -1, 1, -1, 1, -1]
        env._physics.warmstart_nv[:] = 0.0
        env._heading_n[1] = -env._heading_n[0]
        for name in ("goal_n15", "now_n15"):
            command = getattr(env._commands, name)
            command[1] = command[0] * [*8 * [1], 1, -1, -1, -1, 1, -1, 1]
            command[1, :8] = command[0, :8][swap] * flip
        env._commands.left_s_n[:] = env._commands.arm_left_s_n[:] = 9.0
        env._gait.phase_n2[1] = env._gait.phase_n2[0, ::-1]
        env._action_na[1] = env._action_na[0][joints[0]] * joints[1]
        env._controls_nc[1, : arms.start] = env._controls_nc[0, : arms.start][joints[0]] * joints[1]
        env._controls_nc[1, arms] = env._controls_nc[0, arms][swap] * flip
        action = torch.randn(1, 15, generator=generator)
        seen = env.step(torch.cat([action, mirrors["actions"](action)]))[0]
        gap = (mirrors["critic"](seen["critic"][:1]) - seen["critic"][1:]).abs()
        assert gap.max() < 0.05
    env.close()
