"""What stands beside the weights of GR00T N1.7, as gr00t/model/gr00t_n1d7 of NVIDIA/Isaac-GR00T
writes and reads it.

    config.json            the model: action_horizon, num_inference_timesteps, sizes
    processor_config.json  processor_kwargs: how images, language, state and action are prepared,
                           and the parts of each embodiment's vectors (modality_configs)
    statistics.json        tag -> state | action | relative_action -> part -> min, max, mean, ...
    embodiment_id.json     tag -> number of its encoders and decoders

    language   small letters, without punctuation (formalize_language)
    images     shorter side 256 (INTER_AREA), the middle 0.95 of each side, shorter side 256 again,
               then multiples of 32, as Qwen3-VL's processor does (bicubic)
    state      to [-1, 1] by q01 and q99 or by min and max, clipped; some parts by mean and std
    action     the same, also the predicted one; relative joints minus the state, by min and max of
               their own statistics, perhaps one per step. A robot has as many steps as it has
               delta_indices; the model predicts action_horizon of them

A dimension that does not move is 0 as state, and always the same as action. Every setting is
honoured, known to change no action, or refused by name.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rrf import atomic
from rrf.data.dataset.action_representation import PREDICTED
from rrf.data.dataset.transforms import ModeOfDimension
from rrf.data.formats.json_files import read_object
from rrf.data.schema import ACTION, STATE
from rrf.networks.vlm.configs import ImageRuleCfg
from rrf.networks.vlm.qwen.configs import Qwen3VLCfg
from rrf.policies.vla.heads.groot_configs import NEW, GrootHeadCfg
from rrf.policies.vla.published.settings import Settings
from rrf.policies.vla.vlm_configs import VLMPolicyCfg

PROCESSOR, STATISTICS = "processor_config.json", "statistics.json"
EMBODIMENTS = "embodiment_id.json"
_NUMBERS = ("min", "max", "mean", "std", "q01", "q99")
_LANGUAGE, _BACKBONE = "annotation.human.task_description", "nvidia/Cosmos-Reason2-2B"
_FAR = 1e8  # half a range by which what is divided becomes 0
_TACTILE = "only with use_tactile"
_SETTINGS = Settings(
    honoured=(
        *("modality_configs", "use_percentiles", "clip_outliers", "formalize_language"),
        *("use_albumentations", "shortest_image_edge", "crop_fraction"),
        *("image_crop_size", "image_target_size", "max_state_dim", "max_action_dim"),
        *("max_action_horizon", "use_relative_action", "embodiment_id_mapping", "statistics"),
    ),
    harmless={
        "random_rotation_angle": "only in training",
        "color_jitter_params": "only in training",
        "extra_augmentation_config": "only in training",
        "state_dropout_prob": "only in training",
        "use_mean_std": "read by nothing",
        "model_name": "the backbone is in the file",
        "transformers_loading_kwargs": "how the hub is asked",
        "tactile_state_keys": _TACTILE,
        "tactile_input_shape": _TACTILE,
        "tactile_embed_dim": _TACTILE,
    },
    only={
        "model_type": ("qwen", "the backbone here is Qwen3-VL"),
        "letter_box_transform": (False, "images are not padded here"),
        "apply_sincos_state_encoding": (False, "states are encoded by no sine here"),
        "exclude_state": (False, "the head always reads the state"),
        "use_tactile": (False, "there is no encoder of touch"),
    },
)


def is_at(folder: Path) -> bool:
    """Whether a folder has the files of N1.7's processor."""
    return (folder / PROCESSOR).is_file() and (folder / STATISTICS).is_file()


def can_write(cfg: VLMPolicyCfg) -> bool:
    """Whether these files can say how a policy prepares what it sees and does."""
    backbone = cfg.backbone
    if not isinstance(backbone, Qwen3VLCfg):
        return False
    image = backbone.image
    return (
        (image.filter, image.cut) == ("area", "pixels")
        and image.fit in ("shortest", "stretch")
        and not backbone.begins_answer
        and backbone.system_prompt == ""
        and cfg.prompt == "{instruction}"
        and cfg.clips_state
        and cfg.clips_actions
        and cfg.state_normalization == cfg.action_normalization != "mean_std"
        and not cfg.state_modes
        and not cfg.action_modes
    )


