"""The G1 at its table, carried by a stand-in for its whole-body policy."""

import mujoco
import numpy as np
import pytest

from rrf.envs.humanoid import command, experts, hands, kinematics, scene, success, tasks
from rrf.envs.humanoid.configs import HumanoidCfg
from rrf.envs.vec_env import ExpertVecEnv, InitialState

pytest.importorskip("mjlab", reason="the robot's model is in mjlab's wheel")

from rrf.envs.humanoid import body
from tests.envs.humanoid.floating import FloatingCfg

ONE_OF_EACH = (
    "walk-to-table",
    "touch-red-cube-left",
    "push-green-cube-left",
    "push-blue-cube-forward",
    "pick-yellow-cylinder",
    "place-red-cube-blue",
)


@pytest.fixture(scope="module")
def env():
    built = FloatingCfg(num_envs=2, chunk_length=1, cameras=[], objects=True).build()
    yield built
    built.close()


def played(env, state: InitialState, slot: int = 0) -> tuple[np.ndarray, bool]:
    """The states that the expert visits, and whether it solves the task."""
    seen = [env.reset([state], [slot]).state]
    while True:
        step = env.step(env.expert_action(slot)[None, None], [slot])
        seen.append(step.observation.state)
        if step.success[0] or step.truncated[0]:
            return np.concatenate(seen), bool(step.success[0])


def test_hands_weigh_what_unitrees_do_and_have_its_joints():
    bare, robot = body.spec(), body.spec()
    hands.attach(robot)
    without, model = bare.compile(), robot.compile()
    # a hand with its wrist link is 0.780 kg, mjlab's wrist with its rubber hand 0.254576 kg
    one = 0.457415 + 0.0862366 + 3 * 0.0588507 + 3 * 0.0203063
    gained = model.body_mass.sum() - without.body_mass.sum()
    assert gained == pytest.approx(2 * (one - 0.254576), abs=1e-6)
    assert model.njnt - without.njnt == model.nu - without.nu == 14
    for name, low, high in zip(command.HAND_JOINTS, command.LOW, command.HIGH, strict=False):
        np.testing.assert_allclose(model.joint(name).range, [low, high], atol=1e-6)
        assert model.actuator(name).trnid[0] == model.joint(name).id


def test_the_right_hand_is_the_mirror_image_of_the_left_one():
    robot = body.spec()
    hands.attach(robot)
    model = robot.compile()
    data = mujoco.MjData(model)
    data.qpos[body.qpos_addresses(model, command.HAND_JOINTS)] = 0.3 * np.array(
        [1, 1, 1, -1, -1, -1, -1, 1, -1, -1, 1, 1, 1, 1]
    )
    mujoco.mj_forward(model, data)
    for finger in ("thumb_2", "middle_1", "index_1"):
        left, right = (data.body(f"{side}_hand_{finger}_link") for side in command.SIDES)
        np.testing.assert_allclose(left.xipos * (1, -1, 1), right.xipos, atol=2e-4)


@pytest.mark.slow
def test_hands_stay_finite_under_ten_seconds_of_random_targets():
    robot = body.spec()
    hands.attach(robot)
    robot.body("pelvis").pos = [0, 0, 2]
    robot.delete(robot.joint("floating_base_joint"))
    model = robot.compile()
    data, random = mujoco.MjData(model), np.random.default_rng(3)
    motors = body.actuator_ids(model, command.HAND_JOINTS)
    for _ in range(100):
        data.ctrl[motors] = random.uniform(command.LOW[command.HANDS], command.HIGH[command.HANDS])
        mujoco.mj_step(model, data, 20)
        assert np.abs(data.qvel).max() < 60
    assert not data.warning.number.any()


