"""SmolVLA's vision-language model: its directory, and the part of it that a checkpoint needs.

lerobot builds SmolVLA from a directory with transformers' config.json, processor and tokenizer. A
checkpoint of ours holds these small text files, under a prefix, so that it can be loaded where the
directory does not exist. It has the weights anyway.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "vlm_"
_KINDS = (".json", ".txt", ".jinja")
_NOT_NEEDED = "model.safetensors.index.json"
_REAL = "HuggingFaceTB/SmolVLM2-500M-Video-Instruct"


def texts_of(folder: str | Path) -> dict[str, str]:
    """The files of a directory that a checkpoint needs: name in the checkpoint -> content.

    Raises:
        ValueError: If it is no local directory of a model.
    """
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"options.vlm_model_name is '{folder}', which is not a local directory with "
            f"config.json; fetch the model (huggingface-cli download {_REAL} --local-dir "
            "DIRECTORY) and give its directory"
        )
    return {
        _PREFIX + path.name: path.read_text(encoding="utf-8")
        for path in sorted(folder.iterdir())
        if path.suffix in _KINDS and path.name != _NOT_NEEDED
    }


def texts_in(checkpoint: str | Path) -> dict[str, str]:
    """What `texts_of` returned when the checkpoint was saved."""
    return {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted(Path(checkpoint).glob(f"{_PREFIX}*"))
    }


@contextlib.contextmanager
def directory_of(texts: dict[str, str]) -> Iterator[str]:
    """A temporary directory with these files under their own names."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            (Path(folder) / name.removeprefix(_PREFIX)).write_text(text, encoding="utf-8")
        yield folder
