"""lerobot's reward models (`lerobot.rewards`), which score recorded frames by their images.

| type | score of a frame |
|---|---|
| reward_classifier | the probability that the task is solved, from the images of the frame |
| robometer | progress from 0 to 1, from four frames spread evenly from the first to this one |
| topreward | log-probability that a vision-language model finds the instruction fulfilled, from |
| | `max_frames` frames, spread in the same way |

The folder is what lerobot's training writes: config.json, model.safetensors, and for the classifier
classifier_preprocessor.json with the statistics of its images. Nothing is downloaded and no code
from a folder is run.

Legend: T frames of an episode, B rows, K frames that a model sees.
"""

import typing
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from rrf import atomic
from rrf.data.schema import IMAGE_PREFIX, Episode
from rrf.policies.vla.lerobot.directories import check_local, check_no_code
from rrf.policies.vla.published.lerobot import WEIGHTS, fill

BACKBONES = {
    "reward_classifier": "model_name",
    "robometer": "base_model_id",
    "topreward": "vlm_name",
}
"""The types that are taken -> the setting that names the model within."""
REFUSED = {
    "sarm": (
        "lerobot loads openai/clip-vit-base-patch32 from the hub, by a name that no setting changes"
    )
}
_CLASSIFIER = "classifier_preprocessor"
_SHOWN = 4  # frames that lerobot shows to Robometer when it scores recordings
_ROWS = 8  # frames that are scored at once


class RewardModel:
    """A reward model in a folder.

    Args:
        folder: lerobot's `pretrained_model` folder of a reward model.
        backbone: The local directory of the model within, where it is not the one that config.json
            names.
        camera: The camera that it sees, for types that see one; by default config.json's.
        device: Where it computes.

    Raises:
        ValueError: For files that are missing, a type that is not taken, and a model within that is
            not here or has code of its own.
    """

    def __init__(
        self,
        folder: str | Path,
        backbone: str | Path | None = None,
        camera: str | None = None,
        device: str = "cpu",
    ):
        from draccus import ParsingError
        from lerobot.configs.rewards import RewardModelConfig
        from lerobot.rewards.factory import get_reward_model_class

        folder = Path(folder)
        settings = _settings(folder)
        self.type: str = settings["type"]
        within = str(backbone or settings[BACKBONES[self.type]])
        check_no_code(check_local(BACKBONES[self.type], within))
        try:
            config: typing.Any = RewardModelConfig.from_pretrained(folder)
        except ParsingError as error:
            raise ValueError(
                f"{folder / 'config.json'} is not what the installed lerobot writes: {error}"
            ) from error
        setattr(config, BACKBONES[self.type], within)
        config.device = device
        config.pretrained_path = str(folder)  # so that Robometer does not ask for Qwen's weights
        if camera is not None and self.type != "reward_classifier":
            config.image_key = IMAGE_PREFIX + camera
            config.input_features = {}
            config.__post_init__()
        self.config = config
        self.model = get_reward_model_class(self.type)(config).eval()
        if self.type != "topreward":  # which has no weights of its own
            fill(self.model, folder / WEIGHTS, f"the {self.type} of its config.json")
        self.model.to(device)
        self._preprocess = _processor(folder, config)
        self.digest = atomic.sha256(folder / "config.json")[:16]

    @property
    def cameras(self) -> list[str]:
        """The cameras that it sees."""
        if self.type == "reward_classifier":
            keys = list(self.config.input_features)
        else:
            keys = [self.config.image_key]
        return [key.removeprefix(IMAGE_PREFIX) for key in keys if key.startswith(IMAGE_PREFIX)]

    def scores(
        self, episode: Episode, on_frames: Callable[[int, int], None] = lambda done, total: None
    ) -> np.ndarray:
        """A score for each frame of an episode, float32 [T].

        Raises:
            ValueError: If the episode lacks a camera that the model sees.
        """
        missing = [name for name in self.cameras if name not in episode.images]
        if missing:
            raise ValueError(
                f"the {self.type} sees the camera {missing[0]}, but {episode.source} has "
                f"{', '.join(episode.images)}"
                + ("" if self.type == "reward_classifier" else "; choose one with --camera")
            )
        length, scores = len(episode.state), []
        for first in range(0, length, _ROWS):
            rows = range(first, min(first + _ROWS, length))
            scores.append(self._scored(episode, rows))
            on_frames(rows.stop, length)
        return np.concatenate(scores).astype(np.float32)

    @torch.no_grad()
    def _scored(self, episode: Episode, rows: range) -> np.ndarray:
        if self.type == "reward_classifier":
            part = slice(rows.start, rows.stop)
            batch = self._preprocess(
                {
                    IMAGE_PREFIX + name: _images(np.asarray(episode.images[name])[part])
                    for name in self.cameras
                }
            )
            images = [batch[key] for key in self.config.input_features]
            return self.model.predict(images).probabilities.float().cpu().numpy()  # type: ignore[operator]
        key, num_shown = self.config.image_key, self._num_shown
        frames_bk = np.stack([np.linspace(0, row, num_shown).round().astype(int) for row in rows])
        shown = np.asarray(episode.images[key.removeprefix(IMAGE_PREFIX)])[frames_bk]
        batch = self._preprocess({key: _images(shown), "task": [episode.instruction] * len(rows)})
        return self.model.compute_reward(batch).float().cpu().numpy()

    @property
    def _num_shown(self) -> int:
        most = self.config.max_frames or _SHOWN
        return min(most, _SHOWN) if self.type == "robometer" else most


def _settings(folder: Path) -> dict[str, typing.Any]:
    file = folder / "config.json"
    if not file.is_file():
        raise ValueError(f"{file} is missing; give lerobot's folder of a reward model")
    settings = atomic.parse_json(file.read_text(encoding="utf-8"))
    kind = settings.get("type")
    if kind not in BACKBONES:
        reason = f": {REFUSED[kind]}" if kind in REFUSED else ""
        raise ValueError(
            f"{file} is of a reward model '{kind}', allowed: {', '.join(BACKBONES)}{reason}"
        )
    if kind == "reward_classifier" and settings.get("num_classes", 2) != 2:
        raise ValueError(
            f"{file} has num_classes {settings['num_classes']}, allowed: 2, solved or not; more "
            "classes have no order"
        )
    return settings


def _processor(folder: Path, config: typing.Any) -> Callable[[typing.Any], typing.Any]:
    """What prepares images and instructions for a model."""
    from lerobot.processor import PolicyProcessorPipeline
    from lerobot.rewards.factory import make_reward_pre_post_processors

    if config.type != "reward_classifier":
        before, _ = make_reward_pre_post_processors(config)
        return before
    if not (folder / f"{_CLASSIFIER}.json").is_file():
        raise ValueError(
            f"{folder}/{_CLASSIFIER}.json is missing, which has the statistics of the images"
        )
    return PolicyProcessorPipeline.from_pretrained(
        str(folder),
        config_filename=f"{_CLASSIFIER}.json",
        overrides={"device_processor": {"device": config.device}},
    )


def _images(pixels: np.ndarray) -> torch.Tensor:
    """Pixels [..., H, W, 3] as lerobot's datasets give them: [..., 3, H, W] from 0 to 1."""
    return torch.from_numpy(np.ascontiguousarray(pixels)).movedim(-1, -3).float() / 255
