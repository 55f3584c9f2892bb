"""Tasks added by `gymnasium.register`: their config is found, and their environment is built."""

import contextlib
import importlib
import io

import gymnasium
import numpy as np
import pytest
import torch

from rrf.config import Cfg, configclass, trust
from rrf.envs.gymnasium.configs import RegisteredEnvCfg
from rrf.envs.gymnasium.env import GymnasiumEnv
from rrf.envs.gymnasium.registered import TaskKind, kind_of, runner_cfg_of
from rrf.envs.gymnasium.task_source import source_of
from rrf.envs.mjlab.configs import MjlabEnvCfg
from tests.envs.contract import check_contract


@configclass
class TrainCfg(Cfg):
    """Stands for a runner config."""

    seed: int = 42
    """A number."""


@configclass
class BareCfg:
    """A config as users write them, without `Cfg` among its bases."""

    layers: list[int] = [64, 64]
    """A list."""


def make_cfg():
    return TrainCfg(seed=7)


class Counter(gymnasium.Env):
    """Counts up to `goal`."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, goal=5):
        self.goal, self.count = goal, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = int(self.np_random.integers(2))
        return np.array([self.count], np.float32), {}

    def step(self, action):
        self.count += 2
        is_there = self.count >= self.goal
        return np.array([self.count], np.float32), float(is_there), is_there, False, {}


@pytest.fixture(autouse=True)
def _registry(monkeypatch):
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)


def register(entry_point=Counter, **kwargs):
    gymnasium.register(
        "RoboRenForce-Count-PPO", entry_point=entry_point, max_episode_steps=20, kwargs=kwargs
    )
    return "RoboRenForce-Count-PPO"


@pytest.mark.parametrize("kwarg", ["RoboRenForce_entry_point", "rrf_entry_point"])
@pytest.mark.parametrize(
    ("given", "seed"),
    [
        (TrainCfg(seed=3), 3),
        (TrainCfg, 42),
        (make_cfg, 7),
        (f"{__name__}:make_cfg", 7),
        (f"{__name__}:TrainCfg", 42),
    ],
)
def test_the_config_is_found_and_the_environment_never_sees_it(kwarg, given, seed):
    task = register(**{kwarg: given, "goal": 9})
    cfg = runner_cfg_of(task)
    assert (type(cfg).__name__, cfg.seed) == ("TrainCfg", seed)
    env = RegisteredEnvCfg(task=task, num_envs=2).build(seed=0)
    assert isinstance(env, GymnasiumEnv)
    assert env.gym_envs[0].unwrapped.goal == 9
    assert env.max_episode_length == 20
    assert env.interface.num_choices == 2


def test_the_environment_obeys_the_contract():
    task = register(rrf_entry_point=TrainCfg)
    check_contract(lambda: RegisteredEnvCfg(task=task, num_envs=3).build(seed=1), has_state=False)


def test_a_config_is_a_copy_and_can_be_written_and_read_again():
    task = register(rrf_entry_point=BareCfg(layers=[8]))
    cfg = runner_cfg_of(task)
    cfg.layers.append(9)
    assert runner_cfg_of(task).layers == [8]
    assert type(cfg).from_dict(runner_cfg_of(task).to_dict()).layers == [8]


def test_the_kind_of_a_task_is_seen_in_its_spaces():
    task = register()
    assert runner_cfg_of(task) is None
    assert kind_of(task) == TaskKind(num_choices=2)
    assert kind_of("FrozenLake-v1") == TaskKind(num_choices=4, is_one_hot=True)
    assert kind_of("HalfCheetah-v5") == TaskKind(num_choices=None)
    task = register("mjlab.envs:ManagerBasedRlEnv")
    assert kind_of(task) == TaskKind(num_choices=None, simulator="mjlab")


def test_wrong_configs_are_refused():
    task = register(rrf_entry_point=TrainCfg, RoboRenForce_entry_point=TrainCfg)
    with pytest.raises(ValueError, match="both"):
        runner_cfg_of(task)
    for value, message in (
        ({"seed": 1}, r"is builtins\.dict; expected a runner config"),
        ("no_such_module:Cfg", "no_such_module:Cfg', which cannot be found"),
        (f"{__name__}:Missing", "Missing', which cannot be found"),
    ):
        task = register(rrf_entry_point=value)
        with pytest.raises(ValueError, match=message):
            runner_cfg_of(task)


def test_unknown_tasks_and_options_get_the_closest_known_name():
    task = register()
    with pytest.raises(ValueError, match="did you mean 'RoboRenForce-Count-PPO'"):
        runner_cfg_of("RoboRenForce-Cuont-PPO")
    with pytest.raises(ValueError, match="GymnasiumEnvCfg has no field 'hiden'; did you mean 'hid"):
        RegisteredEnvCfg(task=task, options={"hiden": [0]}).build()
    with pytest.raises(ValueError, match=r"options contains num_envs, .* set num_envs"):
        RegisteredEnvCfg(task=task, options={"num_envs": 7})
    with pytest.raises(ValueError, match=r"rrf train go1-flat-ppo env.task=Mjlab-Cartpole-Balance"):
        RegisteredEnvCfg(task="Mjlab-Cartpole-Balance").build()


def test_a_module_that_registers_the_task_is_imported_first(monkeypatch, tmp_path):
    (tmp_path / "my_counting_tasks.py").write_text(
        f"import gymnasium\ngymnasium.register('Late-v0', entry_point='{__name__}:Counter')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    trust("my_counting_tasks")
    assert runner_cfg_of("my_counting_tasks:Late-v0") is None
    env = RegisteredEnvCfg(task="my_counting_tasks:Late-v0", num_envs=2).build()
    assert env.step(torch.zeros(2, 1))[1].shape == (2,)


def mjlab_cart_pole():
    with contextlib.redirect_stdout(io.StringIO()):
        import mjlab.tasks  # noqa: F401
    from mjlab.tasks.registry import load_env_cfg

    return load_env_cfg("Mjlab-Cartpole-Balance")


@pytest.mark.parametrize(
    "entry_point",
    ["mjlab.envs:ManagerBasedRlEnv", "mjlab.envs.manager_based_rl_env:ManagerBasedRlEnv"],
)
def test_an_mjlab_entry_point_is_stepped_by_the_mjlab_backends(entry_point):
    pytest.importorskip("mjlab")
    from rrf.envs.mjlab.env import MjlabEnv

    cfg = mjlab_cart_pole()
    cfg.episode_length_s = 3 * cfg.sim.mujoco.timestep * cfg.decimation
    task = register(entry_point, env_cfg_entry_point=cfg, rrf_entry_point=TrainCfg)
    env = RegisteredEnvCfg(task=task, num_envs=2, options={"num_threads": 1}).build(seed=3)
    assert isinstance(env, MjlabEnv)
    assert env.cfg == MjlabEnvCfg(task=task, num_envs=2, num_threads=1)
    assert env.interface.task == task
    for step in range(1, 4):  # the registered config's time limit, not that of mjlab's own task
        _, _, dones, _ = env.step(torch.zeros(2, env.num_actions))
        assert dones.tolist() == [step == 3] * 2
    env.close()


def test_as_many_environments_are_stepped_as_asked_for_or_registered():
    pytest.importorskip("mjlab")
    cfg = mjlab_cart_pole()
    task = register("mjlab.envs:ManagerBasedRlEnv", env_cfg_entry_point=cfg)
    assert cfg.scene.num_envs == 1
    for registered, asked, expected in ((1, 0, 64), (5, 0, 5), (5, 64, 64), (5, 3, 3)):
        cfg.scene.num_envs = registered
        env = RegisteredEnvCfg(task=task, num_envs=asked).build()
        assert env.num_envs == expected
        env.close()
    assert RegisteredEnvCfg(task=register()).build().num_envs == 64
    with pytest.raises(ValueError, match="num_envs is -1, allowed: 1 to 1,000,000"):
        RegisteredEnvCfg(num_envs=-1)


def test_a_variant_for_watching_is_not_looked_for_where_the_config_is_given():
    pytest.importorskip("mjlab")
    task = register("mjlab.envs:ManagerBasedRlEnv", env_cfg_entry_point=mjlab_cart_pole)
    with pytest.raises(ValueError, match=r"'RoboRenForce-Count-PPO' has its own config"):
        RegisteredEnvCfg(task=task, options={"play": True}).build()


def test_a_subclass_of_mjlabs_environment_is_refused_by_name():
    envs = pytest.importorskip("mjlab.envs")

    class Mine(envs.ManagerBasedRlEnv):
        pass

    task = register(Mine, env_cfg_entry_point=mjlab_cart_pole)
    with pytest.raises(ValueError, match=r"subclass of mjlab's ManagerBasedRlEnv.*into the terms"):
        RegisteredEnvCfg(task=task).build()


def test_an_mjlab_task_without_environment_config_says_so():
    task = register("mjlab.envs:ManagerBasedRlEnv", env_cfg_entrypoint=1)
    with pytest.raises(ValueError, match="env_cfg_entry_point; did you mean 'env_cfg_entrypoint'"):
        RegisteredEnvCfg(task=task).build()


def test_a_task_is_known_by_its_files_time_limit_and_kwargs(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "walking_cfg.py").write_text("def walking():\n    pass\n")
    (tmp_path / "walking_tasks.py").write_text(
        "import gymnasium\n"
        "gymnasium.register(\n"
        '    "Walking-v0", "mjlab.envs:ManagerBasedRlEnv",\n'
        '    kwargs={"env_cfg_entry_point": "walking_cfg:walking"},\n'
        ")\n"
    )
    trust("walking_tasks")
    made_of = source_of("walking_tasks:Walking-v0")  # nobody has imported it before
    assert made_of == source_of("walking_tasks:Walking-v0")
    assert len(made_of["files"]) == 2
    (tmp_path / "walking_cfg.py").write_text("def walking():\n    return 1\n")
    edited = source_of("walking_tasks:Walking-v0")
    assert len({*made_of["files"], *edited["files"]}) == 3
    (alone,) = source_of("Walking-v0")["files"]  # as after --import, of a module it cannot know
    assert alone in edited["files"]

    def counting(**changes):
        gymnasium.registry.pop("Counting-v0", None)
        gymnasium.register("Counting-v0", Counter, **changes)
        return source_of("Counting-v0")

    assert counting() == counting()
    assert counting(max_episode_steps=9) != counting(max_episode_steps=8)
    assert counting(kwargs={"goal": 9}) != counting(kwargs={"goal": 8})
    assert counting(kwargs={"goal": object()}) == counting(kwargs={"goal": object()})
    ground = np.zeros(2000)
    flat = counting(kwargs={"ground": ground.copy()})
    ground[1000] = 1.0
    assert counting(kwargs={"ground": ground}) != flat
    odd = counting(kwargs={"goal": {"flip", "hit", "fall"}, "bound": np.inf})
    assert odd["settings"]["kwargs"] == {"goal": ['"fall"', '"flip"', '"hit"'], "bound": "inf"}
    assert source_of("Nowhere-v0") is None


def test_a_task_is_known_by_the_functions_its_config_holds(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "hopping.py").write_text(
        "import functools\n"
        "import gymnasium\n"
        "def reward(weight):\n"
        "    return weight\n"
        "class Cfg:\n"
        "    def __init__(self):\n"
        "        self.rewards, self.me = {'hop': functools.partial(reward, 2)}, self\n"
        "gymnasium.register('Hopping-v0', 'mjlab.envs:ManagerBasedRlEnv',\n"
        "                   kwargs={'env_cfg_entry_point': Cfg()})\n"
    )
    importlib.import_module("hopping")
    made_of = source_of("Hopping-v0")
    assert len(made_of["files"]) == 1
    assert made_of["settings"]["kwargs"]["env_cfg_entry_point"] == [
        "Cfg",
        {"rewards": {"hop": ["reward", [2], {}]}, "me": "..."},
    ]
