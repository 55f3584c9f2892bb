"""What the sources that read HDF5 have in common, and robomimic's own."""

import json

import h5py
import numpy as np
import pytest

from rrf.data.formats.robomimic import RobomimicSource, write_robomimic
from rrf.data.formats.sources import SOURCES
from rrf.data.raw import RawEpisode
from tests.data.conftest import FPS, draw, make_demo, write_raw
from tests.data.fixtures_hdf5 import cut_short, write_aloha, write_isaac_lab, write_libero


def write_pull(path):
    return write_raw(path.parent, {path.stem: [4, 3]}) / path.name


WRITERS = {
    "robomimic": write_pull,
    "isaac_lab": write_isaac_lab,
    "libero": write_libero,
    "aloha": write_aloha,
}
ACTION = {"aloha": "action"}


@pytest.fixture(params=sorted(WRITERS))
def name(request):
    return request.param


@pytest.fixture
def path(name, tmp_path):
    return WRITERS[name](tmp_path / "episode_0.hdf5")


def read_all(source, *keys) -> list[RawEpisode]:
    return [e for recording in source.recordings() for e in source.episodes(recording, keys)]


def edit(path, change):
    with h5py.File(path, "r+") as file:
        change(file)


def last_group(file):
    return file["data/demo_1"] if "data" in file else file


def test_a_key_gives_what_keys_says_it_gives(name, path):
    source = SOURCES.get(name)(path, {})
    known = source.keys()
    assert len(known) >= 5
    for key, frame in known.items():
        for episode in read_all(source, key):
            assert len(episode) in (3, 4)
            if frame == "image[16, 16]":
                assert episode.images[key].shape == (len(episode), 16, 16, 3)
                assert not episode.arrays
            else:
                values = episode.arrays[key]
                assert f"{values.dtype}{list(values.shape[1:])}" == frame


def test_a_file_and_its_directory_give_the_same(name, path):
    key = ACTION.get(name, "actions")
    one, all_of = SOURCES.get(name)(path, {}), SOURCES.get(name)(path.parent, {})
    assert one.recordings() == all_of.recordings()
    assert [r.name for r in one.recordings()] == ["episode_0"]
    for a, b in zip(read_all(one, key), read_all(all_of, key), strict=True):
        np.testing.assert_array_equal(a.arrays[key], b.arrays[key])
        assert a.source == b.source


def test_an_unknown_option_names_the_closest(name, path):
    with pytest.raises(ValueError, match="has no field 'patern'; did you mean 'pattern'"):
        SOURCES.get(name)(path, {"patern": "*.hdf5"})


def test_a_truncated_file_is_named_with_the_command_that_brings_it_again(name, path):
    source = SOURCES.get(name)(cut_short(path), {})
    with pytest.raises(ValueError, match=r"episode_0\.hdf5 is truncated .*dvc pull --force"):
        read_all(source, "actions")
    with pytest.raises(ValueError, match=r"episode_0\.hdf5 is truncated"):
        source.keys()


def test_a_file_of_another_format_is_refused(name, tmp_path):
    (tmp_path / "episode_0.hdf5").write_text("not HDF5")
    with pytest.raises(ValueError, match=r"episode_0\.hdf5 is truncated or not HDF5"):
        read_all(SOURCES.get(name)(tmp_path, {}), "actions")


@pytest.mark.parametrize("structure", [b"TREE", b"HEAP", b"SNOD"])
@pytest.mark.parametrize("name", ["isaac_lab", "libero", "aloha"])  # robomimic's is newer HDF5
def test_a_damaged_structure_is_named_with_the_command_that_brings_it_again(name, path, structure):
    content = path.read_bytes()
    assert structure in content
    path.write_bytes(content.replace(structure, b"XXXX"))
    with pytest.raises(ValueError, match=r"episode_0\.hdf5.* is damaged .*dvc pull --force"):
        SOURCES.get(name)(path, {}).keys()


def test_an_empty_directory_names_the_commands_that_bring_recordings(name, tmp_path):
    with pytest.raises(ValueError, match=r"no recordings .*brought by rrf data download"):
        SOURCES.get(name)(tmp_path, {}).recordings()
    with pytest.raises(ValueError, match=r"no recording at .*absent\.hdf5; see source\.path in"):
        SOURCES.get(name)(tmp_path / "absent.hdf5", {}).recordings()


def test_a_missing_key_names_file_episode_and_the_closest_key(name, path):
    key = ACTION.get(name, "actions")
    edit(path, lambda file: last_group(file).move(key, "actionz"))
    with pytest.raises(
        ValueError, match=rf"episode_0.* has no key '{key}'; did you mean 'actionz'"
    ):
        read_all(SOURCES.get(name)(path, {}), key)


