"""What goes wrong ends in one line that says what, where, and what to do; exit code 2."""

import json
import re
import shutil
import socket
import sys

import pytest

from rrf import atomic
from tests.cli.conftest import TINY_PPO

ENVPOOL = "env={type: 'rrf.envs.gymnasium.configs:EnvPoolEnvCfg'}"
BROKEN = """
import gymnasium, numpy as np
from rrf import atomic
from rrf.networks import plain_mlp
from rrf.runners import OnPolicyRunnerCfg

class Broken(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, what):
        self.what, self.steps = what, 0

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        observation, reward = np.zeros(3, np.float32), 1.0
        if self.steps == 5 and self.what == "nan":
            observation[1] = np.nan
        if self.steps == 5 and self.what == "infinite-reward":
            reward = np.inf
        if self.steps == 5 and self.what == "shape":
            observation = np.zeros(4, np.float32)
        if self.what == "four":
            return observation, reward, False, {}
        return observation, reward, False, False, {}

for what in ("nan", "infinite-reward", "shape", "four"):
    gymnasium.register(
        id=f"Broken-{what}-v0",
        entry_point=Broken,
        max_episode_steps=50,
        kwargs={
            "what": what,
            "rrf_entry_point": OnPolicyRunnerCfg(
                trackers=[], num_steps_per_env=3, max_iterations=9, save_interval=1
            ),
        },
    )
cfg = {"rrf_entry_point": OnPolicyRunnerCfg(trackers=[])}
gymnasium.register(id="Gone-v0", entry_point="broken_tasks:Gone", kwargs=cfg)
gymnasium.register(id="Lacking-v0", entry_point=Broken, kwargs=cfg)
gymnasium.register(id="Unknown-v0", entry_point=Broken)
"""


@pytest.fixture
def broken(home) -> tuple[str, str]:
    (home / "broken_tasks.py").write_text(BROKEN)
    return ("--import", "broken_tasks")


def one_line(said) -> str:
    """The error message, which must be all there is on stderr."""
    assert said.code == 2, said.out
    assert "Traceback" not in said.err
    (error,) = [line for line in said.err.splitlines() if line.startswith("error: ")]
    return error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("go1-flat-pp",), "no preset 'go1-flat-pp'; did you mean 'go1-flat-ppo'?"),
        (
            ("cartpole-ppo", "algorithm.gama=0.9"),
            "no config field 'algorithm.gama'; did you mean 'gamma'?",
        ),
        (("cartpole-ppo", "algorithm.gamma=1.5"), "gamma is 1.5 and lam 0.8, allowed: from 0 to 1"),
        (
            ("cartpole-ppo", "env.task=CartPol-v1"),
            "no Gymnasium task 'CartPol-v1'; did you mean 'CartPole-v1'?",
        ),
        (
            ("cartpole-ppo", "device=cuda"),
            "device is 'cuda', but torch sees no GPU; use device=cpu",
        ),
        (("cartpole-ppo", "device=banana"), "device is 'banana', allowed: cpu, cuda, cuda:1"),
        (("cartpole-ppo", "max_iterations=[1"), "the value of override 'max_iterations=[1' is not"),
        (("cartpole-ppo", "seed=-1"), "seed is -1, allowed: 0 to 2**63 - 1"),
        (("cartpole-ppo", "experiment_name=a/b"), "experiment_name is 'a/b', allowed: a name"),
        (("cartpole-ppo", "env.max_episode_steps=0"), "max_episode_steps is 0, allowed: 1 or more"),
        (
            ("cartpole-ppo", "algorithm.num_mini_batches=1000"),
            "num_mini_batches is 1000, allowed: up to 256 for the 256 samples of a rollout",
        ),
        (("cartpole-ppo", "trackers=[mlfow]"), "no tracker 'mlfow'; did you mean 'mlflow'?"),
        ((), "name a preset, a training file or a --task; presets: "),
        (
            ("cartpole-ppo", "--task", "Pendulum-v1"),
            "already names what to train; drop 'cartpole-ppo'",
        ),
        (
            ("--task", "CartPole-v1", "--algorithm", "iql"),
            "CartPole-v1 has 2 discrete actions, which IQL does not support; train it with "
            "--algorithm ppo or --algorithm sac",
        ),
        (("--task", "CartPole-v1", "--algorithm", "pp"), "no --algorithm 'pp'; did you mean 'ppo'"),
        (("--algorithm", "ppo"), "--algorithm ppo needs a --task; a preset has its own algorithm"),
        (
            ("pendulum-sac", "env.task=CartPole-v1", "trackers=[]"),
            "SAC does not support; train it with PPO or discrete SAC, e.g. rrf train --task Cart",
        ),
        (("--task", "Pendulm-v1"), "no Gymnasium task 'Pendulm-v1'; did you mean 'Pendulum-v1'?"),
        (
            ("cartpole-ppo", "--import", "no_such_module"),
            "--import: no module 'no_such_module' here",
        ),
        (("compact-vla-sft", "--video"), "--video films only state-based policies"),
    ],
)
def test_a_slip_of_the_pen_is_named_with_what_was_meant(rrf, words, message):
    assert message in one_line(rrf("train", *words))


