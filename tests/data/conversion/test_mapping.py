import dataclasses
import json
import math

import numpy as np
import pytest

from rrf.data.conversion.dataset_cfg import DatasetCfg, InstructionCfg, SourceCfg, VectorCfg
from rrf.data.conversion.mapping import Mapper, raw_keys
from rrf.data.conversion.vector_cfg import ConvertCfg, Selector
from rrf.data.conversion.vectors import convert, pick_actions
from rrf.data.images import decode_image, encode_png
from rrf.data.raw import RawEpisode
from rrf.data.schema import EncodedImages
from tests.data.conftest import draw
from tests.data.jpeg_source import make_jpeg

LENGTH = 6


def make_cfg(**changes):
    fields = dict(
        name="toy",
        source=SourceCfg(path="raw"),
        fps=10,
        image_size=[16, 16],
        cameras={"front": "cam"},
        state=VectorCfg(keys=["pose[0:2]", "grip"], names=["x", "y", "g"], unit="m, m, 1"),
        action=VectorCfg(keys=["cmd"], names=["dx", "dy"], unit="m"),
        licence="MIT",
        provenance="made up",
    )
    return DatasetCfg(**(fields | changes))


def make_raw(**arrays):
    frames = np.arange(LENGTH, dtype=np.float64)
    return RawEpisode(
        arrays={
            "pose": np.stack([frames, 10 * frames, 100 * frames], axis=1),
            "grip": frames / 8,
            "cmd": np.stack([frames, -frames], axis=1),
            "rew": frames,
            "ok": frames == 4,
        }
        | arrays,
        images={"cam": draw(0, LENGTH)},
        instruction="pull it",
        source="a.h5:demo_0",
        fps=10.0,
    )


def vector(names, *conversions, **fields):
    return VectorCfg(keys=["k"], names=names, unit="1", convert=list(conversions), **fields)


