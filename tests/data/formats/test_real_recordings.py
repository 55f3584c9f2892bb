"""Recordings of real robots and of others' simulators, from conversion to lerobot's reader."""

from pathlib import Path

import numpy as np
import pytest

from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import (
    DatasetCfg,
    InstructionCfg,
    ModalityCfg,
    SourceCfg,
    VectorCfg,
)

DATA = Path(__file__).parents[4] / "shared/data"
BRIDGE = DATA / "octo_bridge_rlds/bridge_dataset/1.0.0"
GR1 = DATA / "groot_robot_sim_PickNPlace/dataset"
G1 = DATA / "g1_inspire_v21"


def make_cfg(**fields):
    return DatasetCfg(name="real", licence="MIT", provenance="see shared/data", **fields)


def numbered(name, num, key, **fields):
    names = [f"{name}_{index}" for index in range(num)]
    return VectorCfg(keys=[key], names=names, unit="rad", **fields)


BRIDGE_CFG = make_cfg(
    source=SourceCfg(format="rlds", path="x", options={"split": "train"}),
    fps=5,
    image_size=[64, 64],
    cameras={"front": "observation/image_0", "wrist": "observation/image_1"},
    state=numbered("state", 7, "observation/state"),
    action=numbered("action", 7, "action"),
)
GR1_CFG = make_cfg(
    source=SourceCfg(format="lerobot", path="x"),
    fps=20,
    storage="video",
    image_size=[64, 64],
    cameras={"ego": "observation.images.ego_view"},
    state=numbered("joint", 44, "observation.state"),
    action=numbered("joint", 44, "action"),
    modality=ModalityCfg(),
)
G1_CFG = make_cfg(
    source=SourceCfg(format="lerobot", path="x"),
    fps=10,
    storage="video",
    image_size=[48, 64],
    cameras={"head": "observation.images.cam_high"},
    state=numbered("joint", 26, "observation.state"),
    action=numbered("joint", 26, "action"),
    instruction=InstructionCfg(text="stack the blocks"),
)


@pytest.mark.parametrize(
    ("path", "cfg", "step", "num_episodes", "num_workers"),
    [
        (BRIDGE, BRIDGE_CFG, 1, 25, 1),
        pytest.param(GR1, GR1_CFG, 1, 5, 2, marks=pytest.mark.slow),
        (G1, G1_CFG, 3, 1, 1),
    ],
    ids=["bridge", "gr1", "g1"],
)
def test_lerobot_reads_what_was_recorded(
    open_with_lerobot,
    tmp_path,
    path,
    cfg,
    step,
    num_episodes,
    num_workers,
):
    if not path.is_dir():
        pytest.skip(f"{path} is not here")
    done = convert(cfg, path, tmp_path / "d", num_workers=num_workers)
    assert done.episodes == num_episodes
    dataset = open_with_lerobot(tmp_path / "d", cfg.fps)
    source = cfg.source.reader(path)
    keys = [cfg.state.keys[0], cfg.action.keys[0]]
    index = 0
    for recording in source.recordings():
        for raw in source.episodes(recording, keys):
            state, action = (raw.arrays[key].astype(np.float32) for key in keys)
            text = cfg.instruction.text if cfg.instruction else raw.instruction
            length = len(raw)
            for frame in range(0, length, step):
                item = dataset[index]
                np.testing.assert_array_equal(item["observation.state"], state[frame])
                last = min(frame + step, length) - 1
                np.testing.assert_array_equal(item["action"][0], action[last])
                assert item["task"] == text
                index += 1
    assert index == len(dataset) == done.frames
