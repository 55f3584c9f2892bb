"""`python -m benchmarks.model_sizes`: the table of `docs/models.md`, computed from presets and
catalogue, so that no number is typed by hand.
"""

import sys

from benchmarks.markdown import filled, table
from benchmarks.record import ROOT
from rrf.networks.vlm.catalogue import CATALOGUE
from rrf.presets import resolve
from rrf.runners.footprint import footprint
from rrf.runners.supervised.configs import SupervisedRunnerCfg

PAGE = ROOT / "docs/models.md"
MODELS = {
    "qwen2vl-2b-pretrain": "qwen2-vl-2b",
    "qwen2vl-7b-pretrain": "qwen2-vl-7b",
    "qwen3vl-2b-pretrain": "qwen3-vl-2b",
    "qwen3vl-8b-pretrain": "qwen3-vl-8b",
    "pi0-sft": "pi0-base",
    "pi05-sft": "pi05-base",
    "openvla-sft": "openvla-7b",
    "openvla-oft-sft": "openvla-7b",
    "openvla-oft-tokens-sft": "openvla-7b",
    "groot-n15-sft": "groot-n1.5-3b",
    "groot-n17-sft": "groot-n1.7",
}
"""Preset -> the published model that it starts from."""
LAPTOP = (
    "compact-vla-pretrain", "qwen2vl-laptop", "qwen3vl-laptop", "pi0-laptop", "pi05-laptop",
    "openvla-laptop", "openvla-oft-laptop", "openvla-oft-tokens-laptop", "groot-laptop",
)  # fmt: skip
BATCH = 8


def sizes() -> str:
    """A row per preset: parameters, widths, computed memory."""
    columns = ("preset", "parameters", "vision", "language", "head", "width", "chunk", "inference")
    tunings = (f"{tuning}, {BATCH}" for tuning in ("frozen", "LoRA", "full"))
    return table((*columns, *tunings), map(_row, [*MODELS, *LAPTOP]))


def terms() -> str:
    """A row per published model: where it is and under which licences."""
    rows = [
        (
            f"`{name}`",
            f"`{entry.repository}`",
            f"{entry.gigabytes:.1f}",
            entry.code_licence,
            entry.weights_licence,
            "yes" if entry.gated else "no",
            entry.checked,
        )
        for name, entry in CATALOGUE.items()
    ]
    return table(("NAME", "repository", "GB", "code", "weights", "gated", "facts from"), rows)


def _row(preset: str) -> list[str]:
    cfg = resolve(preset)
    assert isinstance(cfg, SupervisedRunnerCfg)
    whole = footprint(cfg)
    counts = whole.parameters()
    parts = (
        sum(counts.values()),
        counts.get("vision", 0),
        counts.get("language", 0) + counts.get("embeddings", 0),
        counts.get("head", 0),
    )
    memory = [whole.memory("inference").total(1)]
    backbone = getattr(cfg.policy, "backbone", None)
    if backbone is not None:
        memory.append(whole.memory("frozen").total(BATCH))
        memory.append(footprint(cfg, "lora").memory("lora").total(BATCH))
    memory.append(whole.memory("full").total(BATCH))
    shown = [_gb(size) for size in memory]
    if backbone is None:
        shown[1:1] = ["-", "-"]
    width = str(backbone.width) if backbone is not None else str(getattr(cfg.policy, "features"))  # noqa: B009
    return [f"`{preset}`", *map(_millions, parts), width, str(cfg.policy.chunk_length), *shown]


def _millions(count: int) -> str:
    return f"{count / 1e9:.2f} B" if count >= 1e9 else f"{count / 1e6:.1f} M"


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def blocks() -> dict[str, str]:
    """The blocks of the page by the name of their marks."""
    return {"sizes": sizes(), "terms": terms()}


def main() -> None:
    """Write the tables anew."""
    PAGE.write_text(filled(PAGE, blocks()))
    sys.stdout.write(f"wrote {PAGE.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