def test_what_was_recorded_after_the_action_is_taken_from_the_frame_before():
    raw = make_raw()
    cfg = make_cfg(after_action=["state"], reward="rew", success="ok", terminated="ok")
    episode = Mapper(cfg)(raw)
    assert episode.state[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert episode.action[:, 0].tolist() == episode.reward.tolist() == [1, 2, 3, 4, 5]
    assert episode.success.tolist() == episode.terminated.tolist() == [0, 0, 0, 1, 0]
    np.testing.assert_array_equal(episode.images["front"], draw(0, LENGTH)[1:])
    raw.images["cam"] = encode_png(draw(0, LENGTH))
    raw.images["cam"] = EncodedImages(raw.images["cam"], "png")
    late = Mapper(make_cfg(after_action=["state", "front"]))(raw)
    np.testing.assert_array_equal(decode_image(late.images["front"].blobs[0]), draw(0, 1)[0])
    assert len(late.images["front"]) == len(late.action) == 5
    thinned = Mapper(make_cfg(after_action=["state"], fps=5))(make_raw())
    assert thinned.state[:, 0].tolist() == [0, 2, 4]
    assert thinned.action[:, 0].tolist() == [2, 4, 5]  # absolute: the last of the frames that join


def test_after_action_names_what_there_is_and_needs_two_frames():
    with pytest.raises(ValueError, match=r"after_action: no 'stat'; did you mean 'state'"):
        make_cfg(after_action=["stat"])
    raw = make_raw(pose=np.zeros((1, 3)), grip=np.zeros(1), cmd=np.zeros((1, 2)))
    with pytest.raises(ValueError, match="demo_0 has a single frame, which after_action of the"):
        Mapper(make_cfg(after_action=["state"]))(raw)


def test_parts_of_keys_are_put_side_by_side_as_float32():
    episode = Mapper(make_cfg())(make_raw())
    assert episode.state.dtype == episode.action.dtype == np.float32
    assert episode.state[2].tolist() == [2.0, 20.0, 0.25]
    assert episode.action[3].tolist() == [3.0, -3.0]
    assert episode.instruction == "pull it"
    assert (episode.reward, episode.success) == (None, None)
    np.testing.assert_array_equal(episode.images["front"], draw(0, LENGTH))


@pytest.mark.parametrize(
    ("text", "key", "part"),
    [
        ("a/b", "a/b", slice(None)),
        ("a[0:7]", "a", slice(0, 7)),
        ("a[:-1]", "a", slice(None, -1)),
        ("a[3]", "a", slice(3, 4)),
        ("a[-1]", "a", slice(-1, None)),
        ("a[-2]", "a", slice(-2, -1)),
    ],
)
def test_a_selector_names_a_key_and_a_part_of_it(text, key, part):
    assert (Selector.parse(text).key, Selector.parse(text).part) == (key, part)


def test_a_part_outside_the_dimensions_is_named():
    cfg = make_cfg(action=VectorCfg(keys=["cmd[1:3]"], names=["a", "b"], unit="m"))
    with pytest.raises(ValueError, match=r"demo_0: cmd\[1:3\] lies outside the 2 dimensions"):
        Mapper(cfg)(make_raw())


def test_keys_a_config_asks_for_are_known_with_their_place():
    cfg = make_cfg(
        reward="rew", success="ok", instruction=InstructionCfg(key="text", text="fallback")
    )
    assert raw_keys(cfg) == {
        "cam": "cameras.front",
        "pose": "state.keys",
        "grip": "state.keys",
        "cmd": "action.keys",
        "text": "instruction.key",
        "rew": "reward",
        "ok": "success",
    }


def test_scale_multiplies_then_adds():
    cfg = vector(["a", "b"], ConvertCfg(kind="scale", names=["b"], factor=0.5, offset=3))
    assert convert(np.array([[8.0, 8.0]]), cfg).tolist() == [[8.0, 7.0]]


@pytest.mark.parametrize(
    ("is_open", "is_closed", "recorded", "expected"),
    [
        (1, 0, [0, 0.25, 1], [0, 0.25, 1]),  # already ours
        (0, 1, [0, 0.25, 1], [1, 0.75, 0]),  # 1 = closed
        (-1, 1, [-1, 0, 1], [1, 0.5, 0]),  # robosuite: -1 opens
        (0.08, 0, [0.08, 0.02, 0], [1, 0.25, 0]),  # a width in m
    ],
)
def test_gripper_becomes_one_for_open_and_zero_for_closed(is_open, is_closed, recorded, expected):
    cfg = vector(["g"], ConvertCfg(kind="gripper", names=["g"], open=is_open, closed=is_closed))
    assert convert(np.array(recorded, float)[:, None], cfg).ravel() == pytest.approx(expected)


def test_a_quaternion_gets_its_real_part_in_front():
    names = ["z", "qw", "qx", "qy", "qz"]
    cfg = vector(names, ConvertCfg(kind="xyzw_to_wxyz", names=names[1:]))
    assert convert(np.array([[9, 0.1, 0.2, 0.3, 0.9]]), cfg).tolist() == [[9, 0.9, 0.1, 0.2, 0.3]]


def test_deltas_and_absolute_values_refer_to_the_state_of_their_frame():
    state_cfg = vector(["g", "x", "y"])
    state = np.array([[0, 1.0, 2.0], [0, 5.0, 6.0]])
    fields = {"names": ["x", "y"], "reference": ["x", "y"]}
    up = vector(["x", "y", "g"], ConvertCfg(kind="delta_to_absolute", **fields))
    down = vector(["x", "y", "g"], ConvertCfg(kind="absolute_to_delta", **fields))
    deltas = np.array([[0.5, -0.5, 7], [0.25, 1, 8]])
    absolute = convert(deltas, up, state, state_cfg)
    assert absolute.tolist() == [[1.5, 1.5, 7], [5.25, 7, 8]]
    assert convert(absolute, down, state, state_cfg).tolist() == deltas.tolist()


def test_angles_are_brought_into_one_turn():
    one = ConvertCfg(kind="absolute_to_delta", names=["yaw"], reference=["yaw"], wrap=True)
    cfg = vector(["yaw"], one)
    # from 3 to -3 rad it is 2 pi - 6 = 0.283 onwards, not -6
    result = convert(np.array([[-3.0]]), cfg, np.array([[3.0]]), vector(["yaw"]))
    assert result.item() == pytest.approx(2 * math.pi - 6)


def test_the_action_refers_to_the_converted_state():
    cfg = make_cfg(
        state=VectorCfg(
            keys=["pose[0]"],
            names=["x"],
            unit="m",
            convert=[ConvertCfg(kind="scale", names=["x"], factor=0.001)],
        ),
        action=VectorCfg(
            keys=["cmd[0]"],
            names=["x"],
            unit="m",
            convert=[ConvertCfg(kind="delta_to_absolute", names=["x"], reference=["x"])],
        ),
    )
    assert Mapper(cfg)(make_raw()).action[2].item() == pytest.approx(2 + 0.002)


def test_at_a_lower_rate_increments_are_summed_and_the_rest_is_of_the_last_frame():
    recorded = np.array([[1, 10], [2, 20], [3, 30], [4, 40], [5, 50.0]])
    assert pick_actions(recorded, [0], 2).tolist() == [[3, 20], [7, 40], [5, 50]]


def test_at_a_lower_rate_every_column_is_of_the_frames_it_should_be():
    cfg = make_cfg(fps=5, reward="rew", success="ok")
    raw = make_raw()
    episode = Mapper(cfg)(raw)
    assert episode.state[:, 0].tolist() == [0, 2, 4]
    assert episode.action[:, 0].tolist() == [1, 3, 5]
    assert episode.reward.tolist() == [1, 5, 9]
    assert episode.success.tolist() == [False, False, True]
    np.testing.assert_array_equal(episode.images["front"], draw(0, LENGTH)[::2])


def test_an_absolute_target_becomes_the_whole_way_from_the_state_of_the_first_frame():
    """Worked by hand: targets 0..5, states 0..5; of frames 2 and 3 the way is 3 - 2 = 1."""
    cfg = make_cfg(
        fps=5,
        action=VectorCfg(
            keys=["cmd[0]"],
            names=["x"],
            unit="m",
            convert=[ConvertCfg(kind="absolute_to_delta", names=["x"], reference=["x"])],
        ),
    )
    assert Mapper(cfg)(make_raw()).action.ravel().tolist() == [1, 1, 1]


@pytest.mark.parametrize("fps", [20, 4])
def test_a_rate_that_does_not_divide_is_refused(fps):
    with pytest.raises(
        ValueError, match=f"recorded at 10 frames/s, but the config says fps: {fps}"
    ):
        Mapper(make_cfg(fps=fps))(make_raw())


def test_a_wrong_rate_in_the_recordings_can_be_corrected_with_a_warning():
    mapper = Mapper(make_cfg(fps=20, source=SourceCfg(path="raw", fps=20)))
    assert len(mapper(make_raw())) == LENGTH
    assert list(mapper.warnings) == ["the recordings say 10 frames/s, source.fps says 20"]


def test_a_usual_frame_rate_holds_where_nobody_says_one_and_contradicts_nobody():
    raw = dataclasses.replace(make_raw(), fps=None, usual_fps=20.0)
    assert len(Mapper(make_cfg())(raw)) == LENGTH / 2
    mapper = Mapper(make_cfg(source=SourceCfg(path="raw", fps=10)))
    assert len(mapper(raw)) == LENGTH
    assert mapper.warnings == {}
    assert len(Mapper(make_cfg())(dataclasses.replace(raw, fps=10.0))) == LENGTH


def test_broadcast_rates_count_as_whole():
    raw = make_raw()
    raw.fps = 29.97
    assert len(Mapper(make_cfg(fps=30))(raw)) == LENGTH


def test_success_may_be_one_flag_per_episode_or_mean_the_last_frame():
    expected = [False] * 5 + [True]
    assert Mapper(make_cfg(success="last"))(make_raw()).success.tolist() == expected
    flagged = Mapper(make_cfg(success="ok"))(make_raw(ok=np.array([True])))
    assert flagged.success.tolist() == expected
    failed = Mapper(make_cfg(success="ok"))(make_raw(ok=np.array([False])))
    assert failed.success.tolist() == [False] * 6


def test_vectors_in_json_are_parsed_with_a_warning():
    mapper = Mapper(make_cfg())
    texts = np.array([json.dumps([frame, -frame]) for frame in range(LENGTH)])
    assert mapper(make_raw(cmd=texts)).action[3].tolist() == [3.0, -3.0]
    mapper(make_raw(cmd=texts))
    assert mapper.warnings == {
        "cmd holds JSON text instead of numbers; it was parsed": (2, "a.h5:demo_0")
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pick it up", "cmd at frame 2 is the text 'pick it up', not numbers"),
        ('{"x": 1}', "cmd at frame 2 is the text .*, not numbers"),
        ("[1, 2, 3]", "cmd at frame 2 holds 3 numbers, the frames before 2"),
        ("[1, NaN]", "cmd at frame 2, dimension 1 is nan"),
    ],
)
def test_json_that_is_no_vector_is_named_with_its_frame(text, message):
    texts = np.array(["[1, 2]"] * LENGTH, dtype="U20")
    texts[2] = text
    with pytest.raises(ValueError, match=message):
        Mapper(make_cfg())(make_raw(cmd=texts))


