"""What terms and sensors of one's own may do on the native backend, and what is refused by name."""

import collections

import mujoco
import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

import mjlab.tasks  # noqa: F401, registers them
from mjlab.managers.event_manager import EventTermCfg
from mjlab.managers.observation_manager import ObservationTermCfg
from mjlab.managers.reward_manager import RewardTermCfg
from mjlab.sensor import BuiltinSensor, BuiltinSensorCfg, ObjRef
from mjlab.tasks.registry import load_env_cfg

from rrf.envs.control_env import NotFiniteError, check_final
from rrf.envs.mjlab.configs import MjlabEnvCfg
from rrf.envs.mjlab.native.physics_model import build_physics_model
from rrf.envs.mjlab.native.snapshot import capture, restore
from tests.envs.mjlab.mjlab_tasks import CARTPOLE


def build(cfg):
    return MjlabEnvCfg(task=CARTPOLE, num_envs=2).build(env_cfg=cfg)


def with_reward(func):
    cfg = load_env_cfg(CARTPOLE)
    cfg.rewards["added"] = RewardTermCfg(func=func, weight=1.0)
    return cfg


# What they write


def writes_friction(env, env_ids):
    env.sim.model.geom_friction[env_ids[:, None], torch.tensor([0]), 0] = 0.5


def replaces_masses(env, env_ids):
    env.sim.model.body_mass = torch.ones(2, 3)


def replaces_positions(env, env_ids):
    env.sim.data.qpos = torch.zeros(2, 2)


@pytest.mark.filterwarnings("ignore:Use of index_put_")
@pytest.mark.parametrize(
    ("func", "message"),
    [
        (writes_friction, r"model.geom_friction, .* @requires_model_fields\(\"geom_friction\"\)"),
        (replaces_masses, r"'added' \(model.body_mass = ...; write into it"),
        (replaces_positions, r"'added' \(data.qpos = ...; write into it"),
    ],
)
def test_what_would_reach_no_simulation_is_refused(func, message):
    cfg = load_env_cfg(CARTPOLE)
    cfg.events["added"] = EventTermCfg(mode="reset", func=func)
    with pytest.raises(ValueError, match=message):
        build(cfg)


class KeepsField:
    """Holds the model's own tensor, as terms may that only read it."""

    def __init__(self, cfg, env):
        self.bodies = env.sim.model.geom_bodyid

    def __call__(self, env):
        return torch.zeros(env.num_envs)


def test_a_term_may_keep_a_field_it_only_reads():
    env = build(with_reward(KeepsField))
    env.step(torch.zeros(2, 1))
    env.load_state(env.state())
    env.step(torch.zeros(2, 1))
    env.close()


def test_a_mocap_body_that_was_moved_is_seen_there_after_forward():
    env = build(load_env_cfg(CARTPOLE))
    sim, cartpole = env.env.sim, env.env.scene["cartpole"]
    assert env.mj_model.nmocap == 1
    body = int(env.mj_model.body_mocapid.argmax())
    before = sim.data.xpos[:, body].clone()
    sim.data.mocap_pos[1, 0, 2] += 0.25
    sim.forward()
    moved = sim.data.xpos[:, body] - before
    torch.testing.assert_close(moved, torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 0.25]]))
    assert cartpole.is_mocap
    env.close()


# What they read


def test_rewards_may_read_how_episodes_ended():
    env = build(with_reward(lambda env: (env.reset_terminated | env.reset_time_outs).float()))
    env.step(torch.zeros(2, 1))
    assert env.reward_terms()["added"].tolist() == [0.0, 0.0]
    env.close()


def test_a_term_that_fails_in_any_way_is_named():
    with pytest.raises(ValueError, match="reward term 'added' failed: KeyError: 'x'"):
        build(with_reward(lambda env: {}["x"]))


def fails(env):
    raise RuntimeError("no luck")


def test_a_reward_that_fails_at_once_or_later_is_named():
    cfg = load_env_cfg(CARTPOLE)
    cfg.rewards["unlucky"] = RewardTermCfg(func=fails, weight=1.0)
    with pytest.raises(ValueError, match="reward term 'unlucky' failed: RuntimeError: no luck"):
        build(cfg)
    cfg = load_env_cfg(CARTPOLE)
    calls = iter(range(100))
    cfg.rewards["unlucky"] = RewardTermCfg(
        func=lambda env: fails(env) if next(calls) == 2 else torch.zeros(2), weight=1.0
    )
    env = build(cfg)
    env.step(torch.zeros(2, 1))
    with pytest.raises(ValueError, match="reward term 'unlucky' failed: RuntimeError: no luck"):
        env.step(torch.zeros(2, 1))
    env.close()


def counts(env):
    """A reward that grows with each call; the count lies on the environment itself."""
    env._my_count = getattr(env, "_my_count", 0) + 1
    return torch.full((env.num_envs,), float(env._my_count))


def test_what_terms_keep_on_the_environment_is_saved_too():
    cfg = load_env_cfg(CARTPOLE)
    cfg.rewards = {"counts": RewardTermCfg(func=counts, weight=1.0)}
    env, again = (build(cfg) for _ in range(2))
    zeros = torch.zeros(2, 1)
    first = env.step(zeros)[1]
    torch.testing.assert_close(first, torch.full((2,), env.env.step_dt))  # it was called once
    env.step(zeros)
    again.load_state(env.state())
    assert torch.equal(again.step(zeros)[1], env.step(zeros)[1])
    assert again.env._my_count == 3
    env.close()
    again.close()


