"""lerobot's reward models score recordings: real lerobot, tiny sizes, random weights."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from rrf.cli import app
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.dataset.scores import read_scores, write_scores
from rrf.data.dataset.stats import norm_stats
from rrf.data.schema import Episode, Schema, Vector
from rrf.policies.vla.lerobot.rewards import BACKBONES, REFUSED, RewardModel
from tests.policies.vla.lerobot import tiny_backbones as tiny

LENGTHS = [6, 4, 5, 6]


def episode(number: int, length: int) -> Episode:
    rng = np.random.default_rng(number)
    return Episode(
        images={"front": rng.integers(0, 256, (length, 32, 32, 3), dtype=np.uint8)},
        state=rng.uniform(-1, 1, (length, 2)).astype(np.float32),
        action=rng.uniform(-1, 1, (length, 1)).astype(np.float32),
        instruction="open a door" if number % 2 else "close drawer",
        source=f"made:{number}",
    )


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    root = tmp_path_factory.mktemp("datasets") / "doors"
    vectors = Vector(("x", "y"), "m"), Vector(("dx",), "1", (-1.0,), (1.0,))
    schema = Schema(10, (32, 32), ("front",), *vectors, has_reward=False, has_success=False)
    write_dataset(root, schema, (episode(i, length) for i, length in enumerate(LENGTHS)))
    (root / "norm_stats.json").write_text(json.dumps(norm_stats(root)))
    return root


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Folders of reward models, as lerobot writes them: type -> (folder, lerobot's model)."""
    root = tmp_path_factory.mktemp("rewards")
    return {kind: _written(kind, root / kind) for kind in BACKBONES}


def _written(kind, root):
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.rewards.factory import (
        get_reward_model_class,
        make_reward_model_config,
        make_reward_pre_post_processors,
    )

    torch.manual_seed(0)
    write = tiny.write_tiny_resnet if kind == "reward_classifier" else tiny.write_tiny_qwen3_vl
    common = {BACKBONES[kind]: write(root / "backbone"), "device": "cpu"}
    special = {
        "reward_classifier": {
            "num_cameras": 1,
            "hidden_dim": 8,
            "latent_dim": 8,
            "input_features": {
                "observation.images.front": PolicyFeature(FeatureType.VISUAL, (3, 32, 32))
            },
        },
        "robometer": {
            "pretrained_path": None,
            "image_key": "observation.images.front",
            "torch_dtype": "float32",
            "progress_discrete_bins": 4,
        },
        "topreward": {
            "image_key": "observation.images.front",
            "torch_dtype": "float32",
            "max_frames": 4,
        },
    }
    config = make_reward_model_config(kind, **common, **special[kind])
    model = get_reward_model_class(kind)(config).eval()
    folder = root / "pretrained_model"
    folder.mkdir()
    model._save_pretrained(folder)
    if kind == "reward_classifier":
        grey = {"mean": np.full((3, 1, 1), 0.4), "std": np.full((3, 1, 1), 0.2)}
        stats = {"observation.images.front": grey}
        make_reward_pre_post_processors(config, dataset_stats=stats)[0].save_pretrained(folder)
    return folder, model


@pytest.mark.parametrize("kind", BACKBONES)
def test_the_command_scores_every_frame(kind, written, dataset, tmp_path):
    folder, _ = written[kind]
    out = tmp_path / "scores.parquet"
    words = ["data", "score", dataset, "--model", folder, "--out", out]
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0
    assert "doors: 21 frames of 4 episodes" in done.output
    table = pd.read_parquet(out)
    assert table.groupby("episode_index").size().tolist() == LENGTHS
    assert np.isfinite(table["score"]).all()
    if kind != "topreward":
        assert table["score"].between(0, 1).all()
    assert table["score"].nunique() > 4


def test_a_classifier_gives_the_probability_that_lerobots_gives(written):
    folder, theirs = written["reward_classifier"]
    shown = episode(0, 6)
    images = torch.from_numpy(shown.images["front"]).movedim(-1, 1).float() / 255
    expected = theirs.predict([(images - 0.4) / 0.2]).probabilities.detach().numpy()
    np.testing.assert_allclose(RewardModel(folder).scores(shown), expected, atol=1e-6)


def test_robometer_and_topreward_see_frames_from_the_first_to_the_present(written):
    for kind in ("robometer", "topreward"):
        judge, shown = RewardModel(written[kind][0]), episode(0, 6)
        score_t = judge.scores(shown)
        shown.images["front"][4:] = 0  # the future of frame 3 does not matter to it
        changed_t = judge.scores(shown)
        np.testing.assert_allclose(changed_t[:4], score_t[:4], atol=1e-6)
        assert (changed_t[4:] != score_t[4:]).all()


def test_what_cannot_be_run_is_refused_by_name(written, dataset, tmp_path):
    folder, _ = written["topreward"]
    settings = json.loads((folder / "config.json").read_text())

    def refused(change, message, **given):
        (tmp_path / "config.json").write_text(json.dumps(settings | change))
        with pytest.raises(ValueError, match=message):
            RewardModel(tmp_path, **given)

    refused({"type": "sarm"}, "allowed: reward_classifier, robometer, topreward: lerobot loads op")
    refused({"type": "act"}, "reward model 'act'")
    refused({"magic": 1}, r"config\.json is not what the installed lerobot writes: .*`magic`")
    refused({"vlm_name": "Qwen/Qwen3-VL-8B-Instruct"}, r"fetch the model \(hf download Qwen/")
    code = tmp_path / "code"
    code.mkdir()
    (code / "config.json").write_text('{"auto_map": {"AutoModel": "evil.Model"}}')
    refused({}, "names Python code in auto_map, which is not run", backbone=code)
    judge = RewardModel(folder, camera="top")
    with pytest.raises(ValueError, match=r"sees the camera top, but made:0 has front; .* --camera"):
        judge.scores(episode(0, 4))
    (tmp_path / "config.json").unlink()
    with pytest.raises(ValueError, match=r"config\.json is missing"):
        RewardModel(tmp_path)


def test_every_reward_model_that_lerobot_has_is_taken_or_refused():
    from lerobot.configs.rewards import RewardModelConfig
    from lerobot.rewards import factory

    assert factory.RewardClassifierConfig
    assert set(RewardModelConfig.get_known_choices()) == set(BACKBONES) | set(REFUSED)


def test_scores_belong_to_one_dataset_and_its_lengths(tmp_path):
    file = tmp_path / "scores.parquet"
    write_scores(file, "doors", {0: np.array([0.0, 0.5]), 3: np.array([1.0])}, {"type": "x"})
    first, third = read_scores([file], "doors", {3: 1, 0: 2})
    assert (first.tolist(), third.tolist()) == ([1.0], [0.0, 0.5])
    with pytest.raises(ValueError, match=r"no scores of the dataset windows: .* is of doors"):
        read_scores([file], "windows", {0: 2})
    with pytest.raises(ValueError, match="has 2 scores of episode 0, which has 3 frames"):
        read_scores([file], "doors", {0: 3})
    with pytest.raises(ValueError, match="there is no"):
        read_scores([tmp_path / "none"], "doors", {})
