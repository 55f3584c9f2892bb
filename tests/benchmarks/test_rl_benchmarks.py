"""Benchmarks of state-based control: which there are, what a row says, how peers are asked."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest

from benchmarks import (
    harness,
    offline_scores,
    peers,
    record,
    rl,
    rl_algorithms,
    rl_curves,
    rl_family,
    rl_family_curves,
    rl_peers,
)
from benchmarks.clock import Pace, median_paces, pace_between
from benchmarks.harness import Bench
from benchmarks.peers import PEERS, NotMeasuredError
from benchmarks.rl_curve_chart import Point, chart, interquartile
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.evaluation.control.configs import ControlProtocolCfg
from rrf.evaluation.control.evaluate import block_env
from rrf.evaluation.protocols.files import load_protocol
from rrf.evaluation.protocols.limits import LimitCfg
from rrf.presets import PRESETS, resolve

NAMED = (
    *("go1_flat_env_steps_per_s", "go1_flat_ratio_vs_mjlab_cpu", "go1_flat_walk_wall_s"),
    *("go1_flat_tracking_error", "ppo_halfcheetah_ratio_vs_sb3", "sac_updates_per_cpu_s"),
    "sac_ratio_vs_sb3",
)


@pytest.fixture
def _results_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "RESULTS", tmp_path)


FAMILY = (
    *("iql_updates_ratio_vs_d3rlpy", "cql_updates_ratio_vs_d3rlpy"),
    *("tdmpc2_plan_ms", "tdmpc2_ratio_vs_official", "gail_ratio_vs_imitation"),
)


def test_the_promised_numbers_can_be_measured():
    assert set(NAMED) <= set(rl.IDS)
    assert set(FAMILY) == set(rl_family.IDS)


def test_d4rl_scores_are_0_for_random_actions_and_100_for_an_expert():
    hopper = offline_scores.TASKS["hopper"]
    assert offline_scores.score(hopper, hopper.lowest) == 0
    assert offline_scores.score(hopper, hopper.highest) == 100
    middle, low, high = interquartile([1.0, 2.0, 3.0, 100.0])
    assert middle == 2.5
    assert low < middle < high


def test_a_peer_that_is_missing_is_named(capsys):
    with pytest.raises(SystemExit, match="2 not measured"):
        rl_family.main(["iql_updates_ratio_vs_d3rlpy", "tdmpc2_plan_ms", "--small"])
    said = capsys.readouterr().out
    assert "'d3rlpy' is not installed" in said
    assert "give a checkout of github.com/nicklashansen/tdmpc2 with --source" in said


def test_an_unknown_id_is_answered_with_the_closest_one(capsys):
    with pytest.raises(SystemExit):
        rl.main(["sac_updates_per_s"])
    assert "sac_updates_per_cpu_s" in capsys.readouterr().err


def test_a_pace_is_the_median_of_the_iterations():
    # 100 steps each; they took 1, 4 and 2 wall seconds and 2, 2 and 5 CPU-seconds.
    marks = [(100, 0.0, 0.0), (200, 1.0, 2.0), (300, 5.0, 4.0), (400, 7.0, 9.0)]
    assert pace_between(marks) == Pace(steps_per_s=50.0, steps_per_cpu_s=50.0)


def test_peers_are_measured_in_turns_and_the_median_counts():
    order = []
    ours = iter([Pace(10, 1), Pace(30, 3), Pace(20, 2)])
    others = iter([Pace(5, 5), Pace(7, 7), Pace(6, 6)])

    def we():
        order.append("we")
        return next(ours)

    def they():
        order.append("they")
        return next(others)

    assert median_paces(we, they, repeats=3) == [Pace(20, 2), Pace(6, 6)]
    assert order == ["we", "they"] * 3


def test_a_row_has_the_ratio_by_wall_and_by_cpu_seconds():
    bench = Bench(command="python -m benchmarks.rl x_of")
    row = bench.paces("x", Pace(6000.0, 4000.0), "another", Pace(2000.0, 1000.0))
    assert (row["value"], row["peer_value"], row["ratio"]) == (6000.0, 2000.0, 3.0)
    assert (row["per_cpu_s"], row["ratio_per_cpu_s"]) == (4000.0, 4.0)
    assert row["command"] == "python -m benchmarks.rl x_of"


def test_a_ratio_above_one_means_that_ours_is_better():
    bench = Bench()
    assert bench.compare("x", 30.0, "steps/s", "another", 20.0)["ratio"] == 1.5
    assert bench.compare("x", 30.0, "MB", "another", 60.0, is_cost=True)["ratio"] == 2.0
    assert bench.compare("x", 30.0, "steps/s", None, None)["ratio"] is None


def test_a_row_names_the_first_id_of_what_measures_it(capsys):
    ids = {"a": lambda bench: bench.number("b", 1.0, bench.command)}
    harness.main("x", None, ids | {"b": ids["a"]}, ["b", "--dry-run"])
    assert capsys.readouterr().out == "b: 1 python -m benchmarks.x a\n"


def test_a_peer_is_run_by_its_own_interpreter():
    command = Bench("/opt/peers/bin/python").peer_command("sb3-ppo", "--steps", 2048)
    program = ["/opt/peers/bin/python", "-m", "benchmarks.rl_peers"]
    assert command == [*program, "sb3-ppo", "--steps", "2048"]


def test_a_checkout_is_told_from_others_and_run_by_this_interpreter(tmp_path):
    (tmp_path / "corl" / "algorithms" / "offline").mkdir(parents=True)
    (tmp_path / "corl" / "algorithms" / "offline" / "iql.py").touch()
    bench = Bench("/opt/peers/bin/python", sources=[tmp_path / "other", tmp_path / "corl"])
    program = [sys.executable, "-m", "benchmarks.corl_peer", str(tmp_path / "corl")]
    assert bench.peer_command("corl-iql", "--updates", 2) == [*program, "iql", "--updates", "2"]


def test_a_peer_is_found_in_the_environment_that_its_command_makes(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "VENVS", tmp_path)
    monkeypatch.setattr(peers, "ROOT", tmp_path)
    sbx = PEERS["sbx"]
    with pytest.raises(NotMeasuredError, match="type: uv venv sb3 && uv pip install --python sb3"):
        sbx.interpreter()
    python = tmp_path / "sb3" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert sbx.interpreter() == str(python)
    assert sbx.interpreter("/opt/other") == "/opt/other"


@pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
def test_what_the_table_of_peers_names_is_there(peer):
    for name in [*peer.used_by, *filter(None, [peer.script])]:
        assert (record.ROOT / "benchmarks" / f"{name}.py").is_file()
    assert peer.packages or peer.file or find_spec(peer.module)


def test_the_peer_lerobot_is_the_locked_one():
    locked = (record.ROOT / "requirements.lock").read_text()
    assert PEERS["lerobot"].name.replace(" ", "==") in locked.splitlines()


def test_peers_need_nothing_of_this_package():
    program = (
        "import sys; sys.path.insert(0, '.'); from benchmarks import rl_peers\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('rrf', 'torch')])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], cwd=record.ROOT, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_a_missing_package_is_answered_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    with pytest.raises(SystemExit, match=r"stable-baselines3==2\.9\.2 sbx-rl==0\.28\.0"):
        rl_peers._require("stable_baselines3")


def test_mjlab_needs_an_iteration_after_the_one_that_is_left_out(capsys):
    with pytest.raises(SystemExit):
        rl_peers.main(["mjlab-ppo", "--iterations", "1"])
    assert "allowed: 2 or more" in capsys.readouterr().err


def test_a_peer_that_fails_is_a_number_not_measured(tmp_path):
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\necho 'not installed; type: x' >&2\nexit 1\n")
    failing.chmod(0o755)
    with pytest.raises(NotMeasuredError, match="sb3-ppo: not installed; type: x"):
        Bench(str(failing)).peer("sb3-ppo")


def test_a_peer_is_evaluated_as_often_as_asked_while_it_learns(capsys):
    words = rl_peers._words(["sb3-sac", "--steps", "100", "--points", "4", "--episodes", "2"])
    curve = rl_peers._Curve(words, play=lambda: -1.0)
    for steps in range(8, 105, 8):  # more than asked, as PPO does
        curve.reach(steps)
    points = [(32, -1.0), (56, -1.0), (80, -1.0), (104, -1.0)]
    assert curve.results() == {"return": -1.0, "curve": points}
    with pytest.raises(SystemExit):
        rl_peers._words(["sb3-sac", "--points", "4"])
    assert "--episodes is 0" in capsys.readouterr().err


def test_peers_play_the_episodes_of_our_curves():
    seeds = rl_curves.starts()
    words = rl_peers._words(["sb3-sac", "--starts", *map(str, seeds)])
    env = gymnasium.make("Pendulum-v1")
    begun = []

    def act(observation):
        begun.append(observation)
        return np.zeros(1, np.float32)

    mean = rl_peers._played(env, act, words)
    assert -1700 < mean < -500
    cfg = GymnasiumEnvCfg(task="Pendulum-v1", num_envs=rl_curves.NUM_EPISODES)
    protocol = ControlProtocolCfg(
        name="curve",
        env=cfg,
        seed=rl_curves.SEED,
        episodes_per_task=len(seeds),
        max_episode_steps=200,
        success={"length": LimitCfg(min=1)},
    )
    with block_env(protocol, block=0) as ours:
        np.testing.assert_array_equal(begun[::200], ours.get_observations()["policy"].numpy())


def test_a_peers_line_is_the_middle_of_what_was_found(tmp_path, monkeypatch):
    monkeypatch.setattr(rl_family_curves, "FOLDER", tmp_path)
    peer = rl_family_curves.PeerLine("CORL IQL", "corl-iql", ())
    advice = "CORL 6afec90: give a checkout of github.com/tinkoff-ai/CORL with --source"
    with pytest.raises(NotMeasuredError, match=advice):
        rl_family_curves.of_peer(peer, [0], Bench())
    for seed in range(4):
        result = {"curve": [[50, 1.0 * seed], [100, 10.0 * seed**2]]}
        (tmp_path / f"corl-iql-seed{seed}.json").write_text(json.dumps(result))
    line = rl_family_curves.of_peer(peer, [0, 1, 2, 3], Bench())
    assert [(point.steps, point.mean) for point in line] == [(50, 1.5), (100, 25.0)]


def test_what_a_peer_prints_last_is_what_it_found(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho compiling\necho '{\"steps_per_s\": 7.0}'\n")
    python.chmod(0o755)
    assert Bench(str(python)).peer("envpool") == {"steps_per_s": 7.0}


@pytest.mark.usefixtures("_results_elsewhere")
def test_what_was_not_measured_is_said_and_not_saved(tmp_path, monkeypatch, capsys):
    def measure(bench):
        raise NotMeasuredError("torch sees no GPU")

    monkeypatch.setitem(rl.IDS, "envpool_ratio", measure)
    monkeypatch.setitem(
        rl.IDS, "replay_1m_mb", lambda bench: [record.number("a", 1, "MB", command="x")]
    )
    with pytest.raises(SystemExit, match="1 not measured"):
        rl.main(["envpool_ratio", "replay_1m_mb"])
    assert "skipped: torch sees no GPU" in capsys.readouterr().out
    assert [row["id"] for row in json.loads((tmp_path / "rl.json").read_text())] == ["a"]


@pytest.mark.usefixtures("_results_elsewhere")
def test_small_sizes_save_nothing(tmp_path, monkeypatch):
    row = record.number("a", 1, "MB", command="x")
    monkeypatch.setitem(rl.IDS, "replay_1m_mb", lambda bench: [row])
    rl.main(["replay_1m_mb", "--small"])
    assert not list(tmp_path.iterdir())


ROWS = [
    rl_curves.Row(2048, 1.5, 1.25, None, -10.5, 2.0),
    rl_curves.Row(4096, 3.0, 2.5, 12.25, 20.0, 4.0),
]


def test_a_curve_reads_back_as_it_was_written(tmp_path):
    path = tmp_path / "x-seed0.csv"
    rl_curves.write(path, ROWS)
    assert path.read_text().splitlines()[:2] == [
        "steps,wall_s,cpu_s,return_train,return_greedy_mean,return_greedy_std",
        "2048,1.5,1.25,,-10.5,2.0",
    ]
    assert rl_curves.read(path) == ROWS


def test_the_last_returns_of_all_seeds_stand_beside_the_published_one():
    other = [rl_curves.Row(4096, 5.0, 4.5, 1.0, 30.0, 1.0)]
    row = rl_curves.number_row("hopper-ppo", {0: ROWS, 1: other})
    assert (row["id"], row["value"], row["seeds"]) == ("return_hopper-ppo", 25.0, [0, 1])
    assert row["peer"] == "Stable-Baselines3 RL Zoo 2410 ± 10 (published)"
    assert (row["peer_value"], row["ratio"]) == (2410.0, 0.0104)
    assert (row["train_wall_s"], row["train_cpu_s"]) == (4.0, 3.5)


def test_of_costs_a_smaller_one_gives_a_ratio_above_one():
    cheaper = [rl_curves.Row(100_000, 1.0, 1.0, None, -86.0, 1.0)]
    assert rl_curves.number_row("pendulum-ppo", {0: cheaper})["ratio"] == 2.0


def test_a_run_that_was_killed_is_not_complete():
    cfg = rl_curves.config("halfcheetah-ppo", 0, ["max_iterations=4"])
    assert not rl_curves.is_complete(ROWS[:1], cfg)
    assert rl_curves.is_complete(ROWS, cfg)


def test_a_curve_goes_on_where_its_run_was_killed(tmp_path, monkeypatch):
    cfg = rl_curves.config("cartpole-ppo", 0, ["max_iterations=4"])
    measure, calls = rl_curves.greedy_returns, []

    def measure_until_killed(runner):
        calls.append(runner)
        if len(calls) == 7:  # the third of the second run
            raise KeyboardInterrupt
        return measure(runner, num_episodes=3)

    monkeypatch.setattr(rl_curves, "greedy_returns", measure_until_killed)
    undisturbed = rl_curves.train(cfg, tmp_path / "whole.csv", tmp_path / "whole")
    path, run_dir = tmp_path / "killed.csv", tmp_path / "killed"
    with pytest.raises(KeyboardInterrupt):
        rl_curves.train(cfg, path, run_dir)
    assert [row.steps for row in rl_curves.read(path)] == [256, 512]
    whole = rl_curves.train(cfg, path, run_dir)

    def returns(rows):
        return [(row.steps, row.return_greedy_mean, row.return_greedy_std) for row in rows]

    assert returns(whole) == returns(undisturbed)
    assert len({row.return_greedy_mean for row in whole}) > 1
    assert [row.wall_s for row in whole] == sorted(row.wall_s for row in whole)


def test_published_returns_are_those_of_presets():
    assert set(rl_curves.PUBLISHED) <= set(PRESETS)


def test_a_picture_shows_the_band_and_every_seed():
    curves = {
        "seed 0": [Point(0, 0.0, 0.0, 0.0), Point(100, 50.0, 50.0, 50.0)],
        "seed <1>": [Point(100, 10, 5, 15)],
    }
    svg = chart("a & b", curves, band=(20.0, 100.0), band_label="published")
    root = ElementTree.fromstring(svg)
    name = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in root.iter(f"{name}text")]
    assert {"a & b", "seed 0", "seed <1>", "published", "0", "100"} <= set(texts)
    # Both the line and the band show how high 50 is: the line rises by that from 0, the band is 80.
    [line] = root.findall(f".//{name}g[@id='seed 0']/{name}path")
    [band, *_] = [p for p in root.iter(f"{name}path") if "fill: #fde68a" in p.get("style", "")]
    heights = [_heights(path.get("d")) for path in (line, band)]
    assert heights[0] / 50 == pytest.approx(heights[1] / 80, rel=1e-3)


def _heights(path: str) -> float:
    """How much of the picture's height a path of straight lines takes."""
    numbers = [float(number) for number in re.findall(r"-?[0-9.]+", path)]
    return max(numbers[1::2]) - min(numbers[1::2])


