"""Errors on recorded episodes, beside two baselines."""

import json
import types

import numpy as np
import pytest
from typer.testing import CliRunner

from rrf.cli import app
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.dataset.history import as_seen
from rrf.data.dataset.opening import open_dataset
from rrf.data.dataset.stats import norm_stats
from rrf.data.schema import ACTION
from rrf.evaluation.open_loop.errors import HOLD, MEAN, OLDEST, OTHER, POLICY, open_loop
from rrf.evaluation.open_loop.page import open_loop_page
from tests.evaluation.reports.test_report import Page
from tests.runners.supervised.conftest import (
    SCHEMA,
    dataset,  # noqa: F401 (a fixture)
    make_episode,
    tiny_run_cfg,
)

STATS = {ACTION: {"mean": [0.5, -0.5], "std": [2.0, 0.5]}}


class Constant:
    """Predicts the same action for ever."""

    def __init__(self, action, steps):
        self.chunk = np.broadcast_to(np.array(action, np.float32), (steps, len(action)))

    def sample(self, observation, *, greedy):
        actions = np.repeat(self.chunk[None], len(observation), 0)
        return types.SimpleNamespace(actions=actions)


def test_errors_are_those_worked_out_from_the_recording(dataset):  # noqa: F811
    frames = open_dataset(dataset, 3, episodes=[3, 7])
    result = open_loop(Constant([0.25, 0.0], 3), frames, STATS, batch_size=5)
    assert result.num_frames == 24
    for who, guess in ((POLICY, [0.25, 0.0]), (MEAN, [0.5, -0.5])):
        wanted = []
        for step in range(3):  # the last steps of an episode have no action any more
            left = [frames.actions_of(n)[step:] for n in range(2)]
            wanted.append(np.abs(np.concatenate(left) - np.array(guess, np.float32)).mean(0))
        assert result.errors[who] == pytest.approx(np.array(wanted), abs=1e-6)
    first = [np.abs(np.diff(frames.actions_of(n), axis=0)) for n in range(2)]
    begin = [np.abs(frames.actions_of(n)[:1] - [0.5, -0.5]) for n in range(2)]
    assert result.errors[HOLD][0] == pytest.approx(np.concatenate([*first, *begin]).mean(0))
    in_std = result.errors[POLICY] / np.array([2.0, 0.5])
    assert result.total(POLICY) == pytest.approx(in_std.mean())
    assert [trace.number for trace in result.episodes] == [3, 7]
    assert np.array_equal(result.episodes[1].demonstrated, frames.actions_of(1))


class Looks:
    """Predicts how bright the upper half of an image is."""

    def sample(self, observation, *, greedy):
        (images_bhw3,) = observation.images.values()
        bright_b = brightness(images_bhw3)
        actions = np.broadcast_to(bright_b[:, None, None], (len(observation), 3, 2))
        return types.SimpleNamespace(actions=actions)


