"""Depth, masks and other images that are not RGB: what was recorded is what every reader gives."""

import json
import re

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rrf.data.conversion.conversion_record import read_conversion
from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import DatasetCfg, MapCfg, MergeCfg, MergePartCfg
from rrf.data.conversion.edit import edit
from rrf.data.conversion.edit_cfg import EditCfg
from rrf.data.conversion.merge import merge
from rrf.data.dataset import layout
from rrf.data.dataset.maps import (
    DTYPES,
    MapStats,
    as_column,
    column_type,
    decode_map,
    from_column,
    parquet_options,
)
from rrf.data.dataset.mixture import Mixture
from rrf.data.dataset.opening import open_dataset
from rrf.data.formats.robomimic import write_robomimic
from rrf.data.pages.episode_view import view_dataset
from rrf.data.schema import EncodedImages, PixelMap
from rrf.data.validation.integrity import check_files
from rrf.data.validation.summary import read_summary, summarise
from tests.data.conftest import FPS, make_cfg, make_demo

HEIGHT, WIDTH = 12, 20  # not the size of the RGB images
LENGTHS = (5, 4, 6)


def depth_mm(episode, length):
    """uint16 [T, H, W], all 16 bits in use."""
    values = np.arange(length * HEIGHT * WIDTH).reshape(length, HEIGHT, WIDTH)
    return ((values * 257 + episode * 1000) % 65536).astype(np.uint16)


def recorded(episode, length):
    """All maps of an episode."""
    depth = depth_mm(episode, length)
    metres = depth.astype(np.float32) / 1000
    metres[:, 0, 0], metres[:, 0, 1] = np.nan, np.inf  # a camera sees nothing there
    return {"depth": depth, "far": metres, "mask": (depth % 3).astype(np.uint8)}


MAPS = {
    "depth": {"key": "obs/depth", "dtype": "uint16", "unit": "mm"},
    "far": {"key": "obs/far", "dtype": "float32", "unit": "m"},
    "mask": {"key": "obs/mask", "dtype": "uint8", "unit": "class"},
}


def cfg_with_maps(**changes):
    maps = {n: MapCfg(size=[HEIGHT, WIDTH], **one) for n, one in MAPS.items()}
    return make_cfg(**({"maps": maps} | changes))


def write_raw(folder, lengths=LENGTHS):
    demos = []
    for episode, length in enumerate(lengths):
        demo = make_demo(episode, length)
        maps = recorded(episode, length)
        demo["obs"] |= maps | {"depth": maps["depth"][..., None]}  # with a channel, as many have it
        demos.append(demo)
    write_robomimic(folder / "pull.hdf5", demos, {"env_name": "pull"}, "pull", FPS)
    return folder


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """Three episodes with two depth cameras and a mask."""
    folder = tmp_path_factory.mktemp("maps")
    convert(cfg_with_maps(), write_raw(folder / "raw"), folder / "d")
    return folder / "d"


def same(found, expected):
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_the_reader_gives_them_back_with_dtype_and_unit(converted):
    reader = open_dataset(converted, 1, maps=["far", "depth", "mask"])
    assert reader.schema.maps == (
        PixelMap("far", "float32", (HEIGHT, WIDTH), "m"),
        PixelMap("depth", "uint16", (HEIGHT, WIDTH), "mm"),
        PixelMap("mask", "uint8", (HEIGHT, WIDTH), "class"),
    )
    for number, length in enumerate(LENGTHS):
        maps = reader.episode(number).maps
        for name, values in recorded(number, length).items():
            same(maps[name], values)
    batch = reader.batch(np.array([14, 5, 6]))
    last, second = recorded(2, 6), recorded(1, 4)
    for name, values in batch.observation.maps.items():
        same(values, np.stack([last[name][5], second[name][0], second[name][1]]))
    some = open_dataset(converted, 1, episodes=[2], maps=["mask"])
    same(some.episode(0).maps["mask"], last["mask"])


def test_nobody_gets_them_who_does_not_ask(converted):
    reader = open_dataset(converted, 1)
    assert reader.schema.maps == ()
    assert reader.episode(0).maps == {}
    assert reader.batch(np.array([0])).observation.maps == {}
    with pytest.raises(ValueError, match="no map 'dept'; did you mean 'depth'"):
        open_dataset(converted, 1, maps=["dept"])