def test_an_observation_group_that_is_not_there(rrf):
    said = rrf("train", *TINY_PPO, "policy.critic_cfg.observation_groups=[polcy]")
    assert one_line(said) == (
        "error: the critic reads observation group 'polcy', which the environment does not have; "
        "did you mean 'policy'?"
    )


def test_an_actor_of_the_wrong_kind(rrf):
    words = ("pendulum-ppo", *TINY_PPO[1:], "env.task=CartPole-v1", "policy.actor_cfg.init_std=0.5")
    said = rrf("train", *words)
    assert "CartPole-v1 has 2 discrete actions; use components.CategoricalActorCfg" in said.err


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("nan", "Broken-nan-v0 returned nan in 'policy' of environment 0, dimension 1"),
        ("infinite-reward", "Broken-infinite-reward-v0 returned inf in 'rewards' of environment 0"),
    ],
)
def test_an_environment_that_returns_no_numbers(rrf, home, broken, what, message):
    said = rrf("train", "--task", f"Broken-{what}-v0", *broken, "--run-dir", "run")
    error = one_line(said)
    assert message in error
    # steps 4 to 6 are those of iteration 2; the first one was saved
    assert "in iteration 2 of 9. Training stopped before it was saved" in error
    assert "the last good checkpoint is run/global_step_1" in error
    assert (home / "run/not_finite_2/last_step.safetensors").is_file()
    assert "run/not_finite_2" in error


def test_an_environment_that_returns_another_shape(rrf, broken):
    said = rrf("train", "--task", "Broken-shape-v0", *broken)
    assert one_line(said).startswith(
        "error: Broken-shape-v0 returned an observation of shape [4] in environment 0, expected "
        "[3], in iteration 2 of 9. The traceback is in "
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("Broken-four-v0",),
            "step of Broken-four-v0 returned 4 values, expected the 5 values that Gymnasium defin",
        ),
        (
            ("Gone-v0",),
            "Gone-v0 is registered with entry_point='broken_tasks:Gone', which cannot be found",
        ),
        (("Lacking-v0",), "Lacking-v0 cannot be made with the arguments []: "),
        (
            ("Broken-nan-v0", "env.options.kwargs={wat: 1}"),
            "Broken-nan-v0 takes no argument 'wat'; did you mean 'what'?",
        ),
        (
            ("mytaks:Swing-v0",),
            "task 'mytaks:Swing-v0': no module 'mytaks' among the installed packages; for a file "
            "in the current directory add --import mytaks",
        ),
        (
            ("needy_tasks:Swing-v0",),
            "task 'needy_tasks:Swing-v0': 'needy_tasks' cannot be imported: No module named 'noth",
        ),
        (("Nope-v1",), "no Gymnasium task 'Nope-v1'; for a task of your own, add --import with"),
    ],
)
def test_a_task_that_cannot_be_used_is_named(rrf, home, broken, words, message):
    (home / "needy_tasks.py").write_text("import nothing_like_this")
    assert message in one_line(rrf("train", *broken, "--task", *words))


def test_a_checkpoint_of_another_architecture(rrf):
    parent = rrf("train", *TINY_PPO).checkpoint
    wider = "policy.actor_cfg.backbone_cfg.hidden_features=[64, 32]"
    error = one_line(rrf("train", *TINY_PPO, wider, f"init_from={parent}"))
    assert f"{parent} does not have the architecture of the configured policy: " in error
    assert "actor.backbone.layers.2.weight is [64, 64], expected [32, 64]" in error


def test_a_truncated_checkpoint(rrf):
    path = rrf("train", *TINY_PPO).checkpoint
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "model.safetensors was changed after it was written" in one_line(rrf("play", path))
    assert "model.safetensors was changed" in one_line(rrf("train", *TINY_PPO))
    (path.parent / "result.json").unlink()
    assert "model.safetensors was changed" in one_line(rrf("train", *TINY_PPO))
    weights.unlink()
    assert "model.safetensors" in one_line(rrf("export", path, "--onnx", "policy.onnx"))


