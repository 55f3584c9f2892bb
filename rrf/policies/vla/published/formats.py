"""Every layout in which whole policies are published, behind one interface.

    openpi     Physical Intelligence's PyTorch port: pi0, pi0.5
    lerobot    pi0 and pi0.5 as lerobot writes them
    openvla    OpenVLA and OpenVLA-OFT
    groot      GR00T N1.5 and N1.7

A folder rarely says everything: sizes of layers stand in no config.json. So a preset gives the
policy, the folder corrects what it knows better, and the weights are then read strictly.
"""

import typing
from collections.abc import Mapping
from pathlib import Path

from rrf import atomic
from rrf.data.formats.groot_metadata import PATH as GROOT_METADATA
from rrf.data.formats.groot_metadata import read_metadata
from rrf.data.formats.json_files import read_object
from rrf.data.schema import ACTION, STATE
from rrf.networks.vlm.eagle.configs import EagleCfg
from rrf.networks.vlm.prismatic.configs import PrismaticCfg
from rrf.networks.vlm.weights import read_shapes
from rrf.policies.vla.heads.groot_configs import NEW
from rrf.policies.vla.lerobot.kinds import REFUSED
from rrf.policies.vla.published import (
    groot,
    groot_n17,
    groot_settings,
    lerobot_pi,
    openvla,
    openvla_rl,
    pi_checkpoints,
    pi_norm_stats,
)
from rrf.policies.vla.published.folders import require_written
from rrf.policies.vla.vlm import VLMPolicy
from rrf.policies.vla.vlm_configs import VLMPolicyCfg

NormStats = dict[str, dict[str, typing.Any]]


class Format(typing.Protocol):
    """A layout of published policies."""

    def is_at(self, folder: Path) -> bool:
        """Whether a folder is in this layout, as far as its file names, config.json and the names
        of its tensors tell."""
        ...

    def preset(self, folder: Path) -> str:
        """The preset whose policy is the closest to that in a folder."""
        ...

    def fitted(self, folder: Path, cfg: VLMPolicyCfg, group: str | None) -> VLMPolicyCfg:
        """`cfg` with what the folder knows better: cameras, dimensions, length of a chunk.

        Args:
            folder: The published policy.
            cfg: The policy of a preset.
            group: Which statistics, where there are several: OpenVLA's dataset, GR00T's embodiment.
        """
        ...

    def unsaid(self, folder: Path) -> dict[str, str]:
        """What no file in a folder says although actions depend on it, so that whoever imports it
        must: field of the policy -> what to say."""
        ...

    def norm_stats(self, folder: Path, cfg: VLMPolicyCfg, group: str | None) -> NormStats:
        """Its statistics. Raises ValueError if there are none, or several and no `group`."""
        ...

    def fill(self, policy: VLMPolicy, folder: Path) -> None:
        """Copy its weights into a policy. Raises ValueError if they do not fit exactly."""
        ...

    def write(
        self, policy: VLMPolicy, norm_stats: Mapping[str, Mapping], folder: Path, group: str | None
    ) -> None:
        """Write a policy. Raises ValueError if the layout has no place for it."""
        ...


class Pi:
    """pi0 and pi0.5, in either layout."""

    def __init__(self, layout: pi_checkpoints.Layout):
        self._layout: pi_checkpoints.Layout = layout

    def is_at(self, folder: Path) -> bool:
        config = _config(folder)
        if self._layout == "lerobot":
            return config.get("type") in ("pi0", "pi05")
        return "type" not in config and _has_names(folder, "paligemma_with_expert.", "action_in_")

    def preset(self, folder: Path) -> str:
        config = _config(folder)
        is_newer = config.get("pi05", config.get("type") == "pi05")
        # openpi's own converter writes no version; only pi0.5 has a time MLP
        is_newer |= _has_names(folder, "time_mlp_in.", "model.time_mlp_in.")
        return "pi05-sft" if is_newer else "pi0-sft"

    def fitted(self, folder: Path, cfg: VLMPolicyCfg, group: str | None) -> VLMPolicyCfg:
        pi_checkpoints.require_pi(cfg)
        if self._layout == "lerobot":
            return lerobot_pi.fitted(folder, _config(folder), cfg)
        version = "pi05" if self.preset(folder).startswith("pi05") else "pi0"
        return pi_checkpoints.fitted_openpi(folder, _config(folder), cfg, version)

    def unsaid(self, folder: Path) -> dict[str, str]:
        if self._layout == "openpi":
            return {"relative_actions": pi_checkpoints.RELATIVE}
        config = _config(folder)
        is_old = config.get("type") == "pi05" and "use_relative_actions" not in config
        return {"prompt_state_dims": lerobot_pi.PADDED} if is_old else {}

    def norm_stats(self, folder: Path, cfg: VLMPolicyCfg, group: str | None) -> NormStats:
        dims = {STATE: cfg.state_dim, ACTION: cfg.action_dim}
        modes = {STATE: cfg.state_modes, ACTION: cfg.action_modes}
        unused = [key for key in dims if list(modes[key].values()) == ["none"] * dims[key]]
        stats = pi_norm_stats.read(folder, cfg.state_dim, cfg.action_dim, unused)
        return pi_norm_stats.as_predicted(stats, cfg.representation)

    def fill(self, policy: VLMPolicy, folder: Path) -> None:
        file, config = folder / "config.json", _config(folder)
        if self._layout == "lerobot":
            lerobot_pi.CONFIG.check(file, config)
            lerobot_pi.check_periods(folder, config, policy.cfg)
        else:
            pi_checkpoints.OPENPI.check(file, config)
        pi_checkpoints.fill(policy, folder)

    def write(
        self, policy: VLMPolicy, norm_stats: Mapping[str, Mapping], folder: Path, group: str | None
    ) -> None:
        pi_checkpoints.write(policy, norm_stats, folder, self._layout)
        for name, text in policy.backbone.assets().items():
            (folder / name).write_text(text, encoding="utf-8")