def test_an_episode_without_frames_is_said_to_have_none():
    mapper = Mapper(make_cfg())
    mapper(make_raw())
    for empty in (np.zeros((0, 2)), np.zeros(0, "U1")):
        with pytest.raises(ValueError, match="demo_0: cmd has no frames"):
            mapper(make_raw(cmd=empty))


def test_mixed_dimensions_name_both_episodes():
    cfg = make_cfg(action=VectorCfg(keys=["cmd[0:2]"], names=["a", "b"], unit="m"))
    mapper, other = Mapper(cfg), make_raw(cmd=np.zeros((LENGTH, 3)))
    mapper(make_raw())
    other.source = "a.h5:demo_1"
    message = "cmd has 3 dimensions in a.h5:demo_1, but 2 in a.h5:demo_0"
    with pytest.raises(ValueError, match=message):
        mapper(other)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"grip": np.zeros(5)}, "demo_0: grip has 5 frames, others 6"),
        ({"grip": np.full(6, np.inf)}, "demo_0: grip at frame 0, dimension 0 is inf"),
        ({"cmd": np.zeros((6, 3))}, "demo_0: cmd has 3 dimensions, the config names 2"),
        ({"cmd": np.zeros((6, 2), complex)}, "demo_0: cmd is complex128, not numbers"),
        ({"rew": np.zeros((6, 2))}, r"demo_0: rew has shape \[6, 2\], expected \[6\]"),
    ],
)
def test_what_is_wrong_is_named_with_key_and_frame(arrays, message):
    with pytest.raises(ValueError, match=message):
        Mapper(make_cfg(reward="rew"))(make_raw(**arrays))


