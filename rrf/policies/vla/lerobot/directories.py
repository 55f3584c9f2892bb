"""The models within lerobot's policies: their directories, and what of them a checkpoint needs.

lerobot builds many policies from directories with a config.json, a processor and a tokenizer. A
checkpoint of ours holds these small text files, OPTION.FILE each, so that it can be loaded where
the directories do not exist. It has the weights anyway: in the place of theirs stands a file
without any tensor, for which transformers draws random ones.
"""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

_KINDS = (".json", ".txt", ".jinja")
_WEIGHTS = "model.safetensors"
_NOT_NEEDED = (f"{_WEIGHTS}.index.json",)
_NAME = "clip-"  # lerobot's multi_task_dit looks for this word in the names of its directories


def texts_of(option: str, folder: str | Path) -> dict[str, str]:
    """The files of a directory that a checkpoint needs: name in the checkpoint -> content.

    Raises:
        ValueError: Like `check_local`.
    """
    path = check_local(f"options.{option}", folder)
    return {
        f"{option}.{file.name}": file.read_text(encoding="utf-8")
        for file in sorted(path.iterdir())
        if file.suffix in _KINDS and file.name not in _NOT_NEEDED
    }


def check_local(setting: str, folder: str | Path) -> Path:
    """The directory of a model that a setting names.

    Raises:
        ValueError: If it is none.
    """
    path = Path(folder)
    files = [path / name for name in ("config.json", "tokenizer_config.json")]
    if not any(file.is_file() for file in files):
        raise ValueError(
            f"{setting} is '{folder}', which is not a local directory with config.json or "
            f"tokenizer_config.json; fetch the model (hf download {_on_hub(folder)} --local-dir "
            "DIRECTORY) and give its directory"
        )
    return path


def check_no_code(folder: Path) -> None:
    """Refuse a model with code of its own, where it would be run.

    Raises:
        ValueError: Naming the file that asks for it.
    """
    for file in folder.glob("*.json"):
        if '"auto_map"' in file.read_text(encoding="utf-8"):
            raise ValueError(
                f"{file} names Python code in auto_map, which is not run; take a model that "
                "transformers has itself"
            )


def texts_in(checkpoint: str | Path, options: tuple[str, ...]) -> dict[str, str]:
    """What `texts_of` returned for these options when the checkpoint was saved."""
    return {
        file.name: file.read_text(encoding="utf-8")
        for option in options
        for file in sorted(Path(checkpoint).glob(f"{option}.*"))
    }


@contextlib.contextmanager
def made_of(
    texts: Mapping[str, str],
    options: tuple[str, ...],
    weights: Mapping[str, torch.Tensor] | None = None,
) -> Iterator[dict[str, str]]:
    """Temporary directories with these files under their own names: option -> directory.

    Args:
        texts: What `texts_of` returned.
        options: The options that name directories.
        weights: Those of the models, for a kind that takes nothing less.
    """
    with tempfile.TemporaryDirectory(prefix=_NAME) as root:
        folders = {option: Path(root, option) for option in options}
        for option, folder in folders.items():
            folder.mkdir()
            save_file(dict(weights or {}), folder / _WEIGHTS, {"format": "pt"})
            for name, text in texts.items():
                if name.startswith(f"{option}."):
                    file = folder / name.removeprefix(f"{option}.")
                    file.write_text(text, encoding="utf-8")
        yield {option: str(folder) for option, folder in folders.items()}


def _on_hub(folder: str | Path) -> str:
    name = str(folder)
    return name if name.count("/") == 1 and not name.startswith(("/", ".")) else "MODEL"