def test_instructions_name_verb_colour_shape_and_hand():
    assert len(tasks.TASKS) == 73
    texts = [task.instruction for task in tasks.TASKS.values()]
    assert len(set(texts)) == 73
    assert tasks.TASKS["touch-red-cube-left"].instruction == "touch the red cube with the left hand"
    assert tasks.TASKS["push-blue-cube-forward"].instruction == "push the blue cube forward"
    assert tasks.TASKS["place-red-cube-blue"].instruction == "place the red cube on the blue plate"


def test_layouts_are_drawn_from_task_seed_and_index_and_things_are_apart():
    for name in ONE_OF_EACH:
        task = tasks.TASKS[name]
        drawn = [
            scene.layout(task, InitialState(name, seed, i)) for seed in (1, 2) for i in range(8)
        ]
        assert scene.layout(task, InitialState(name, 1, 0)) == drawn[0]
        assert len({str(each) for each in drawn}) == 16
        for each in drawn:
            places = [place[:2] for place in (*each.objects.values(), *each.plates.values())]
            gaps = [
                np.hypot(a - c, b - d) for a, b in places for c, d in places if (a, b) != (c, d)
            ]
            assert min(gaps) >= 0.14
            assert not task.object or task.object in each.objects


def test_hands_begin_8_cm_or_more_from_all_things():
    world = scene.World()
    world.model.geom_margin[list(world._geoms.values())] = 0.08  # closer than that is a contact
    data, hands_ = mujoco.MjData(world.model), world._hands["left"] | world._hands["right"]
    for name, task in tasks.TASKS.items():
        for index in range(2):
            world.begin(data, scene.layout(task, InitialState(name, 3, index)))
            bodies = {geom for pair in data.contact.geom.tolist() for geom in pair}
            assert not bodies & hands_, (name, index)


def test_a_robot_that_holds_still_stays_as_it_began(env):
    world, dofs = env.world, env.world.joints
    for slot, name in enumerate(("touch-red-cube-left", "push-blue-cube-right")):
        env.reset([InitialState(name, 2, 1)], [slot])
        data = env.data(slot)
        np.testing.assert_allclose(
            data.qpos[dofs[15:29]], [*scene.READY["left"], *scene.READY["right"]], atol=0.01
        )
        before = {side: data.site(f"{side}_grasp").xpos.copy() for side in command.SIDES}
        for _ in range(10):
            env.step(world.resting[None, None], [slot])
        for side in command.SIDES:
            np.testing.assert_allclose(data.site(f"{side}_grasp").xpos, before[side], atol=2e-3)


@pytest.mark.slow
def test_a_robot_that_holds_still_solves_nothing(env):
    for name, task in tasks.TASKS.items():
        for index in range(2):
            env.reset([InitialState(name, 11, index)], [0])
            episode = env._episodes[0]
            assert not success.is_met(task, env.world, episode.data, episode.start), name
            for _ in range(5):
                step = env.step(env.world.resting[None, None], [0])
                assert not step.success.any(), name


def test_an_arm_reaches_a_place_on_the_table():
    world = scene.World()
    data = mujoco.MjData(world.model)
    world.begin(data, scene.layout(tasks.TASKS["pick-red-cube"], InitialState("", 1, 0)))
    down = np.array([0.0, 0.0, -1.0])
    for side, sign in (("left", 1), ("right", -1)):
        arm = kinematics.Arm(world.model, side)
        turn = kinematics.facing(side, np.array([1.0, 0.0, -0.3]), down)
        goal = data.qpos[:3] + np.array([0.3, 0.18 * sign, 0.1])
        angles, off = arm.solve(data, goal, turn)
        assert off < 0.004
        data.qpos[arm.qpos] = angles
        mujoco.mj_forward(world.model, data)
        np.testing.assert_allclose(arm.place(data), goal, atol=0.004)


@pytest.mark.slow
def test_experts_solve_a_task_of_each_verb(env):
    assert isinstance(env, ExpertVecEnv)
    for name in ONE_OF_EACH:
        assert sum(played(env, InitialState(name, 7, i))[1] for i in range(4)) >= 3, name


