"""A dataset that lerobot 0.6.1 wrote and annotated, with all that is new in it: language columns,
a depth video, depth images, tools, its own video settings.
"""

import json
from pathlib import Path

import numpy as np

FPS = 10
LENGTHS = (6, 5)
SIZE = 16
DEPTH = 64  # px: HEVC is given no smaller video
FRONT = "observation.images.front"
DEPTH_VIDEO = "observation.images.front_depth"
DEPTH_IMAGE = "observation.images.wrist_depth"
CALL = {"type": "function", "function": {"name": "say", "arguments": {"text": "ok"}}}


def depth_m(episode: int, frame: int) -> np.ndarray:
    """float32 [H, W], between 0.5 m and 3 m."""
    rows, columns = np.mgrid[:DEPTH, :DEPTH]
    return (0.5 + 0.01 * rows + 0.02 * columns + 0.1 * frame + 0.1 * episode).astype(np.float32)


def depth_mm(episode: int, frame: int) -> np.ndarray:
    """uint16 [H, W], up to what 16 bits hold."""
    rows, columns = np.mgrid[:DEPTH, :DEPTH]
    return (rows * 1000 + columns + 10 * frame + episode).astype(np.uint16)


def write_annotated(lerobot_dataset, root: Path) -> Path:
    """Two episodes, recorded and then annotated by lerobot."""
    channel = ["height", "width", "channels"]
    depth = {"shape": (DEPTH, DEPTH, 1), "names": channel}
    vector = {"dtype": "float32", "shape": (2,), "names": ["x", "y"]}
    features = {
        FRONT: {"dtype": "video", "shape": (SIZE * 4, SIZE * 4, 3), "names": channel},
        DEPTH_VIDEO: {"dtype": "video", **depth, "info": {"is_depth_map": True}},
        DEPTH_IMAGE: {"dtype": "image", **depth, "info": {"is_depth_map": True}},
        "observation.state": vector,
        "action": vector,
    }
    dataset = lerobot_dataset.create("local/annotated", FPS, features, root=root)
    for episode, length in enumerate(LENGTHS):
        for frame in range(length):
            shade = np.arange(SIZE**2 * 48).reshape(SIZE * 4, SIZE * 4, 3) % (97 + frame)
            values = np.array([frame / 100, episode], np.float32)
            dataset.add_frame(
                {
                    FRONT: shade.astype(np.uint8),
                    DEPTH_VIDEO: depth_m(episode, frame)[..., None],
                    DEPTH_IMAGE: depth_mm(episode, frame)[..., None],
                    "observation.state": values,
                    "action": -values,
                    "task": f"task {episode}",
                }
            )
        dataset.save_episode(parallel_encoding=False)
    dataset.finalize()
    annotate(root, rows_of)
    return root


def rows_of(times_s) -> list[dict]:
    """What an episode with these time stamps is annotated with."""
    said = [
        ("assistant", "subtask", times_s[0], "reach", None, None),
        ("assistant", "subtask", times_s[3], "grasp", None, None),
        ("assistant", "memory", times_s[2], "was there", None, None),
        ("user", "task_aug", times_s[0], "please do", None, None),
        ("user", "task_aug", times_s[0], "go on", None, None),
        ("user", "vqa", times_s[1], "which colour?", FRONT, None),
        ("assistant", "vqa", times_s[1], '{"label": "grey"}', FRONT, None),
        ("assistant", None, times_s[4], None, None, [CALL]),
    ]
    names = ("role", "style", "timestamp", "content", "camera", "tool_calls")
    return [dict(zip(names, row, strict=True)) for row in said]


def annotate(root: Path, rows) -> None:
    """Write language columns as lerobot's annotation pipeline does."""
    from lerobot.annotations.steerable_pipeline.reader import iter_episodes
    from lerobot.annotations.steerable_pipeline.staging import EpisodeStaging
    from lerobot.annotations.steerable_pipeline.writer import LanguageColumnsWriter
    from lerobot.datasets.io_utils import load_info, write_info
    from lerobot.datasets.language import SAY_TOOL_SCHEMA, language_feature_info

    staging, episodes = root.with_name(f"{root.name}.staging"), list(iter_episodes(root))
    for episode in episodes:
        EpisodeStaging(staging, episode.episode_index).write("plan", rows(episode.frame_timestamps))
    LanguageColumnsWriter().write_all(episodes, staging, root)
    info = load_info(root)
    info.features = {**info.features, **language_feature_info()}
    info.tools = [SAY_TOOL_SCHEMA]
    write_info(info, root)


def read_json(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))
