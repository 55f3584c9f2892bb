"""Published models: where they are, under which terms, and where they lie on this machine.

`rrf models setup NAME` fetches one to `.rrf/pretrained/NAME`. Its name can then be given wherever a
directory of weights or of a tokenizer is expected.

What is said of licences, gates and files is what the pages of the repositories said; `checked` says
which of them were read for it. A fact that could not be checked says "not verified".
"""

import dataclasses
import typing
from collections.abc import Mapping
from pathlib import Path

from rrf import atomic, workspace
from rrf.config import did_you_mean

RECORD = "source.json"  # beside the files: repository, commit, and SHA-256 of each file
Layout = typing.Literal["qwen", "paligemma", "openpi", "lerobot", "groot", "openvla"]


@dataclasses.dataclass(frozen=True)
class Published:
    """A published model."""

    repository: str  # OWNER/NAME on the Hugging Face hub
    what: typing.Literal["backbone", "policy"]
    layout: Layout
    gigabytes: float  # of the files that are fetched
    code_licence: str
    weights_licence: str
    gated: bool
    use: str  # how it is used: a command or an override
    checked: str  # where these facts come from, and what could not be verified
    tokenizer: str | None = None  # the entry that holds the tokenizer, if this one does not
    pickles: tuple[str, ...] = ()  # parts that are published as pickles only, which are not fetched


def _preset(preset: str) -> str:
    return f"rrf train {preset} dataset=DATASET"


CATALOGUE: dict[str, Published] = {
    "qwen2-vl-2b": Published(
        "Qwen/Qwen2-VL-2B-Instruct", "backbone", "qwen", 4.4, "Apache-2.0", "Apache-2.0", False,
        _preset("qwen2vl-2b-pretrain"),
        "licence: page of the repository; size: 2 bytes per parameter, not verified",
    ),
    "qwen2-vl-7b": Published(
        "Qwen/Qwen2-VL-7B-Instruct", "backbone", "qwen", 16.6, "Apache-2.0", "Apache-2.0", False,
        _preset("qwen2vl-7b-pretrain"),
        "licence: page of the repository; size: 2 bytes per parameter, not verified",
    ),
    "qwen3-vl-2b": Published(
        "Qwen/Qwen3-VL-2B-Instruct", "backbone", "qwen", 4.3, "Apache-2.0", "Apache-2.0", False,
        _preset("qwen3vl-2b-pretrain"),
        "licence: cards of models made from it; size: 2 bytes per parameter; its own page was not "
        "verified",
    ),
    "qwen3-vl-8b": Published(
        "Qwen/Qwen3-VL-8B-Instruct", "backbone", "qwen", 17.5, "Apache-2.0", "Apache-2.0", False,
        _preset("qwen3vl-8b-pretrain"),
        "licence: as that of the 2B model; size: 2 bytes per parameter; its own page was not "
        "verified",
    ),
    "paligemma-3b": Published(
        "google/paligemma-3b-pt-224", "backbone", "paligemma", 11.7, "Apache-2.0",
        "Gemma Terms of Use (ai.google.dev/gemma/terms)", True,
        "the tokenizer of pi0 and pi0.5; as weights: policy.backbone.weights=paligemma-3b",
        "gate and licence: page of the repository; size: 4 bytes per parameter, not verified",
    ),
    "pi0-base": Published(
        "lerobot/pi0_base", "policy", "lerobot", 14.0, "Apache-2.0",
        "Gemma Terms of Use apply to PaliGemma in it; the page of its predecessor lerobot/pi0 says "
        "Apache-2.0", False, _preset("pi0-sft"),
        "size and files: page of lerobot/pi0, its predecessor; its own page was not verified",
        tokenizer="paligemma-3b",
    ),
    "pi05-base": Published(
        "lerobot/pi05_base", "policy", "lerobot", 14.5, "Apache-2.0",
        "Gemma Terms of Use (card of lerobot/pi052_base, which has the same weights)", False,
        _preset("pi05-sft"), "size: 4 bytes per parameter; its own page was not verified",
        tokenizer="paligemma-3b",
    ),
    "groot-n1.5-3b": Published(
        "nvidia/GR00T-N1.5-3B", "policy", "groot", 5.5, "Apache-2.0",
        "NVIDIA One-Way Noncommercial License (its model card)", False,
        f"{_preset('groot-n15-sft')} policy.backbone.tokenizer.files=DIR",
        "licence: history of the model card; size not verified. It has no tokenizer: lerobot takes "
        "that from lerobot/eagle2hg-processor-groot-n1p5, whose files were not verified",
    ),
    "groot-n1.7": Published(
        "nvidia/GR00T-N1.7-3B", "policy", "groot", 6.9, "Apache-2.0",
        "NVIDIA Open Model License (its model card; its LICENSE file is said to be noncommercial: "
        "read both)", False, _preset("groot-n17-sft"),
        "licence: a discussion on its page; size: 2 bytes per parameter with the output layer, not "
        "verified; gate: not verified. Its backbone nvidia/Cosmos-Reason2-2B is gated; that its "
        "tokenizer is the one of Qwen3-VL-2B was not verified",
        tokenizer="qwen3-vl-2b",
    ),
    "openvla-7b": Published(
        "openvla/openvla-7b", "policy", "openvla", 15.1, "MIT",
        "MIT (its model card); made from Llama 2, whose Community License applies", False,
        _preset("openvla-sft"),
        "licence: model card; size: files of openvla-7b-finetuned-libero-spatial",
    ),
    "openvla-oft": Published(
        "moojink/openvla-7b-oft-finetuned-libero-spatial", "policy", "openvla", 15.1, "MIT",
        "MIT; made from Llama 2, whose Community License applies", False,
        "rrf models import openvla-oft --out CHECKPOINT",
        "name: OpenVLA-OFT's documentation; licence and size: as those of openvla-7b, not verified",
        pickles=("action_head--*.pt", "proprio_projector--*.pt"),
    ),
}  # fmt: skip