def test_the_table_of_algorithms_has_a_row_for_each_that_was_measured():
    measured = {"value": -150.0, "train_cpu_s": 61.2, "peer_value": None}
    smoother = measured | {"peer_value": -149.0, "smoothness": 0.004, "peer_smoothness": 0.008}
    numbers = [{"id": "algorithm_ppo"} | measured, {"id": "algorithm_caps"} | smoother]
    _, _, ppo, caps = rl_algorithms.overview(numbers).splitlines()
    assert "`rrf train pendulum-ppo` | Pendulum: return -150 (61 CPU-s) |" in ppo
    assert caps.endswith("return -150 (61 CPU-s); PPO: -149. Sm -50 % |")


@pytest.mark.parametrize("key", rl_algorithms.ALGORITHMS)
def test_what_the_table_of_algorithms_names_is_there(key):
    algorithm = rl_algorithms.ALGORITHMS[key]
    target, *overrides = algorithm.words.split()
    cfg = resolve(target, overrides)
    assert (record.ROOT / "rrf" / "algorithms" / algorithm.file).is_file()
    protocol = load_protocol(record.ROOT / "configs/protocols" / f"{algorithm.protocol}.yaml")
    assert protocol.is_about(cfg.to_dict())
    assert algorithm.beside is None or algorithm.beside in rl_algorithms.ALGORITHMS