def test_columns_of_different_lengths_name_both(name, path):
    key = ACTION.get(name, "actions")
    known = SOURCES.get(name)(path, {}).keys()
    other = next(k for k in known if k.startswith("obs"))

    def shorten(file):
        group = last_group(file)
        values = group[key][:-1]
        del group[key]
        group[key] = values

    edit(path, shorten)
    pattern = rf"episode_0.*: {key} has (2|3) frames, but {other} has (3|4)"
    with pytest.raises(ValueError, match=pattern):
        read_all(SOURCES.get(name)(path, {}), other, key)


def test_pixels_of_four_channels_are_refused_and_of_one_are_numbers(name, path):
    camera = next(k for k, f in SOURCES.get(name)(path, {}).keys().items() if "image" in f)

    def replace(channels):
        def change(file):
            group = last_group(file)
            values = group[camera][()][..., channels]
            del group[camera]
            group[camera] = values

        edit(path, change)

    replace([0, 1, 2, 0])
    with pytest.raises(
        ValueError, match=rf"episode_0.*: {camera} is uint8\[\d, 16, 16, 4\], expected"
    ):
        read_all(SOURCES.get(name)(path, {}), camera)
    replace([0])
    episodes = read_all(SOURCES.get(name)(path, {}), camera)
    assert camera not in episodes[-1].images
    assert episodes[-1].arrays[camera].shape[1:] == (16, 16, 1)


def test_nan_and_episodes_of_other_dimensions_pass_through(name, path):
    key = ACTION.get(name, "actions")

    def widen(file):
        group = last_group(file)
        values = np.concatenate([group[key][()], group[key][()]], axis=1)
        values[0, 0] = np.nan
        del group[key]
        group[key] = values

    source = SOURCES.get(name)(path, {})
    before = read_all(source, key)[-1].arrays[key]
    edit(path, widen)
    after = read_all(source, key)[-1].arrays[key]
    assert after.shape == (before.shape[0], 2 * before.shape[1])
    assert np.isnan(after).sum() == 1


@pytest.mark.parametrize("name", ["robomimic", "isaac_lab", "libero"])
def test_a_file_without_demonstrations_is_refused(name, path):
    edit(path, lambda file: [file["data"].pop(demo) for demo in list(file["data"])])
    with pytest.raises(ValueError, match="holds no demonstrations"):
        SOURCES.get(name)(path, {}).recordings()


def test_text_that_is_not_utf8_is_refused(name, path):
    def spoil(file):
        group = file.get("data", file)
        if "problem_info" in group.attrs:
            del group.attrs["problem_info"]
            text = b'{"language_instruction": "gr\xfcn"}'
            group.attrs.create("problem_info", text, dtype=h5py.string_dtype())
        group.attrs.create("instruction", b"gr\xfcn", dtype=h5py.string_dtype())

    edit(path, spoil)
    with pytest.raises(ValueError, match=r"episode_0.*is not valid UTF-8"):
        read_all(SOURCES.get(name)(path, {}), ACTION.get(name, "actions"))


# robomimic


@pytest.fixture
def pull(tmp_path):
    demos = [make_demo(episode, 4) for episode in range(11)]
    write_robomimic(tmp_path / "pull.hdf5", demos, {"env_name": "pull"}, "pull it", FPS)
    return tmp_path / "pull.hdf5"


def test_robomimic_demos_come_in_the_order_of_their_numbers_as_recorded(pull):
    source = RobomimicSource(pull, {})
    (recording,) = source.recordings()
    assert (recording.name, recording.num_episodes, recording.paths) == ("pull", 11, (pull,))
    episodes = read_all(source, "actions", "obs/front_image", "success", "states")
    assert [float(e.arrays["actions"][0, 1]) for e in episodes] == pytest.approx(
        [0, -0.01, -0.02, -0.03, -0.04, -0.05, -0.06, -0.07, -0.08, -0.09, -0.1]
    )
    last = episodes[10]
    assert (last.source, last.instruction, last.fps) == (f"{pull}:demo_10", "pull it", 10.0)
    assert last.arrays["success"].tolist() == [0, 0, 0, 1]
    assert last.arrays["states"].dtype == np.float64
    np.testing.assert_array_equal(last.images["obs/front_image"], draw(10, 4))