def write(
    folder: Path, cfg: VLMPolicyCfg, statistics: Mapping[str, Mapping], tag: str, slot: int
) -> None:
    """Write the three files of the processor, with state and action as one part each.

    Args:
        folder: Where.
        cfg: A policy of which `can_write` is true.
        statistics: Those of GR00T's metadata, "state" and "action" -> part -> number -> values.
        tag: The embodiment.
        slot: Its number.
    """
    backbone, head = cfg.backbone, cfg.head
    assert isinstance(backbone, Qwen3VLCfg)
    assert isinstance(head, GrootHeadCfg)
    image, edge = backbone.image, min(backbone.image.size)
    part = {"delta_indices": [0], "sin_cos_embedding_keys": None, "mean_std_embedding_keys": None}
    kind = {"rep": "ABSOLUTE", "type": "NON_EEF", "format": "DEFAULT", "state_key": None}
    modality = {
        "video": {**part, "modality_keys": list(cfg.cameras), "action_configs": None},
        "state": {**part, "modality_keys": ["state"], "action_configs": None},
        "action": {
            **part,
            "delta_indices": [*range(cfg.chunk_length)],
            "modality_keys": ["action"],
            "action_configs": [kind],
        },
        "language": {**part, "modality_keys": [_LANGUAGE], "action_configs": None},
    }
    settings = {
        "modality_configs": {tag: modality},
        "image_crop_size": [int(side * image.keeps) for side in (edge, edge)],
        "image_target_size": list(image.size),
        "use_albumentations": True,
        "random_rotation_angle": None,
        "color_jitter_params": None,
        "shortest_image_edge": edge if image.fit == "shortest" else None,
        "crop_fraction": image.keeps,
        "letter_box_transform": False,
        "model_name": _BACKBONE,
        "model_type": "qwen",
        "formalize_language": backbone.instructions == "formal",
        "max_state_dim": head.max_state_dim,
        "max_action_dim": head.max_action_dim,
        "max_action_horizon": cfg.head_steps,
        "use_percentiles": cfg.state_normalization == "quantile",
        "use_mean_std": False,
        "clip_outliers": True,
        "apply_sincos_state_encoding": False,
        "use_relative_action": False,
        "exclude_state": False,
        "state_dropout_prob": head.state_dropout,
    }
    processor = {"processor_class": "Gr00tN1d7Processor", "processor_kwargs": settings}
    atomic.write_json(folder / PROCESSOR, processor)
    atomic.write_json(folder / STATISTICS, {tag: statistics})
    atomic.write_json(folder / EMBODIMENTS, {tag: slot})