def test_an_expert_leans_as_far_as_its_arm_is_too_short(env):
    env.reset([InitialState("pick-red-cube", 7, 1)], [0])
    env.data(0).joint("red_cube").qpos[0] = 0.5
    leans, step = [], None
    while step is None or not (step.success[0] or step.truncated[0]):
        action = env.expert_action(0)
        leans.append(action[command.NAMES.index("torso_pitch")])
        step = env.step(action[None, None], [0])
    assert step.success[0]
    assert leans[0] == pytest.approx(0.2)
    assert 0.25 < leans[-1] <= 0.6


def test_an_expert_goes_on_with_what_somebody_else_has_in_hand(env):
    """As it must, to correct a policy."""
    env.reset([InitialState("place-red-cube-blue", 7, 1)], [0])
    episode, step = env._episodes[0], None
    env.step(env.expert_action(0)[None, None], [0])
    while not episode.expert._is_off_table(env.data(0)):
        env.step(env.expert_action(0)[None, None], [0])
    first = episode.expert
    episode.expert = type(first)(env.world, episode.task, episode.start, first._dt)
    before = env.world.place(env.data(0), "red_cube")[2]
    env.step(env.expert_action(0)[None, None], [0])
    assert episode.expert._phase == "lift"
    assert np.abs(env.world.place(env.data(0), "red_cube")[2] - before) < 0.05
    while step is None or not (step.success[0] or step.truncated[0]):
        step = env.step(env.expert_action(0)[None, None], [0])
        assert episode.expert._phase != "begin"
    assert step.success[0]


def test_an_expert_lets_go_of_what_somebody_else_holds_over_the_plate(env):
    """A policy that carried it lower than the expert would, and waits there with its hand closed:
    told to go back and lift, it would never learn to open."""
    env.reset([InitialState("place-red-cube-blue", 7, 1)], [0])
    env.step(env.expert_action(0)[None, None], [0])
    expert = env._episodes[0].expert
    while expert._phase != "lower":
        env.step(env.expert_action(0)[None, None], [0])
    expert._go("lift")  # what it believed while the policy carried
    closed = env.expert_action(0)
    for _ in range(40):
        env.step(closed[None, None], [0])
        told = env.expert_action(0)
    is_open = hands.pose(expert.side, experts._OPEN)
    fingers = [command.NAMES.index(name) for name in is_open]
    np.testing.assert_allclose(told[fingers], list(is_open.values()))
    assert np.abs(told[fingers] - closed[fingers]).max() > 0.5


def test_an_episode_depends_on_its_initial_state_alone(env):
    state = InitialState("touch-blue-ball-right", 5, 3)
    seen, is_solved = played(env, state)
    env.reset([InitialState("pick-green-ball", 1, 1)], [1])
    env.step(np.zeros((1, 1, 36)), [1])
    again, _ = played(env, state, 1)
    assert is_solved
    assert np.array_equal(seen, again)


@pytest.mark.parametrize("name", [name for name in ONE_OF_EACH if "walk" not in name])
def test_the_camera_in_the_head_sees_what_the_instruction_names(name):
    """From where an episode begins; what arms hide, no policy finds."""
    world, task = scene.World(), tasks.TASKS[name]
    data, camera = mujoco.MjData(world.model), world.model.camera("ego").id
    widest = np.tan(np.radians(world.model.cam_fovy[camera]) / 2)
    things = [task.object, *([f"{task.plate}_plate"] if task.plate else [])]
    for index in range(30):
        world.begin(data, scene.layout(task, InitialState(name, 4242, index)))
        eye, turn = data.cam_xpos[camera], data.cam_xmat[camera].reshape(3, 3)
        for thing in things:
            geom, seen = world.model.geom(thing), 0
            top = data.geom_xpos[geom.id] + [0, 0, geom.size[2] or geom.size[1] or geom.size[0]]
            reach = 0.8 * geom.size[0]
            for x, y in np.ndindex(3, 3):
                way = top + np.array([reach * (x - 1), reach * (y - 1), -1e-4]) - eye
                right, up, back = turn.T @ way
                first = np.zeros(1, np.int32)
                mujoco.mj_ray(world.model, data, eye, way, None, 1, -1, first)
                is_inside = back < 0 and max(abs(right), abs(up)) < -back * widest
                seen += is_inside and first[0] == geom.id
            assert seen >= 3, (index, thing)