class OpenVLA:
    """OpenVLA and OpenVLA-OFT."""

    def is_at(self, folder: Path) -> bool:
        return _config(folder).get("model_type") == "openvla"

    def preset(self, folder: Path) -> str:
        is_tuned = (folder / openvla.STATISTICS).is_file()
        return openvla_rl.preset_of(folder, _config(folder), is_tuned)

    def fitted(self, folder: Path, cfg: VLMPolicyCfg, group: str | None) -> VLMPolicyCfg:
        config = openvla.config_of(folder)
        stats = openvla.norm_stats_of(config, self._dataset(folder, group), cfg.state_dim)
        cfg = openvla.fitted(folder, cfg).replace(
            state_dim=cfg.state_dim or len(stats[STATE]["q01"]),
            action_dim=len(stats[ACTION]["q01"]),
        )
        if (mode := openvla_rl.normalization(cfg)) == "quantile":
            return cfg
        return cfg.replace(action_normalization=mode, state_normalization=mode)

    def unsaid(self, folder: Path) -> dict[str, str]:
        return {}

    def norm_stats(self, folder: Path, cfg: VLMPolicyCfg, group: str | None) -> NormStats:
        config = openvla.config_of(folder)
        return openvla.norm_stats_of(config, self._dataset(folder, group), cfg.state_dim)

    def fill(self, policy: VLMPolicy, folder: Path) -> None:
        openvla.fill(policy, folder)

    def write(
        self, policy: VLMPolicy, norm_stats: Mapping[str, Mapping], folder: Path, group: str | None
    ) -> None:
        cfg = policy.cfg
        require_written(cfg, "openvla")
        mode = openvla_rl.normalization(cfg)
        if isinstance(cfg.backbone, PrismaticCfg) and cfg.action_normalization != mode:
            span = "q01 to q99" if mode == "quantile" else "the least to the greatest value"
            raise ValueError(
                f"action_normalization is {cfg.action_normalization}, but programs that read the "
                f"layout of openvla take actions from {span}; train with "
                f"policy.action_normalization={mode}"
            )
        openvla.write(policy, folder, group or "rrf", norm_stats)

    def _dataset(self, folder: Path, group: str | None) -> str:
        config = openvla.config_of(folder)
        group = openvla_rl.group_of(config, group)
        return _chosen_group(config.get("norm_stats") or {}, group, folder)