def test_a_missing_key_names_the_closest_one():
    raw = make_raw()
    raw.arrays["pse"] = raw.arrays.pop("pose")
    with pytest.raises(ValueError, match="demo_0 has no key 'pose'; did you mean 'pse'"):
        Mapper(make_cfg())(raw)


def test_images_under_a_vector_are_refused_with_the_way_out():
    cfg = make_cfg(action=VectorCfg(keys=["cam"], names=["a"], unit="m"))
    with pytest.raises(ValueError, match="cam holds images; name it under cameras"):
        Mapper(cfg)(make_raw())


def test_the_instruction_comes_from_text_key_or_recording():
    raw = make_raw(text=np.array(["push it"] * 6), none=np.array([""] * 6))
    for cfg, expected in [
        (None, "pull it"),
        (InstructionCfg(text="lift it"), "lift it"),
        (InstructionCfg(key="text"), "push it"),
        (InstructionCfg(key="none", text="lift it"), "lift it"),
    ]:
        assert Mapper(make_cfg(instruction=cfg))(raw).instruction == expected


def test_a_recording_without_instruction_says_what_to_add_to_the_config():
    raw = make_raw(task=np.arange(6))
    raw.instruction = None
    with pytest.raises(ValueError, match=r"demo_0 has no instruction.*instruction: \{text"):
        Mapper(make_cfg())(raw)
    with pytest.raises(ValueError, match="demo_0: task is int64, not text"):
        Mapper(make_cfg(instruction=InstructionCfg(key="task")))(raw)


def test_images_are_resized_by_area():
    image = np.zeros((2, 4, 3), np.uint8)
    image[:, :, 0] = [[0, 100, 10, 30], [200, 100, 50, 30]]
    raw = make_raw()
    raw.images["cam"] = np.repeat(image[None], LENGTH, axis=0)
    episode = Mapper(make_cfg(image_size=[1, 2]))(raw)
    assert episode.images["front"].shape == (LENGTH, 1, 2, 3)
    assert episode.images["front"][0, 0, :, 0].tolist() == [100, 30]  # 400 / 4, 120 / 4


def test_a_changed_aspect_ratio_is_warned_of():
    mapper = Mapper(make_cfg(image_size=[8, 4]))
    mapper(make_raw())
    assert list(mapper.warnings) == ["cam is distorted, from 16x16 to 8x4 (height x width)"]


def test_encoded_images_of_the_right_size_are_not_touched():
    raw = make_raw()
    raw.images["cam"] = EncodedImages([make_jpeg(image) for image in draw(0, LENGTH)], "jpg")
    images = Mapper(make_cfg(fps=5))(raw).images["front"]
    assert images == EncodedImages(raw.images["cam"].blobs[::2], "jpg")


def test_encoded_images_of_another_size_are_decoded_and_resized():
    raw = make_raw()
    blobs = encode_png(draw(0, LENGTH))
    raw.images["cam"] = EncodedImages(blobs, "png")
    images = Mapper(make_cfg(image_size=[8, 8]))(raw).images["front"]
    pixels = decode_image(blobs[1])[:2, :2].reshape(4, 3).astype(float)
    np.testing.assert_allclose(images[1, 0, 0], pixels.mean(axis=0), atol=0.5)


def test_a_damaged_or_odd_encoded_image_is_named_with_its_frame():
    raw = make_raw()
    blobs = encode_png(draw(0, LENGTH))
    for blob, message in [
        (b"not an image", "frame 3: 12 bytes that are neither"),
        (encode_png(draw(0, 1, 8))[0], "frame 3 is 8x8, at frame 0 16x16"),
    ]:
        raw.images["cam"] = EncodedImages([*blobs[:3], blob, *blobs[4:]], "png")
        with pytest.raises(
            ValueError, match=rf"demo_0: cam \(observation.images.front\) at {message}"
        ):
            Mapper(make_cfg())(raw)
