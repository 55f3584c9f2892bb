"""Training on several datasets: what is drawn, what a run is known by, and where data may lie."""

import dataclasses
import json

import numpy as np
import pytest

from rrf.cli.training_run import run_training
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.dataset import opening
from rrf.data.dataset.image_store import ImageStore
from rrf.data.dataset.reader import LeRobotReader
from rrf.data.dataset.stats import norm_stats
from rrf.data.language import Language
from rrf.data.schema import STATE
from rrf.registry.lineage_sources import collect_lineage
from rrf.runners.supervised.frames import open_split, split_of
from tests.data.s3_server import s3  # noqa: F401
from tests.runners.supervised.conftest import SCHEMA, make_episode, tiny_run_cfg, write_synthetic

URL = "s3://robots/sets/squares"


@pytest.fixture
def small(tmp_path):
    """The first four episodes of `dataset`, of 12 frames each."""
    return write_synthetic(tmp_path / "small", num_episodes=4)


def test_frames_are_drawn_by_weight_and_held_out_in_every_dataset(dataset, small):
    split = split_of(tiny_run_cfg(dataset, mixture={str(small): 3.0}))
    # every fourth episode is held out: 2 of 8 and 1 of 4
    assert (split.training.num_frames, split.validation.num_frames) == (6 * 12 + 3 * 12, 3 * 12)
    draws = np.concatenate([split.training.draw(12, seed=0, step=step) for step in range(9)])
    # an epoch of 108 draws; 72 frames weigh 72, 36 frames weigh 108
    assert ((draws >= 72).sum(), len(draws)) == (65, 108)
    alone = open_split(small, 2, None, 0.25).training.batch(np.arange(36))
    together = split.training.batch(np.arange(72, 108))
    np.testing.assert_array_equal(together.observation.state, alone.observation.state)


def test_a_mixture_is_normalised_by_all_frames_it_learns_from(dataset, small, tmp_path):
    cfg = tiny_run_cfg(dataset, mixture={str(small): 3.0})
    runner = cfg.build(tmp_path / "run")
    assert runner.norm_stats[STATE]["count"] == [108]
    states = np.concatenate(
        [open_split(root, 2, None, 0.25).training.vectors(STATE) for root in (dataset, small)]
    )
    np.testing.assert_allclose(runner.norm_stats[STATE]["mean"], states.mean(0), rtol=1e-5)
    assert runner.run()["steps"] == 20


def test_one_dataset_is_read_and_normalised_as_ever(dataset):
    split = split_of(tiny_run_cfg(dataset))
    assert isinstance(split.training, LeRobotReader)
    assert split.norm_stats is None
    published = json.loads((dataset / "norm_stats.json").read_text())
    assert split.training.norm_stats == published


def test_datasets_that_do_not_fit_are_named(dataset, small):
    info = json.loads((small / "meta/info.json").read_text())
    (small / "meta/info.json").write_text(json.dumps(info | {"fps": 8}))
    with pytest.raises(ValueError, match=r"fps of .*squares is 16, but of .*small it is 8"):
        split_of(tiny_run_cfg(dataset, mixture={str(small): 1.0}))


@pytest.mark.parametrize(("name", "weight"), [("lab", 0), ("lab", -1), ("here", 1)])
def test_a_weight_that_is_none_or_a_dataset_named_twice_is_refused(name, weight):
    with pytest.raises(ValueError, match=rf"mixture is {{{name}: .*allowed: datasets other than"):
        tiny_run_cfg("here", mixture={name: weight})


def test_a_weight_without_bound_is_refused():
    with pytest.raises(ValueError, match=r"mixture\.lab\n.* finite number"):
        tiny_run_cfg("here", mixture={"lab": float("inf")})


def test_a_run_is_known_by_the_content_of_all_its_datasets(dataset, small, tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    cfg = tiny_run_cfg(dataset, mixture={str(small): 2.0}, max_steps=2)
    first = run_training(cfg)
    assert run_training(cfg).reused
    assert run_training(cfg.replace(cache_dir=str(tmp_path / "cache"))).reused
    manifest = json.loads((tmp_path / first.checkpoint / "manifest.json").read_text())
    datasets = manifest["lineage"]["datasets"]
    assert [one["name"] for one in datasets] == [str(dataset), str(small)]
    assert [one["num_frames"] for one in datasets] == [96, 48]
    (small / "README.md").write_text("another version")
    second = run_training(cfg)
    assert (second.reused, second.checkpoint != first.checkpoint) == (False, True)


def test_images_that_do_not_fit_in_memory_are_kept_in_the_cache(dataset, tmp_path, monkeypatch):
    def small_memory(*args):
        return ImageStore(args[0], 0, args[2])

    monkeypatch.setattr(opening, "ImageStore", small_memory)
    cfg = tiny_run_cfg(dataset, cache_dir=str(tmp_path / "cache"))
    split, plain = split_of(cfg), split_of(cfg.replace(cache_dir=None))
    for kept, read in ((split.training, plain.training), (split.validation, plain.validation)):
        front = kept.batch(np.arange(5)).observation.images["front"]
        np.testing.assert_array_equal(front, read.batch(np.arange(5)).observation.images["front"])
    # one camera, 16 x 16 px; 6 and 2 episodes of 12 frames
    sizes = sorted(path.stat().st_size for path in (tmp_path / "cache").iterdir())
    assert sizes == [24 * 768, 72 * 768]


def test_a_dataset_in_a_bucket_is_trained_on_where_it_lies(s3, dataset, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    s3.put_tree(dataset, URL)
    s3.put(f"{URL}/README.md", b"# squares")
    remote, local = split_of(tiny_run_cfg(URL)), split_of(tiny_run_cfg(dataset))
    indices = local.training.draw(16, 0, 0)
    np.testing.assert_array_equal(
        remote.training.batch(indices).observation.images["front"],
        local.training.batch(indices).observation.images["front"],
    )
    [lineage] = collect_lineage(URL).datasets
    assert (lineage.num_frames, lineage.card) == (96, f"{URL}/README.md")
    assert (lineage.md5, lineage.raw_md5) == (None, None)
    first = run_training(tiny_run_cfg(URL, max_steps=1))
    assert run_training(tiny_run_cfg(URL, max_steps=1)).reused
    s3.put(f"{URL}/README.md", b"# other squares")
    assert run_training(tiny_run_cfg(URL, max_steps=1)).checkpoint != first.checkpoint


def test_instructions_come_from_the_annotations_of_a_style(tmp_path):
    rows = [
        {"role": "assistant", "style": "subtask", "camera": None, "tool_calls": None,
         "content": text, "timestamp": time_s}
        for text, time_s in (("turn", 0.0), ("drive", 0.25))
    ]  # fmt: skip
    episodes = [make_episode(number) for number in range(8)]
    for episode in episodes:
        episode.language = Language(rows)
    write_dataset(tmp_path / "d", dataclasses.replace(SCHEMA, has_language=True), episodes)
    norm = norm_stats(tmp_path / "d")
    (tmp_path / "d/norm_stats.json").write_text(json.dumps(norm))
    cfg = tiny_run_cfg(tmp_path / "d", instruction_style="subtask")
    split = split_of(cfg)
    assert split.validation is not None
    for frames in (split.training, split.validation):
        assert frames.instructions_of(np.arange(12)) == ["turn"] * 4 + ["drive"] * 8
    plain = split_of(cfg.replace(instruction_style=None)).training
    assert plain.instructions_of(np.arange(12)) == [episodes[0].instruction] * 12