def test_the_other_hand_and_the_other_object_solve_nothing(env):
    state = InitialState("touch-blue-ball-right", 5, 3)
    played(env, state)
    episode = env._episodes[0]
    other = tasks.Task("touch", "blue", "ball", hand="left")
    assert success.is_met(episode.task, env.world, episode.data, episode.start)
    assert not success.is_met(other, env.world, episode.data, episode.start)
    thing = next(name for name in episode.start.objects if name != "blue_ball")
    episode.data.joint(thing).qpos[0] += 0.05  # it was knocked aside
    assert not success.is_met(episode.task, env.world, episode.data, episode.start)


def test_a_fall_ends_the_episode_unsolved(env):
    env.reset([InitialState("walk-to-table", 1, 0)], [0])
    env._episodes[0].data.qpos[3:7] = [np.cos(1.2), 0.0, np.sin(1.2), 0.0]  # 2.4 rad forward
    step = env.step(np.zeros((1, 1, 36)), [0])
    assert step.extras["metrics"]["fall"].tolist() == [1.0]
    assert step.truncated.all()
    assert not step.success.any()
    assert step.extras["log"]["episode/fell"] == 1.0


def test_a_state_is_what_the_robot_measures(env):
    state = env.reset([InitialState("pick-red-cube", 4, 2)], [0]).state[0]
    assert state.shape == (sum(env.cfg.state_parts.values()),) == (177,)
    np.testing.assert_allclose(state[86:89], [0, 0, -1], atol=5e-3)
    assert abs(state[92]) < 1e-3
    episode = env._episodes[0]
    x, y, _ = episode.start.objects["red_cube"]
    places = state[129:165].reshape(12, 3)
    assert np.count_nonzero(places.any(1)) == 3
    away = np.hypot(x - episode.data.qpos[0], y - episode.data.qpos[1])
    red_cube = places[scene.OBJECTS.index("red_cube")]
    assert np.hypot(*red_cube[:2]) == pytest.approx(away, abs=1e-5)
    assert red_cube[2] == pytest.approx(scene.TABLE_TOP + 0.035, abs=1e-3)


def test_an_action_may_have_some_signals_only():
    env = FloatingCfg(num_envs=1, chunk_length=1, cameras=[], signals=["vx", "vy"]).build()
    env.reset([InitialState("walk-to-table", 1, 0)])
    env.step(np.array([[[1.0, 0.0]]]))
    sent = env._episodes[0].command
    rest = env.world.resting
    assert sent[32] == pytest.approx(0.8)
    assert np.array_equal(np.delete(sent, [32, 33]), np.delete(rest, [32, 33]))
    env.close()


def test_what_is_wrong_with_a_config_is_said(tmp_path):
    with pytest.raises(ValueError, match="no camera 'egg'; did you mean 'ego'"):
        HumanoidCfg(cameras=["egg"])
    with pytest.raises(ValueError, match="no signal 'vz'"):
        HumanoidCfg(signals=["vz"])
    with pytest.raises(ValueError, match="action_repeat=3 must divide 50"):
        HumanoidCfg(action_repeat=3)
    with pytest.raises(ValueError, match=r"no whole-body policy in .*rrf train g1-whole-body-ppo"):
        HumanoidCfg(system0=str(tmp_path)).build()
    with pytest.raises(ValueError, match=r"no the G1's table task 'pick-red-cub'.*pick-red-cube"):
        HumanoidCfg().check_task("pick-red-cub")
