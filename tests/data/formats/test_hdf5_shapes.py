"""HDF5 files in shapes that are common and not ours, from the file to the dataset."""

import h5py
import numpy as np
import pytest

from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import InstructionCfg, SourceCfg, VectorCfg
from rrf.data.dataset.opening import open_dataset
from tests.data.conftest import draw, make_cfg

LENGTH = 5


def with_alpha(images):
    alpha = np.full((*images.shape[:3], 1), 255, np.uint8)
    return np.concatenate([images, alpha], axis=3)


SHAPES = {
    "one more": ({"drop_final": True}, lambda images: images),
    "rgba": ({"drop_alpha": True}, with_alpha),
    "rgba, channels first": ({"drop_alpha": True}, lambda i: with_alpha(i).transpose(0, 3, 1, 2)),
    "float to 1": ({"white": 1}, lambda images: (images / 255).astype(np.float32)),
    "float to 255": ({"white": 255}, lambda images: images.astype(np.float64)),
    "float, channels first": ({"white": 1.0}, lambda i: (i / 255).transpose(0, 3, 1, 2)),
    "float rgba": ({"white": 1, "drop_alpha": True}, lambda images: with_alpha(images) / 255),
}


def write(folder, format, images, more=0):
    """An episode whose images and states have `more` rows than its actions."""
    folder.mkdir()
    steps = np.arange(LENGTH + more, dtype=np.float32)
    with h5py.File(folder / "episode_0.hdf5", "w") as file:
        top = file.create_group("data/demo_0") if format == "robomimic" else file
        top["actions" if format == "robomimic" else "action"] = steps[:LENGTH, None] + 10
        top["obs/q"], top["obs/cam"] = steps[:, None], images


def cfg_of(format, options):
    return make_cfg(
        source=SourceCfg(format=format, path="raw", options=options, fps=10),
        cameras={"front": "obs/cam"},
        state=VectorCfg(keys=["obs/q"], names=["q"], unit="rad"),
        action=VectorCfg(
            keys=["actions" if format == "robomimic" else "action"], names=["q"], unit="rad"
        ),
        instruction=InstructionCfg(text="go"),
        reward=None,
        success=None,
    )


@pytest.mark.parametrize("format", ["robomimic", "aloha"])
@pytest.mark.parametrize("shape", SHAPES)
def test_common_shapes_are_read_by_an_option(tmp_path, format, shape):
    options, change = SHAPES[shape]
    more = int("drop_final" in options)
    write(tmp_path / "raw", format, change(draw(0, LENGTH + more)), more)
    cfg = cfg_of(format, options)
    done = convert(cfg, tmp_path / "raw", tmp_path / "d")
    assert done.frames == LENGTH
    assert cfg.reader(tmp_path / "raw").keys()["obs/cam"] == "image[16, 16]"
    batch = open_dataset(tmp_path / "d", 1).batch(np.arange(LENGTH))
    np.testing.assert_array_equal(batch.observation.images["front"], draw(0, LENGTH))
    assert batch.observation.state.ravel().tolist() == [0, 1, 2, 3, 4]
    assert batch.action.ravel().tolist() == [10, 11, 12, 13, 14]


@pytest.mark.parametrize(
    ("change", "more", "options", "message"),
    [
        (lambda i: i, 1, {}, r"has 6.*dropped by options: \{drop_final: true\}"),
        (with_alpha, 0, {}, r"if the fourth channel is alpha, write options: \{drop_alpha: true\}"),
        (lambda i: i / 255, 0, {}, r"if it is RGB, write source: \{options: \{white: 1\}\}"),
        (lambda i: i * 1.0, 0, {"white": 1}, r"holds pixels from 0 to 2\d\d, but white is 1"),
        (lambda i: i * np.nan, 0, {"white": 1}, r"holds pixels from nan to nan, but white is 1"),
    ],
)
def test_without_the_option_the_error_names_it(tmp_path, change, more, options, message):
    write(tmp_path / "raw", "robomimic", change(draw(0, LENGTH + more)), more)
    with pytest.raises(ValueError, match=message):
        convert(cfg_of("robomimic", options), tmp_path / "raw", tmp_path / "d")