def test_robomimic_files_come_in_alphabetical_order_by_pattern(tmp_path):
    write_raw(tmp_path, {"push": [3], "pull": [2, 2]})
    write_raw(tmp_path / "more", {"slide": [2]})
    recordings = RobomimicSource(tmp_path, {}).recordings()
    assert [(r.name, r.num_episodes) for r in recordings] == [("pull", 2), ("push", 1)]
    recordings = RobomimicSource(tmp_path, {"pattern": "**/*.hdf5"}).recordings()
    assert [r.name for r in recordings] == ["more/slide", "pull", "push"]


def test_robomimic_filter_key_keeps_the_demos_its_mask_lists(pull):
    edit(pull, lambda f: f.create_dataset("mask/train", data=[b"demo_10", b"demo_2"]))
    source = RobomimicSource(pull, {"filter_key": "train"})
    assert [r.num_episodes for r in source.recordings()] == [2]
    assert [e.source.rpartition(":")[2] for e in read_all(source, "actions")] == [
        "demo_2",
        "demo_10",
    ]
    with pytest.raises(ValueError, match="has no filter 'trian'; did you mean 'train'"):
        RobomimicSource(pull, {"filter_key": "trian"}).recordings()


def test_robomimic_mask_with_an_unknown_demo_or_none_at_all_is_refused(pull):
    edit(pull, lambda f: f.create_dataset("mask/train", data=[b"demo_99"]))
    edit(pull, lambda f: f.create_dataset("mask/none", data=np.zeros(0, "S6")))
    with pytest.raises(ValueError, match=r"mask/train names 'demo_99', which is not in /data"):
        RobomimicSource(pull, {"filter_key": "train"}).recordings()
    with pytest.raises(ValueError, match=r"no demonstration in .* is selected; change source"):
        RobomimicSource(pull, {"filter_key": "none"}).recordings()
    with pytest.raises(ValueError, match=r"no demonstration in .* is selected"):
        RobomimicSource(pull, {"filter_key": "none"}).keys()


def test_robomimic_images_stored_channel_first_come_back_channel_last(pull):
    edit(pull, lambda f: f["data/demo_0/obs"].pop("front_image"))
    stored = draw(0, 4).transpose(0, 3, 1, 2)
    edit(pull, lambda f: f["data/demo_0/obs"].create_dataset("front_image", data=stored))
    source = RobomimicSource(pull, {})
    assert source.keys()["obs/front_image"] == "image[16, 16]"
    np.testing.assert_array_equal(
        read_all(source, "obs/front_image")[0].images["obs/front_image"], draw(0, 4)
    )


@pytest.mark.parametrize(
    ("level", "name", "value"),
    [
        ("data/demo_0", "instruction", "say it"),
        ("/", "instruction", "say it"),
        ("data/demo_0", "ep_meta", json.dumps({"lang": "say it"})),
        ("data", "env_args", json.dumps({"language_instruction": "say it"})),
    ],
)
def test_robomimic_instruction_is_found_where_recorders_put_it(pull, level, name, value):
    def change(file):
        del file["data"].attrs["instruction"]
        file[level].attrs[name] = value

    edit(pull, change)
    assert read_all(RobomimicSource(pull, {}), "actions")[0].instruction == "say it"


def test_robomimic_files_without_instruction_and_fps_are_read(pull):
    def change(file):
        for name in ("instruction", "fps", "env_args"):
            del file["data"].attrs[name]

    edit(pull, change)
    episode = read_all(RobomimicSource(pull, {}), "actions")[0]
    assert (episode.instruction, episode.fps) == (None, None)
    edit(pull, lambda f: f["data"].attrs.update(env_args='{"env_kwargs": {"control_freq": 20}}'))
    assert read_all(RobomimicSource(pull, {}), "actions")[0].fps == 20.0


def test_a_damaged_chunk_is_named_with_demo_and_key(tmp_path):
    path = tmp_path / "pull.hdf5"
    write_robomimic(path, [make_demo(episode, 30) for episode in range(3)], {}, "pull it", FPS)
    content = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        chunk = file["data/demo_2/obs/front_image"].id.get_chunk_info(0)
    content[chunk.byte_offset + 40 : chunk.byte_offset + 60] = b"\xff" * 20
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"pull\.hdf5:demo_2: obs/front_image is damaged"):
        read_all(RobomimicSource(path, {}), "obs/front_image")


def test_a_demo_that_is_no_group_is_refused(pull):
    edit(pull, lambda f: f["data"].create_dataset("demo_11", data=[1.0]))
    with pytest.raises(ValueError, match="/data/demo_11 is no group"):
        RobomimicSource(pull, {}).recordings()