def brightness(images_bhw3):
    return images_bhw3[:, : images_bhw3.shape[1] // 2].reshape(len(images_bhw3), -1).mean(1) / 255


def test_a_policy_that_looks_is_misled_by_the_images_of_another_frame(dataset):  # noqa: F811
    frames = open_dataset(dataset, 3, episodes=[3, 7])
    blind = open_loop(Constant([0.25, 0.0], 3), frames, STATS)
    np.testing.assert_array_equal(blind.errors[OTHER], blind.errors[POLICY])
    assert not blind.images_help
    seeing = open_loop(Looks(), frames, STATS, batch_size=5)
    assert np.abs(seeing.errors[OTHER] - seeing.errors[POLICY]).max() > 1e-3
    # of 24 frames, each has the image of the one that is 12 further on
    actions = np.concatenate([frames.actions_of(n) for n in range(2)])
    (images,) = frames.batch(np.arange(24)).observation.images.values()
    wanted = np.abs(np.roll(brightness(images), -12)[:, None] - actions).mean(0)
    assert seeing.errors[OTHER][0] == pytest.approx(wanted)


class LooksSeldom(Looks):
    """Predicts how bright the image was when it looked last."""

    feature_period, max_age_steps, control_hz = 1, 4, 10.0

    def held_too_long(self, steps):
        return None

    def sample(self, observation, *, greedy):
        return super().sample(as_seen(observation), greedy=greedy)


def test_a_policy_that_looks_seldom_is_also_tried_with_the_oldest_features(dataset):  # noqa: F811
    frames = open_dataset(dataset, 3, episodes=[3, 7])
    result = open_loop(LooksSeldom(), frames, STATS, batch_size=5)
    assert OLDEST not in open_loop(Looks(), frames, STATS).errors
    actions = np.concatenate([frames.actions_of(n) for n in range(2)])
    (images,) = frames.batch(np.arange(24)).observation.images.values()
    looked_at = np.concatenate([np.maximum(np.arange(12) - 4, 0) + start for start in (0, 12)])
    wanted = np.abs(brightness(images[looked_at])[:, None] - actions).mean(0)
    assert result.errors[OLDEST][0] == pytest.approx(wanted)
    assert OLDEST in open_loop_page(result, "mine", "some frames")


def test_a_dimension_that_never_moves_does_not_count(dataset):  # noqa: F811
    frames = open_dataset(dataset, 3, episodes=[3, 7])
    still = {ACTION: {"mean": [0.5, -0.5], "std": [2.0, 1e-8]}}
    result = open_loop(Constant([0.25, 0.0], 3), frames, still)
    assert result.total(POLICY) == pytest.approx((result.errors[POLICY][:, 0] / 2.0).mean())
    assert result.to_dict()["constant"] == [frames.schema.action.names[1]]


def write_homing(root, num_episodes):
    """Episodes whose action is -0.8 times the state, so that every state tells it."""
    episodes = []
    for number in range(num_episodes):
        one = make_episode(number)
        one.state = np.random.default_rng(number).uniform(-1, 1, one.state.shape)
        one.state = one.state.astype(np.float32)
        one.action = -0.8 * one.state
        episodes.append(one)
    write_dataset(root, SCHEMA, episodes)
    (root / "norm_stats.json").write_text(json.dumps(norm_stats(root)))
    return root


def evaluated(run, place, out):
    words = ["eval", str(run), "--held-out", str(place), "--out", str(out)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    first, _ = done.output.split("\n", 1)
    assert first.startswith("comparing ")
    assert first.endswith(f" in {out}")
    return json.loads((out / "open_loop.json").read_text())


@pytest.mark.slow
def test_the_error_on_episodes_that_were_held_out_falls_with_training(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    place = write_homing(tmp_path / "homing", num_episodes=40)
    found = {}
    for steps in (1, 150):
        cfg = tiny_run_cfg(place, max_steps=steps, save_interval=steps, validation_fraction=0.1)
        cfg.build(tmp_path / f"run-{steps}").run()
        out = tmp_path / f"out-{steps}"
        found[steps] = evaluated(tmp_path / f"run-{steps}", place, out)
    assert found[150]["episodes"] == [9, 19, 29, 39]
    assert found[150]["error_in_std"][POLICY] < 0.9 * found[1]["error_in_std"][POLICY]
    assert found[150]["error_in_std"][MEAN] == found[1]["error_in_std"][MEAN]
    page = (out / "report.html").read_text()
    assert "Episode 9: the first step of every predicted chunk" in page
    assert page.count("<svg") == 1 + 2 * 3
    assert f"{found[150]['error_in_std'][HOLD]:.3f}" in page


def test_names_on_the_page_are_only_text(dataset):  # noqa: F811
    result = open_loop(Constant([0.25, 0.0], 3), open_dataset(dataset, 3, episodes=[3]), STATS)
    odd = "<script>alert(1)</script>"
    result.names, result.units = (odd, "dy"), ["m", ""]
    page = Page(text := open_loop_page(result, odd, odd))
    assert "script" not in page.tags
    assert page.text.count(odd) >= 4
    assert text == open_loop_page(result, odd, odd)


def test_what_does_not_go_together_is_refused(dataset, tmp_path):  # noqa: F811
    words = ["eval", str(tmp_path), "--held-out", str(dataset), "--gate", "configs/gates/tiny.yaml"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code != 0
    assert "--held-out runs no simulation" in str(done.exception)
