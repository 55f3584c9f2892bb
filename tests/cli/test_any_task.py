"""`rrf train --task ID` trains any task of Gymnasium, and mistakes are told before torch loads."""

import subprocess
import sys

import pytest
import yaml

from tests.cli.test_bad_input import one_line

TINY = ("trackers=[]", "max_iterations=1", "env.num_envs=2")
TINY_PPO = (*TINY, "num_steps_per_env=8", "algorithm.num_mini_batches=1")
TINY_SAC = (*TINY, "num_steps_per_env=20", "replay_size=500", "algorithm.warmup_steps=30")
TASKS = """
import gymnasium, numpy as np
from rrf.runners import OnPolicyRunnerCfg
from rrf.runners import OffPolicyRunnerCfg

SPACES = gymnasium.spaces

class Any(gymnasium.Env):
    def __init__(self, observes, acts):
        self.observation_space, self.action_space = observes, acts

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return self.observation_space.sample(), 1.0, False, False, {}

NUMBERS, IMAGE = SPACES.Box(-1, 1, (3,)), SPACES.Box(0, 255, (8, 8, 3), np.uint8)
GOAL = SPACES.Dict({"observation": NUMBERS, "goal": SPACES.Box(-1, 1, (2, 2))})
PARTS = SPACES.Tuple((NUMBERS, SPACES.MultiDiscrete([2, 3])))
NESTED = SPACES.Dict({"parts": PARTS, "place": SPACES.Discrete(5)})
REAL, CHOICE = SPACES.Box(-1, 1, (2,)), SPACES.Discrete(3)
for name, observes, acts, more in (
    ("Goal", GOAL, REAL, {}),
    ("Image", IMAGE, CHOICE, {}),
    ("Nested", NESTED, CHOICE, {}),
    ("Switches", NUMBERS, SPACES.MultiDiscrete([2, 3]), {}),
    ("Mine", NUMBERS, CHOICE, {"rrf_entry_point": OnPolicyRunnerCfg(experiment_name="mine")}),
    ("MySac", NUMBERS, REAL, {"rrf_entry_point": OffPolicyRunnerCfg(experiment_name="my-sac")}),
):
    gymnasium.register(
        id=f"{name}-v0", entry_point=Any, max_episode_steps=5,
        kwargs={"observes": observes, "acts": acts, **more},
    )
"""


@pytest.fixture
def tasks(home) -> tuple[str, str]:
    (home / "any_tasks.py").write_text(TASKS)
    return ("--import", "any_tasks")


@pytest.mark.parametrize(
    ("words", "origin", "actor", "env"),
    [
        (("CartPole-v1",), "preset cartpole-ppo", "Categorical", "Gymnasium"),
        (("Pendulum-v1",), "preset pendulum-ppo", "StateIndStd", "Gymnasium"),
        (("Acrobot-v1",), "PPO's defaults for 3 actions", "Categorical", "Gymnasium"),
        (("FrozenLake-v1",), "PPO's defaults for 4 actions", "Categorical", "Gymnasium"),
        (("Reacher-v5",), "PPO's defaults for real actions", "StateIndStd", "Gymnasium"),
        (("Goal-v0",), "PPO's defaults for real actions", "StateIndStd", "Gymnasium"),
        (("Mine-v0",), "the config that it is registered with", "StateIndStd", "Registered"),
        (
            ("any_tasks:MySac-v0", "--algorithm", "ppo"),
            "PPO's defaults for real actions",
            *("StateIndStd", "Gymnasium"),
        ),
    ],
)
def test_any_task_trains_with_ppo(rrf, tasks, monkeypatch, home, words, origin, actor, env):
    monkeypatch.syspath_prepend(home)
    said = rrf("train", "--task", *words, *TINY_PPO, *tasks)
    assert f"{words[0]} trains with {origin}. `rrf show --task " in said.err
    config = yaml.safe_load((said.checkpoint / "config.yaml").read_text())
    assert config["policy"]["actor_cfg"]["type"].endswith(f":{actor}ActorCfg")
    assert config["env"]["type"].endswith(f":{env}EnvCfg")
    assert config["env"]["task"] == words[0]