class Groot:
    """GR00T N1.5 and N1.7."""

    def is_at(self, folder: Path) -> bool:
        return _has_names(folder, groot.HEAD)

    def preset(self, folder: Path) -> str:
        return "groot-n15-sft" if _has_names(folder, groot.BACKBONES["n15"]) else "groot-n17-sft"

    def fitted(self, folder: Path, cfg: VLMPolicyCfg, group: str | None) -> VLMPolicyCfg:
        cfg = groot_settings.fitted(folder, cfg)
        if groot_n17.is_at(folder):
            return self._processor(folder, cfg, group).fitted(cfg)
        changes: dict[str, typing.Any] = {}
        if (folder / GROOT_METADATA).is_file():
            tag = self._tag(folder, group or cfg.embodiment)
            data = read_metadata(folder, tag)
            stats = data.norm_stats()
            changes["state_dim"] = len(stats[STATE]["min"])
            changes["action_dim"] = len(stats[ACTION]["min"])
            changes["embodiment"] = None if tag == NEW else tag
            video = data.modalities.get("video", {})
            if video:
                width, height = next(iter(video.values()))["resolution"]
                changes |= {"cameras": list(video), "image_size": (height, width)}
        if isinstance(cfg.backbone, EagleCfg):
            changes["backbone"] = cfg.backbone.replace(
                image=groot.image_of_n15(_config(folder), cfg.backbone)
            )
        return cfg.replace(**changes)

    def unsaid(self, folder: Path) -> dict[str, str]:
        return {}

    def norm_stats(self, folder: Path, cfg: VLMPolicyCfg, group: str | None) -> NormStats:
        if groot_n17.is_at(folder):
            return self._processor(folder, cfg, group).norm_stats(cfg.chunk_length)
        stats = read_metadata(folder, self._tag(folder, group or cfg.embodiment)).norm_stats()
        return groot.stats_of_n15(stats)

    def fill(self, policy: VLMPolicy, folder: Path) -> None:
        groot.load_policy(policy, folder)

    def write(
        self, policy: VLMPolicy, norm_stats: Mapping[str, Mapping], folder: Path, group: str | None
    ) -> None:
        require_written(policy.cfg, "groot")
        groot.write(policy, norm_stats, folder, group or policy.cfg.embodiment or NEW)

    def _tag(self, folder: Path, group: str | None) -> str:
        if not (folder / GROOT_METADATA).is_file():
            raise ValueError(
                f"{folder} has no statistics: neither {GROOT_METADATA} (N1.5) nor "
                f"{groot_n17.PROCESSOR} and {groot_n17.STATISTICS} (N1.7); give a dataset's with "
                "--norm-stats"
            )
        return _chosen_group(
            atomic.parse_json((folder / GROOT_METADATA).read_text()), group, folder
        )

    def _processor(self, folder: Path, cfg: VLMPolicyCfg, group: str | None) -> groot_n17.Processor:
        known = read_object(folder / groot_n17.STATISTICS)
        return groot_n17.Processor(folder, _chosen_group(known, group or cfg.embodiment, folder))


FORMATS: dict[str, Format] = {
    "openpi": Pi("openpi"),
    "lerobot": Pi("lerobot"),
    "openvla": OpenVLA(),
    "groot": Groot(),
}


def format_at(folder: Path, name: str | None = None) -> Format:
    """The layout of a folder.

    Args:
        folder: A published policy.
        name: The layout that it must have; by default it is recognised.

    Raises:
        ValueError: If it has none of the layouts, or another one than `name`.
    """
    if name is not None and name not in FORMATS:
        raise ValueError(f"--format is '{name}', allowed: {', '.join(FORMATS)}")
    if not folder.is_dir():
        raise ValueError(f"there is no directory {folder}")
    kind = _config(folder).get("type")
    if kind in REFUSED and not FORMATS["lerobot"].is_at(folder):
        raise ValueError(f"{folder} is lerobot's policy {kind}, which is refused: {REFUSED[kind]}")
    fitting = [known for known, layout in FORMATS.items() if layout.is_at(folder)]
    if name is None and len(fitting) == 1:
        return FORMATS[fitting[0]]
    if name in fitting:
        return FORMATS[name]
    seen = f"it looks like {' or '.join(fitting)}" if fitting else "it looks like none of them"
    wanted = f"not in the layout of {name}" if name else "in no known layout"
    raise ValueError(
        f"{folder} is {wanted} ({', '.join(FORMATS)}); {seen}. A checkpoint of rrf is no published "
        "policy, and a backbone alone is given as policy.backbone.weights"
    )


def _config(folder: Path) -> dict:
    file = folder / "config.json"
    if not file.is_file():
        return {}
    try:
        content = atomic.parse_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {error}") from error
    return content if isinstance(content, dict) else {}


def _has_names(folder: Path, *starts: str) -> bool:
    return any(name.startswith(starts) for name in read_shapes(folder))


def _chosen_group(known: Mapping, group: str | None, folder: Path) -> str:
    if group is None and len(known) == 1:
        return next(iter(known))
    if group is None or group not in known:
        what = f"no statistics of '{group}'" if group else "several statistics"
        raise ValueError(
            f"{folder} has {what if known else 'no statistics'}, known: "
            f"{', '.join(sorted(known)) or 'none'}; choose one with --statistics NAME"
        )
    return group