def test_a_run_whose_newest_checkpoint_is_damaged_says_how_to_go_on(rrf, home):
    words = ("train", *TINY_PPO, "--run-dir", "run")
    rrf(*words)
    (home / "run/global_step_4/manifest.json").unlink()
    message = (
        "error: run/global_step_4 has no manifest.json: not a checkpoint, or an incomplete copy; "
        "fetch it again. run/global_step_2 is intact; to continue from it: rm -r {}, then the same "
        "command again"
    )
    assert one_line(rrf(*words)) == message.format("run/global_step_4 run/result.json")
    (home / "run/result.json").unlink()
    assert one_line(rrf(*words)) == message.format("run/global_step_4")
    (home / "run/global_step_2/config.yaml").write_text("")
    assert "; start over with --no-resume" in one_line(rrf(*words))


def test_what_a_newer_rrf_wrote_is_not_called_damaged(rrf, home):
    words = ("train", *TINY_PPO, "--run-dir", "run")
    path = rrf(*words).checkpoint
    file = path / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format_version": 2}))
    for command in (words, ("play", path), ("train", *TINY_PPO, f"init_from={path}")):
        assert one_line(rrf(*command)).endswith(
            "manifest.json was written by a newer rrf (checkpoint of version 2, this rrf reads up "
            "to 1); install a newer rrf"
        )


def test_going_on_from_the_checkpoint_before_a_damaged_one_works_as_told(rrf, home):
    words = ("train", *TINY_PPO, "--run-dir", "run")
    path = rrf(*words).checkpoint
    intact = (path / "model.safetensors").read_bytes()
    (path / "trainer_state/optimizer.safetensors").write_bytes(b"")
    assert "run/global_step_2 is intact" in one_line(rrf(*words))
    shutil.rmtree(home / "run/global_step_4")
    assert "to continue from it: rm -r run/result.json, then" in one_line(rrf(*words))
    (home / "run/result.json").unlink()
    assert (rrf(*words).checkpoint / "model.safetensors").read_bytes() == intact


@pytest.mark.parametrize("name", ["result.json", "run.json"])
def test_a_broken_file_of_a_run_directory_is_named(rrf, home, name):
    words = ("train", *TINY_PPO, "--run-dir", "run")
    rrf(*words)
    for content in ("", "[]"):
        (home / "run" / name).write_text(content)
        error = one_line(rrf(*words))
        assert error.startswith(f"error: run/{name} is damaged (")
        assert f"rm run/{name}. Then run the same command again" in error
    (home / "run" / name).unlink()
    assert rrf(*words).checkpoint.name == "global_step_4"


def test_a_checkpoint_whose_interface_got_lost_is_still_no_vla_policy(rrf):
    path = rrf("train", *TINY_PPO).checkpoint
    (path / "interface.json").unlink()
    for words in (("play", path), ("eval", path), ("export", path, "--onnx", "policy.onnx")):
        error = one_line(rrf(*words))
        assert "global_step_4/interface.json is missing although manifest.json lists it" in error


@pytest.mark.parametrize(
    ("preset", "env", "package", "extra"),
    [
        ("go1-flat-ppo", (), "mjlab", "locomotion"),
        ("pendulum-ppo", (ENVPOOL,), "envpool", "envpool"),
    ],
)
def test_a_simulator_that_is_not_installed(rrf, monkeypatch, preset, env, package, extra):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    error = one_line(rrf("train", preset, "trackers=[]", *env))
    assert f"'{package}' is not installed; it comes with: uv pip install -e '" in error
    assert f"[{extra}]'" in error


def test_a_run_directory_of_another_config_shows_what_differs(rrf):
    rrf("train", *TINY_PPO, "--run-dir", "run")
    said = rrf("train", *TINY_PPO, "algorithm.gamma=0.5", "seed=3", "--run-dir", "run")
    assert one_line(said) == (
        "error: run holds a run with another config (algorithm.gamma: 0.98 -> 0.5; seed: 0 -> 3); "
        "give another --run-dir, or start over with --no-resume"
    )
    said = rrf("train", *TINY_PPO, "seed=3", "--run-dir", "run", "--no-resume")
    assert said.lines[-2].startswith("trained cartpole-ppo")


def test_files_that_are_no_run_are_neither_deleted_nor_written_beside(rrf, home):
    (home / "papers").mkdir()
    (home / "papers" / "thesis.txt").write_text("years of work")
    for words in ((), ("--no-resume",)):
        error = one_line(rrf("train", *TINY_PPO, "--run-dir", "papers", *words))
        assert "papers contains files, but not a run of `rrf train`" in error
        assert [path.name for path in (home / "papers").iterdir()] == ["thesis.txt"]
    error = one_line(rrf("train", *TINY_PPO, "--run-dir", "papers/thesis.txt"))
    assert "papers/thesis.txt is a file; give a directory" in error
    error = one_line(rrf("train", *TINY_PPO, "--run-dir", "papers/thesis.txt/run"))
    assert "papers/thesis.txt/run cannot be created: Not a directory" in error