def test_lerobot_reads_exactly_what_was_recorded(open_with_lerobot, converted):
    dataset = open_with_lerobot(converted)
    assert len(dataset) == sum(LENGTHS)
    frame = 0
    for number, length in enumerate(LENGTHS):
        for step in range(length):
            item, expected = dataset[frame], recorded(number, length)
            for name, values in expected.items():
                np.testing.assert_array_equal(item[f"maps.{name}"].numpy(), values[step])
            frame += 1
    from lerobot.utils.feature_utils import dataset_to_policy_features

    features = dataset_to_policy_features(dataset.meta.features)
    assert not [key for key in features if "maps" in key]


def test_they_are_described_counted_and_compressed(converted):
    info = layout.read_info(converted)
    assert info["features"]["maps.depth"] == {
        "dtype": "uint16",
        "shape": [HEIGHT, WIDTH],
        "names": ["height", "width"],
        "info": {"unit": "mm"},
    }
    stats = json.loads((converted / "meta/stats.json").read_text())
    assert list(stats) == list(info["features"])
    depth = np.concatenate([depth_mm(n, length) for n, length in enumerate(LENGTHS)]).astype(float)
    assert stats["maps.depth"]["count"] == [15]
    assert stats["maps.depth"]["max"] == [[depth.max()]]
    np.testing.assert_allclose(stats["maps.depth"]["mean"], [[depth.mean()]])
    np.testing.assert_allclose(stats["maps.depth"]["std"], [[depth.std()]])
    # depth is 0 only where `far` is NaN; the smallest one beside it is 196 mm
    assert stats["maps.far"]["min"] == [[pytest.approx(0.196)]]
    group = pq.read_metadata(converted / "data/chunk-000/file-000.parquet").row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    encodings = {one.path_in_schema.partition(".list")[0]: one.encodings for one in columns}
    assert "DELTA_BINARY_PACKED" in encodings["maps.depth"]
    assert "BYTE_STREAM_SPLIT" in encodings["maps.far"]
    assert {check.check: check.status for check in check_files(converted, {})} == {
        "files": "pass", "features": "pass",
    }  # fmt: skip


def test_summaries_and_the_page_of_episodes_show_them(converted, tmp_path):
    summary = summarise(converted, with_digests=True)
    assert "maps.depth" in summary.episodes[0].digests
    assert "maps.depth" not in summary.stats
    assert read_summary(converted).warnings == []
    view_dataset(converted, "d", [1], tmp_path / "page.html")
    shown = re.findall(r'<img alt="([^"]+)"', (tmp_path / "page.html").read_text())
    assert shown == ["observation.images.front", "maps.depth", "maps.far", "maps.mask"]


def test_frames_that_are_left_out_for_a_lower_rate_are_left_out_here_too(tmp_path):
    convert(cfg_with_maps(fps=5), write_raw(tmp_path / "raw", [5]), tmp_path / "d")
    maps = open_dataset(tmp_path / "d", 1, maps=["depth"]).episode(0).maps
    same(maps["depth"], depth_mm(0, 5)[::2])


def test_edits_and_merges_carry_them(converted, tmp_path):
    steps = [
        {"delete": [0]},
        {"trim": {"start": 1, "end": 1}},
        {"rename": {"maps.depth": "maps.wrist_depth"}},
        {"drop": ["maps.mask"]},
    ]
    cfg = EditCfg.from_dict({"name": "e", "edit_of": "d", "steps": steps})
    edit(cfg, converted, tmp_path / "e")
    reader = open_dataset(tmp_path / "e", 1, maps=["wrist_depth", "far"])
    same(reader.episode(0).maps["wrist_depth"], depth_mm(1, 4)[1:-1])
    same(reader.episode(1).maps["far"], recorded(2, 6)["far"][1:-1])
    info = layout.read_info(tmp_path / "e")
    assert [one.name for one in layout.maps_of(info).values()] == [
        "wrist_depth", "far",
    ]  # fmt: skip
    parts = [MergePartCfg(dataset=str(one)) for one in (converted, tmp_path / "e")]
    cfg = MergeCfg(name="both", merge=parts, licence="MIT", provenance="both")
    merge(cfg, tmp_path, tmp_path / "both")
    both = open_dataset(tmp_path / "both", 1, maps=["far"])
    same(both.episode(4).maps["far"], recorded(2, 6)["far"][1:-1])
    record = read_conversion(tmp_path / "both")
    assert record is not None
    lost = [text.rpartition(": ")[2] for text in record["warnings"]]
    assert "maps.mask is left out, because not all of the datasets have the same" in lost