@pytest.mark.parametrize(
    ("task", "origin"),
    [("Pendulum-v1", "preset pendulum-sac"), ("Goal-v0", "SAC's defaults for real actions")],
)
def test_any_task_with_real_actions_trains_with_sac(rrf, tasks, task, origin):
    said = rrf("train", "--task", task, "--algorithm", "sac", *TINY_SAC, *tasks)
    assert f"{task} trains with {origin}. `rrf show --task {task} --algorithm sac`" in said.err
    config = yaml.safe_load((said.checkpoint / "config.yaml").read_text())
    assert config["type"].endswith(":OffPolicyRunnerCfg")
    played = rrf("play", said.checkpoint, "--steps", "6", *tasks)
    assert "6 steps" in played.out


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("mbpo", ("algorithm.model_cfg.max_updates=2", "algorithm.branches_per_training=50")),
        ("tdmpc2", ("policy.actor_cfg.latent_dim=16", "algorithm.pretraining_updates=2")),
    ],
)
def test_any_task_with_real_actions_trains_with_a_model(rrf, tasks, algorithm, words):
    words = (*words, "algorithm.updates_per_step=0.1", "algorithm.batch_size=16")
    said = rrf("train", "--task", "Goal-v0", "--algorithm", algorithm, *TINY_SAC, *words, *tasks)
    assert f"Goal-v0 trains with {algorithm.upper()}'s defaults for real actions" in said.err
    config = yaml.safe_load((said.checkpoint / "config.yaml").read_text())
    assert config["algorithm"]["type"].lower().endswith(f":{algorithm}cfg")


def test_the_config_of_another_algorithm_is_not_taken_for_the_asked_one(rrf, tasks):
    said = rrf("show", "--task", "any_tasks:MySac-v0", "--algorithm", "mbpo", *tasks)
    assert yaml.safe_load(said.out)["algorithm"]["type"].endswith(":MBPOCfg")


@pytest.mark.parametrize(
    ("task", "origin"),
    [("CartPole-v1", "preset cartpole-sac"), ("Nested-v0", "SAC's defaults for 3 actions")],
)
def test_any_task_with_a_choice_of_actions_trains_with_sac(rrf, tasks, task, origin):
    said = rrf("train", "--task", task, "--algorithm", "sac", *TINY_SAC, *tasks)
    assert f"{task} trains with {origin}. `rrf show --task {task} --algorithm sac`" in said.err
    config = yaml.safe_load((said.checkpoint / "config.yaml").read_text())
    assert config["algorithm"]["type"].endswith(":DiscreteSACCfg")
    assert "6 steps" in rrf("play", said.checkpoint, "--steps", "6", *tasks).out


def test_a_preset_for_real_actions_trains_discrete_ones_too(rrf):
    said = rrf("train", "pendulum-ppo", "env.task=CartPole-v1", *TINY_PPO)
    assert said.checkpoint.is_dir()
    assert "4 environments" in rrf("play", said.checkpoint, "--steps", "3").out


def test_the_settings_of_a_task_are_shown_like_those_of_a_preset(rrf):
    said = rrf("show", "--task", "Acrobot-v1", "max_iterations=7")
    shown = yaml.safe_load(said.out)
    assert (shown["experiment_name"], shown["max_iterations"]) == ("acrobot-v1-ppo", 7)
    assert shown["policy"]["actor_cfg"]["type"].endswith(":CategoricalActorCfg")
    robot = yaml.safe_load(rrf("show", "--task", "Mjlab-Velocity-Flat-Unitree-Go1").out)
    assert robot["experiment_name"] == "go1-flat-ppo"


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("Image-v0", "but a policy of states cannot observe images. It observes numbers: Box, Dis"),
        ("Switches-v0", "Switches-v0 has the action space MultiDiscrete([2 3]); only Discrete and"),
    ],
)
def test_what_no_actor_can_do_is_one_line(rrf, tasks, task, message):
    assert message in one_line(rrf("train", "--task", task, *tasks))


MISTAKES = [
    ("--task", "CartPol-v1"),
    ("--task", "nowhere:CartPole-v1"),
    ("--task", "CartPole-v1", "--algorithm", "iql"),
    ("--task", "CartPole-v1", "--algorithm", "td3"),
    ("--task", "Acrobot-v1", "max_iteration=3"),
    ("cartpole-ppo", "env.task=CartPol-v1"),
]


def test_mistakes_are_told_before_torch_is_imported():
    """One process makes them all, and says after each what it has imported."""
    code = f"""
import sys
from rrf import cli
for words in {MISTAKES}:
    sys.argv = ["rrf", "train", *words]
    try:
        cli.main()
    except SystemExit as end:
        loaded = [name for name in ("torch", "tensordict") if name in sys.modules]
        sys.stderr.write(f"exit {{end.code}}, {{loaded}}\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = iter(done.stderr.splitlines())
    for words in MISTAKES:
        line = next(line for line in lines if not line.startswith(f"{words[1]} tra"))
        assert line.startswith("error: "), done.stderr
        assert next(lines) == "exit 2, []", done.stderr
    assert list(lines) == []