def folder_of(name: str) -> Path:
    """Where a published model lies on this machine once it has been set up."""
    return workspace.state() / "pretrained" / name


def entry_of(name: str) -> Published:
    """The entry of a name.

    Raises:
        ValueError: If there is none.
    """
    if name not in CATALOGUE:
        raise ValueError(
            f"there is no published model '{name}'{did_you_mean(name, CATALOGUE)}; see them all: "
            "rrf models setup"
        )
    return CATALOGUE[name]


def located(name: str) -> Path:
    """The directory that a config names: a name in the catalogue, or a path.

    Raises:
        ValueError: If a model of the catalogue is not here; the message names the command.
    """
    if name in CATALOGUE:
        if record_of(name) is None:
            raise ValueError(
                f"'{name}' ({CATALOGUE[name].repository}, about {CATALOGUE[name].gigabytes} GB) is "
                f"not here yet; fetch it: rrf models setup {name}"
            )
        return folder_of(name)
    if "/" not in name and not Path(name).exists():
        raise ValueError(
            f"'{name}' is neither a published model{did_you_mean(name, CATALOGUE)} nor a directory "
            "here; see the models: rrf models setup"
        )
    return Path(name)


def record_of(name: str) -> dict | None:
    """The record of a model that was set up: repository, commit, and SHA-256 by file; None if it is
    not here.

    Raises:
        ValueError: If the record is damaged.
    """
    path = folder_of(name) / RECORD
    if not path.is_file():
        return None
    try:
        record = atomic.parse_json(path.read_text(encoding="utf-8"))
        files = record["files"]
        if not isinstance(files, Mapping) or not all(map(atomic.is_plain_name, files)):
            raise ValueError("it names files outside of it")
        return {"repository": record["repository"], "commit": record["commit"], "files": files}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged ({error}); remove {path.parent} and type: rrf models setup {name}"
        ) from error