def test_a_mixture_gives_those_of_all_its_datasets(converted):
    readers = [open_dataset(converted, 1, episodes=[n], maps=["depth"]) for n in (0, 2)]
    batch = Mixture(readers).batch(np.array([5, 0]))
    expected = np.stack([depth_mm(2, 6)[0], depth_mm(0, 5)[0]])
    same(batch.observation.maps["depth"], expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": [10, 20]}, r"maps.depth\) has frames of \[12, 20\], the config says size"),
        ({"dtype": "int16"}, "is uint16, which dtype: int16 of the config cannot hold"),
        ({"key": "obs/dept"}, "maps.depth.key: the recordings have no key 'obs/dept'"),
        ({"key": "obs/front_image"}, "holds RGB images; name it under cameras"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_exactly_is_refused(tmp_path, changes, message):
    one = MapCfg(**({"size": [HEIGHT, WIDTH]} | MAPS["depth"] | changes))
    with pytest.raises(ValueError, match=message):
        convert(make_cfg(maps={"depth": one}), write_raw(tmp_path / "raw", [3]), tmp_path / "d")


def test_depth_that_is_named_as_a_camera_is_told_where_it_belongs(tmp_path):
    cfg = make_cfg(cameras={"depth": "obs/depth"}, image_size=[HEIGHT, WIDTH])
    with pytest.raises(ValueError, match=r"it holds uint16\[3, 12, 20, 1\]; name it under maps"):
        convert(cfg, write_raw(tmp_path / "raw", [3]), tmp_path / "d")


def test_a_config_is_checked():
    with pytest.raises(ValueError, match="must be"):
        MapCfg(key="k", dtype="uint16", size=[3], unit="mm")
    with pytest.raises(ValueError, match="dtype"):
        DatasetCfg.from_dict(
            cfg_with_maps().to_dict()
            | {"maps": {"d": {"key": "k", "dtype": "uint64", "size": [1, 1], "unit": "mm"}}}
        )


def png(values_hw):
    return cv2.imencode(".png", values_hw)[1].tobytes()


def test_grey_png_files_keep_all_their_bits():
    depth = depth_mm(0, 2)
    same(decode_map(EncodedImages([png(one) for one in depth], "png"), "here"), depth)
    rgb = EncodedImages([png(np.zeros((4, 4, 3), np.uint8))], "png")
    with pytest.raises(ValueError, match="here at frame 0 has 3 channels; name it under cameras"):
        decode_map(rgb, "here")
    for blob in (b"abc", b""):
        with pytest.raises(ValueError, match=f"at frame 0: {len(blob)} bytes of a damaged image"):
            decode_map(EncodedImages([blob], "png"), "here")


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_survives_the_parquet_file(tmp_path, dtype):
    kind = PixelMap("m", dtype, (3, 4), "")
    bits = np.random.default_rng(0).integers(0, 256, 2 * 3 * 4 * 8, np.uint8).tobytes()
    values = np.frombuffer(bits, dtype)[:24].reshape(2, 3, 4)
    values = values if dtype != "bool" else np.frombuffer(bits, np.uint8)[:24].reshape(2, 3, 4) > 99
    table = pa.table({"maps.m": as_column(values), "index": [0, 1]})
    assert table.schema.field("maps.m").type == column_type(kind)
    pq.write_table(table, tmp_path / "f.parquet", **parquet_options(table.schema))
    same(from_column(pq.read_table(tmp_path / "f.parquet")["maps.m"], kind), values)


def test_statistics_of_what_is_never_finite_are_zero():
    stats = MapStats()
    stats.update(np.full((2, 3, 3), np.nan, np.float32))
    assert {name: value.tolist() for name, value in stats.result().items()} == {
        "min": [[0.0]], "max": [[0.0]], "mean": [[0.0]], "std": [[0.0]], "count": [2],
        "q01": [[0.0]], "q10": [[0.0]], "q50": [[0.0]], "q90": [[0.0]], "q99": [[0.0]],
    }  # fmt: skip