def test_a_training_killed_while_it_puts_the_old_run_aside_leaves_a_run(rrf, home):
    rrf("train", *TINY_PPO, "--run-dir", "run")
    (home / "run/.replaced").mkdir()
    for path in list((home / "run").iterdir()):
        if path.name != ".replaced":
            path.rename(home / "run/.replaced" / path.name)
    assert rrf("train", *TINY_PPO, "--run-dir", "run").lines[-2].startswith("trained")
    assert not (home / "run/.replaced").exists()


def test_a_typo_costs_no_run(rrf, home):
    rrf("train", *TINY_PPO, "--run-dir", "run")
    before = contents(home / "run")
    for typo in ("env.task=CartPol-v1", "trackers=[tensorbord]"):
        one_line(rrf("train", *TINY_PPO, typo, "--run-dir", "run", "--no-resume"))
        assert contents(home / "run") == before
    assert rrf("train", *TINY_PPO, "--run-dir", "run").lines[-2].startswith("reused")


def test_checkpoints_of_others_make_no_run(rrf, home):
    (home / "theirs" / "global_step_10").mkdir(parents=True)
    error = one_line(rrf("train", *TINY_PPO, "--run-dir", "theirs", "--no-resume"))
    assert "theirs contains files, but not a run of `rrf train`" in error
    assert (home / "theirs" / "global_step_10").is_dir()


def test_two_trainings_do_not_share_a_directory(rrf, home, monkeypatch):
    monkeypatch.setattr("rrf.cli.training_run._PATIENCE_S", 0.5)
    with atomic.alone(home / "run", "busy"):
        error = one_line(rrf("train", *TINY_PPO, "--run-dir", "run"))
    assert "another `rrf train` is at work in run; wait for it, or give another" in error
    assert rrf("train", *TINY_PPO, "--run-dir", "run").code == 0


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_no_checkpoint(rrf, home):
    (home / "empty").mkdir()
    said = one_line(rrf("play", "empty"))
    assert said.startswith("error: 'empty' is neither a checkpoint (it has no manifest.json) nor")
    error = one_line(rrf("export", "nowhere", "--onnx", "policy.onnx"))
    assert "'nowhere' is neither a checkpoint" in error


def test_a_server_is_refused_a_place_before_anything_is_loaded(rrf):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = one_line(rrf("serve", "no-such-policy", "--port", taken.getsockname()[1]))
    assert "cannot listen at 127.0.0.1:" in said
    assert said.endswith("(Address already in use); choose another place with --port or --host")
    said = rrf("serve", "no-such-policy", "--host", "192.0.2.1", "--port", "0", "--insecure")
    assert "cannot listen at 192.0.2.1:0" in said.err.splitlines()[-1]


@pytest.mark.parametrize("command", ["serve", "eval"])
def test_a_device_that_is_not_known_is_told_before_the_policy_is_looked_up(rrf, command):
    said = one_line(rrf(command, "no-such-policy", "--device", "gpu"))
    assert "device is 'gpu', allowed: cpu, cuda, cuda:1, ..." in said


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("eval", "{run}", "--out", "/proc/x"), "/proc/x/evaluation.json cannot be written: "),
        (("play", "{run}", "--video", "/proc/x.mp4"), "/proc/x.mp4 cannot be written: "),
        (("export", "{run}", "--rsl-rl", "/proc/x.pt"), "/proc/x.pt cannot be written: "),
        (("eval", "{run}", "--renderer", "wrap"), "no renderer 'wrap'; did you mean 'warp'"),
        (("eval", "{run}", "--fitted-q", "nope"), "nope"),
        (("play", "{run}", "--viewer"), "--viewer opens a window, but there is no display here"),
    ],
)
def test_what_a_command_needs_is_checked_before_it_says_anything(
    rrf, home, monkeypatch, words, error
):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    run = rrf("train", *TINY_PPO, "max_iterations=1").checkpoint
    said = rrf(*(word.format(run=run) for word in words))
    assert (said.code, said.out) == (2, "")
    (line,) = said.err.splitlines()
    assert line.startswith("error: ")
    assert error in line


@pytest.mark.parametrize(
    ("env", "task", "message"),
    [
        ("calvin", "chain", "no expert shows 'chain' of CALVIN.* rotate_red_block_right, .*…$"),
        ("libero", "KITCHEN_SCENE3_turn_on_the_stove", "experts: put_the_bowl_on_the_plate$"),
        ("libero", "put_the_bowl", "the nearest of 290: put_the_bowl_on_the_stove, "),
        ("robotwin", "open_laptop", "open_laptop needs objects of RoboTwin's assets.*ASSETS_PATH"),
    ],
)
def test_a_task_that_cannot_be_recorded_is_refused_with_the_reason(env, task, message, rrf):
    assert re.search(message, one_line(rrf("data", "collect", "--env", env, "--tasks", task)))