class Processor:
    """The settings for one robot.

    Args:
        folder: The checkpoint.
        tag: Its embodiment.

    Raises:
        ValueError: If files are missing or damaged, or for a setting that cannot be had.
    """

    def __init__(self, folder: Path, tag: str):
        self.file, self.tag = folder / PROCESSOR, tag
        self.settings = read_object(self.file).get("processor_kwargs", {})
        self.statistics = read_object(folder / STATISTICS)[tag]
        numbers = folder / EMBODIMENTS
        self.numbers: dict[str, int] = read_object(numbers) if numbers.is_file() else {}
        self._check()
        self.parts = self.settings["modality_configs"][tag]
        for kind in ("video", "state", "action"):
            self._check_part(kind)
        self.video = list(self.parts["video"]["modality_keys"])
        self.widths = {
            kind: {name: self._width(kind, name) for name in self.parts[kind]["modality_keys"]}
            for kind in ("state", "action")
        }
        self.relative = self._relative()

    def fitted(self, cfg: VLMPolicyCfg) -> VLMPolicyCfg:
        """`cfg`, which has the settings of config.json already, with what the files know better."""
        backbone, head = cfg.backbone, cfg.head
        if not isinstance(backbone, Qwen3VLCfg) or not isinstance(head, GrootHeadCfg):
            raise ValueError(
                f"the preset joins {type(backbone).__name__} and {type(head).__name__}, but GR00T "
                "N1.7 is a Qwen3VLCfg with a GrootHeadCfg; use --preset groot-n17-sft"
            )
        for name, ours in (
            ("max_state_dim", head.max_state_dim),
            ("max_action_dim", head.max_action_dim),
        ):
            if self.settings.get(name, ours) != ours:
                raise ValueError(
                    f"{self.file} has {name} {self.settings[name]}, but the head has {ours}"
                )
        formal = self.settings.get("formalize_language", True)
        normalization = "quantile" if self.settings.get("use_percentiles") else "min_max"
        size = cfg.image_size if all(cfg.image_size) else None
        return cfg.replace(
            cameras=self.video,
            state_dim=sum(self.widths["state"].values()),
            action_dim=sum(self.widths["action"].values()),
            chunk_length=len(self.parts["action"]["delta_indices"]),
            predicted_steps=cfg.head_steps,
            embodiment=None if self.tag == NEW else self.tag,
            state_normalization=normalization,
            action_normalization=normalization,
            state_modes=self._modes("state"),
            action_modes=self._modes("action"),
            relative_actions=self.relative,
            clips_state=self.settings.get("clip_outliers", True),
            clips_actions=True,
            head=head.replace(embodiments={**self.numbers}, version="n17"),
            backbone=backbone.replace(
                image=self.image_rule(backbone.image, size, 2 * backbone.patch_size),
                instructions="formal" if formal else "as_given",
                system_prompt=backbone.system_prompt and "",
                begins_answer=False,
            ),
        )

    def image_rule(
        self, rule: ImageRuleCfg, recorded: tuple[int, int] | None, unit: int
    ) -> ImageRuleCfg:
        """How images are prepared.

        Args:
            rule: The backbone's own, of which mean and std are kept.
            recorded: Height and width of the robot's images; None if they are not known, which are
                then taken for square.
            unit: Sides are multiples of this.
        """
        target, crop = (self.settings.get(f"image_{n}_size") for n in ("target", "crop"))
        edge, keeps = (self.settings.get(n) for n in ("shortest_image_edge", "crop_fraction"))
        if keeps is None:
            keeps = crop[0] / target[0] if crop and target else 1.0
        if not self.settings.get("use_albumentations", False):
            if not target or not crop or crop[0] != crop[1] or (target[0] - crop[0]) % 2:
                raise ValueError(
                    f"{self.file} has image_target_size {target} and image_crop_size {crop}, "
                    "allowed without albumentations: both, square, with an even difference"
                )
            size = tuple(target)
            return rule.replace(
                size=size, fit="stretch", filter="bilinear", keeps=crop[0] / target[0], cut="pixels"
            )
        if edge is None:
            if not target:
                raise ValueError(f"{self.file} has neither shortest_image_edge nor a target size")
            size = tuple(target)
            return rule.replace(size=size, fit="stretch", filter="area", keeps=keeps, cut="pixels")
        height, width = recorded or (edge, edge)
        sides = (side * edge / min(height, width) for side in (height, width))
        size = tuple(max(unit, round(round(side) / unit) * unit) for side in sides)
        return rule.replace(size=size, fit="shortest", filter="area", keeps=keeps, cut="pixels")

    def norm_stats(self, num_steps: int) -> dict[str, dict]:
        """The statistics as those of a dataset of ours, with those of what is predicted.

        Args:
            num_steps: Length of a chunk, to which statistics per step are continued.
        """
        results = {
            key: {n: [x for p in self._parts(kind) for x in p[n]] for n in self._numbers(kind)}
            for key, kind in ((STATE, "state"), (ACTION, "action"))
        }
        results[STATE] = self._unmoved(results[STATE], "state")
        absolute = self._unmoved(results[ACTION], "action")
        if self.relative:
            results[PREDICTED] = self._unmoved(self._predicted(num_steps), "action")
        results[ACTION] = absolute
        return results

    def _check(self) -> None:
        _SETTINGS.check(self.file, self.settings)
        if self.tag not in self.settings.get("modality_configs", {}):
            raise ValueError(f"{self.file} says nothing of the embodiment {self.tag}")

    def _check_part(self, kind: str) -> None:
        part, where = self.parts[kind], f"{self.file}: {self.tag}.{kind}"
        if kind != "action" and part["delta_indices"] != [0]:
            raise ValueError(
                f"{where} has delta_indices {part['delta_indices']}, which cannot be had; allowed: "
                "[0], the present alone"
            )
        if kind == "action" and part["delta_indices"] != [*range(len(part["delta_indices"]))]:
            raise ValueError(
                f"{where} has delta_indices {part['delta_indices']}, allowed: 0, 1, 2, ..."
            )
        if part.get("exclude_state"):
            raise ValueError(f"{where} has exclude_state, which cannot be had")

    def _width(self, kind: str, name: str) -> int:
        known = self.statistics.get(kind, {})
        if name not in known:
            raise ValueError(f"{self.file.parent / STATISTICS} has no {self.tag}.{kind}.{name}")
        return len(known[name]["min"])

    def _numbers(self, kind: str) -> list[str]:
        return [n for n in _NUMBERS if all(n in part for part in self._parts(kind))]

    def _parts(self, kind: str) -> list[Mapping[str, Sequence]]:
        return [self.statistics[kind][name] for name in self.widths[kind]]

    def _modes(self, kind: str) -> dict[int, ModeOfDimension]:
        """Dimensions that are not normalised as the others."""
        by_mean = self.parts[kind].get("mean_std_embedding_keys") or []
        modes: dict[int, ModeOfDimension] = {}
        for name, dims in self._dimensions(kind).items():
            if name in by_mean:
                modes |= dict.fromkeys(dims, "mean_std")
        if kind == "action":  # relative parts have min and max alone
            relative = {action for action, _ in self.relative}
            modes |= {d: "min_max" for d in relative if d not in modes}
        return modes

    def _dimensions(self, kind: str) -> dict[str, range]:
        ranges, start = {}, 0
        for name, width in self.widths[kind].items():
            ranges[name] = range(start, start + width)
            start += width
        return ranges

    def _action_kinds(self) -> dict[str, Mapping]:
        part = self.parts["action"]
        configs = part.get("action_configs") or [{}] * len(part["modality_keys"])
        return dict(zip(part["modality_keys"], configs, strict=True))

    def _is_relative(self, config: Mapping) -> bool:
        is_relative = str(config.get("rep", "")).lower() == "relative"
        return is_relative and bool(self.settings.get("use_relative_action"))

    def _relative(self) -> list[tuple[int, int]]:
        actions, states = self._dimensions("action"), self._dimensions("state")
        pairs = []
        for name, config in self._action_kinds().items():
            if not self._is_relative(config):
                continue
            if str(config.get("type")).lower() != "non_eef":
                raise ValueError(
                    f"{self.file}: {self.tag}.action.{name} is a pose relative to the hand, which "
                    "cannot be had; allowed: absolute actions, and joints relative to the state"
                )
            source = config.get("state_key") or name
            if len(states.get(source, ())) != len(actions[name]):
                raise ValueError(
                    f"{self.file}: {self.tag}.action.{name} is relative to state.{source}, which "
                    f"has {len(states.get(source, ()))} dimensions instead of {len(actions[name])}"
                )
            pairs += zip(actions[name], states[source], strict=True)
        return pairs

    def _predicted(self, num_steps: int) -> dict[str, list]:
        """Statistics of what is predicted, a row per step if a part has them so."""
        known = self.statistics.get("relative_action", {})
        parts = []
        for name, config in self._action_kinds().items():
            is_relative = self._is_relative(config)
            if is_relative and name not in known:
                raise ValueError(
                    f"{self.file.parent / STATISTICS} has no {self.tag}.relative_action.{name}"
                )
            part = known[name] if is_relative else self.statistics["action"][name]
            parts.append({"q01": part["min"], "q99": part["max"], **part})
        names = [n for n in _NUMBERS if all(n in p for p in parts)]
        results = {}
        for name in names:
            rows = [np.atleast_2d(np.asarray(part[name], np.float64)) for part in parts]
            if max(len(row) for row in rows) == 1:
                results[name] = np.concatenate(rows, 1)[0].tolist()
                continue
            steps = [row[np.minimum(np.arange(num_steps), len(row) - 1)] for row in rows]
            results[name] = np.concatenate(steps, 1).tolist()
        return results

    def _unmoved(self, stats: Mapping[str, Sequence], kind: str) -> dict[str, list]:
        """Statistics with which what does not move is treated as the original does: 0 by minimum
        and maximum as state, its one value as action; left alone by mean and std."""
        results = {name: np.asarray(values, np.float64) for name, values in stats.items()}
        for low, high in (("min", "max"), ("q01", "q99")):
            if low not in results or high not in results:
                continue
            first, last = results[low], results[high]
            is_unmoved = np.isclose(last, first)
            middle, half = (first + last) / 2, np.where(is_unmoved, _FAR, (last - first) / 2)
            if kind == "action":
                half = np.where(last == first, 1 / _FAR, (last - first) / 2)
                is_unmoved = last == first
            results[low] = np.where(is_unmoved, middle - half, first)
            results[high] = np.where(is_unmoved, middle + half, last)
        if "std" in results:
            is_unmoved = results["std"] == 0
            results["mean"] = np.where(is_unmoved, 0.0, results["mean"])
            results["std"] = np.where(is_unmoved, 1.0, results["std"])
        return {name: values.tolist() for name, values in results.items()}