def test_a_term_of_other_rows_or_another_precision():
    cfg = load_env_cfg(CARTPOLE)
    group = cfg.observations["actor"]
    func = ObservationTermCfg(func=lambda env: torch.zeros(env.num_envs, 1, dtype=torch.float64))
    group.terms["double"] = func
    env = build(cfg)
    assert env.get_observations()["actor"].dtype == torch.float32
    env.close()
    cfg.rewards["long"] = RewardTermCfg(func=lambda env: torch.zeros(3), weight=1.0)
    with pytest.raises(ValueError, match=r"reward term 'long' gives .* \[3\], expected 2 rows"):
        build(cfg)


def test_a_last_observation_that_is_not_finite_is_told():
    cfg = load_env_cfg(CARTPOLE)
    is_last = []

    def bad(env):
        value = torch.inf if is_last else 0.0
        return torch.full((env.num_envs, 1), value)

    cfg.observations["actor"].terms["bad"] = ObservationTermCfg(func=bad)
    env = build(cfg)
    env.episode_length_buf = torch.full((2,), env.max_episode_length - 1)
    is_last.append(True)
    env.before_reset = lambda _: is_last.clear()
    observations, _, dones, extras = env.step(torch.zeros(2, 1))
    assert torch.isfinite(observations["actor"]).all()
    with pytest.raises(NotFiniteError, match="inf in the last 'actor' of environment 0"):
        check_final(extras["final_obs"], dones, CARTPOLE)
    env.close()


class Watching(BuiltinSensor):
    """Keeps the positions of every substep."""

    def initialize(self, mj_model, model, data, device):
        super().initialize(mj_model, model, data, device)
        self.source, self.seen = data, []

    def update(self, dt):
        super().update(dt)
        self.seen.append(self.source.qpos.clone())


class WatchingCfg(BuiltinSensorCfg):
    def build(self):
        return Watching(self)


def test_a_sensor_that_reads_the_state_sees_every_substep():
    cfg = load_env_cfg(CARTPOLE)
    slider = ObjRef(type="joint", name="slider", entity="cartpole")
    cfg.scene.sensors = (WatchingCfg(name="watch", sensor_type="jointpos", obj=slider),)
    env = build(cfg)
    (watching,) = env.env.scene.sensors.values()
    watching.seen.clear()
    env.step(torch.ones(2, 1))
    positions = torch.stack(watching.seen)[:, 0, 0]
    assert len(positions) == cfg.decimation
    assert len(positions.unique()) == cfg.decimation
    env.close()


# What they keep


class Term:
    def __init__(self):
        self.history, self.seen = [], {}


def test_lists_that_grew_are_restored():
    ours, theirs = Term(), Term()
    ours.history = [torch.full((2,), float(i)) for i in range(12)]
    ours.seen = {"poses": [1.0, 2.0]}
    theirs.seen = {"poses": [1.0]}
    tensors, facts = capture({"term": ours})
    restore({"term": theirs}, dict(sorted(tensors.items())), facts)
    assert [int(t[0]) for t in theirs.history] == list(range(12))
    assert theirs.seen == ours.seen


@pytest.mark.parametrize(
    "kept", [torch.Generator(), np.random.default_rng(0), collections.deque(), set()]
)
def test_where_a_term_keeps_what_cannot_be_saved_there_is_no_state(kept):
    class Keeping:
        def __init__(self, cfg, env):
            self.kept = kept

        def __call__(self, env):
            return torch.zeros(2)

    env = build(with_reward(Keeping))
    assert env.state() is None
    env.close()


# What is left out of the model that is stepped

MESH = "<mesh name='tetra' vertex='0 0 0  1 0 0  0 1 0  0 0 1'/>"
LOOK = "<geom name='look' type='mesh' mesh='tetra' contype='0' conaffinity='0' {}/>"
BODY = f"<body name='body'><freejoint/>{LOOK}</body>"
SOLID_BODY = BODY.replace("</body>", "<geom size='.1'/></body>")


def slim_and_full(body: str, rest: str = ""):
    floor = "<geom name='floor' type='plane' size='0 0 1'/>"
    xml = f"<asset>{MESH}</asset><worldbody>{floor}<site name='eye' pos='0 0 3'/>{body}</worldbody>"
    spec = mujoco.MjSpec.from_string(f"<mujoco>{xml}{rest}</mujoco>")
    slim, full = spec.copy(), spec.compile()
    return build_physics_model(slim, full, lambda model: None).model, full


@pytest.mark.parametrize(
    "rest",
    [
        "<contact><pair geom1='floor' geom2='look'/></contact>",
        "<sensor><framepos objtype='geom' objname='look'/></sensor>",
        "<sensor><framepos objtype='body' objname='body' reftype='geom' refname='look'/></sensor>",
        "<sensor><distance geom1='floor' geom2='look' cutoff='9'/></sensor>",
        "<sensor><rangefinder site='eye'/></sensor>",
    ],
)
def test_looks_that_something_touches_or_sees_stay(rest):
    slim, full = slim_and_full(SOLID_BODY.format(""), rest)
    assert slim.geom("look").type == full.geom("look").type == mujoco.mjtGeom.mjGEOM_MESH
    np.testing.assert_array_equal(slim.geom_pos, full.geom_pos)


@pytest.mark.parametrize("body", [BODY, SOLID_BODY])
@pytest.mark.parametrize("mass", ["", "mass='2'"])
def test_a_body_whose_mass_is_that_of_its_looks_keeps_it(body, mass):
    slim, full = slim_and_full(body.format(mass))
    assert slim.nmesh == 0
    for field in ("body_mass", "body_ipos", "body_simple", "dof_invweight0", "dof_simplenum"):
        np.testing.assert_array_equal(getattr(slim, field), getattr(full, field), err_msg=field)
