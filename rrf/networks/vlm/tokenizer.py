"""Tokenizers of prompts: one from a tokenizer.json, and one of a few words that needs no file."""

import typing
from collections.abc import Sequence
from pathlib import Path

from rrf.networks.vlm.catalogue import located
from rrf.networks.vlm.configs import TokenizerCfg
from rrf.networks.vocabulary import words_of

FILE = "tokenizer.json"
_UNKNOWN = "<unknown>"


class Tokenizer(typing.Protocol):
    """Text to token ids."""

    @property
    def num_tokens(self) -> int:
        """Ids are below this number."""
        ...

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without any special token."""
        ...

    def special(self, name: str) -> int:
        """The id of a special token such as "<|image_pad|>".

        Raises:
            ValueError: If the tokenizer lacks it.
        """
        ...

    def assets(self) -> dict[str, str]:
        """The files to save with a checkpoint: name -> content."""
        ...


def build_tokenizer(
    cfg: TokenizerCfg,
    specials: Sequence[str],
    assets: Path | None = None,
    limit: tuple[str, int] | None = None,
) -> Tokenizer:
    """The tokenizer of a config.

    Args:
        cfg: Its config.
        specials: The special tokens that the family needs.
        assets: A checkpoint directory that holds the tokenizer's file; None to take it from
            `cfg.files`.
        limit: The field of the config that says how many tokens the model knows, and its value.

    Raises:
        ValueError: If the file is missing or damaged, lacks a special token, or has more tokens
            than the limit.
    """
    tokenizer: Tokenizer
    if cfg.files is None:
        tokenizer = WordTokenizer(cfg.words, specials)
    else:
        tokenizer = FileTokenizer((assets or located(cfg.files)) / FILE, specials)
    if limit is not None and tokenizer.num_tokens > limit[1]:
        field, size = limit
        raise ValueError(
            f"the tokenizer has {tokenizer.num_tokens} tokens, but {field} is {size}, allowed: at "
            f"least {tokenizer.num_tokens}"
        )
    return tokenizer


class WordTokenizer:
    """One token per known word; unknown words share one. Special tokens come first."""

    def __init__(self, words: Sequence[str], specials: Sequence[str]):
        self._specials = {name: index for index, name in enumerate([*specials, _UNKNOWN])}
        self._words = {word: index for index, word in enumerate(words, start=len(self._specials))}

    @property
    def num_tokens(self) -> int:
        return len(self._specials) + len(self._words)

    def encode(self, text: str) -> list[int]:
        return [self._words.get(word, self._specials[_UNKNOWN]) for word in words_of(text)]

    def special(self, name: str) -> int:
        return self._specials[name]

    def assets(self) -> dict[str, str]:
        return {}


class FileTokenizer:
    """A tokenizer.json, read by the package tokenizers."""

    def __init__(self, file: Path, specials: Sequence[str]):
        import tokenizers

        if not file.is_file():
            raise ValueError(
                f"there is no tokenizer at {file}; give the directory of the pretrained model, or "
                "a name of `rrf models setup`, as policy.backbone.tokenizer.files"
            )
        self._text = file.read_text(encoding="utf-8")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(self._text)
        except Exception as error:  # the package raises nothing more precise
            raise ValueError(f"{file} is not a tokenizer: {error}") from error
        lacking = [name for name in specials if self._tokenizer.token_to_id(name) is None]
        if lacking:
            raise ValueError(
                f"the tokenizer at {file} lacks the special tokens {', '.join(lacking)}; it "
                "belongs to another family of models"
            )

    @property
    def num_tokens(self) -> int:
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def special(self, name: str) -> int:
        index = self._tokenizer.token_to_id(name)
        if index is None:
            raise ValueError(f"the tokenizer has no token {name}")
        return index

    def assets(self) -> dict[str, str]:
        return {FILE: self._text}


def padded(
    rows: Sequence[Sequence[int]], fill: int, left: bool = False
) -> tuple[list[list[int]], list[list[bool]]]:
    """Rows of the same length, and which of their entries are real.

    Args:
        rows: Token ids.
        fill: The id of padding.
        left: Pad before the row instead of after it.
    """
    longest = max(len(row) for row in rows)
    filled, is_real = [], []
    for row in rows:
        gap = longest - len(row)
        filled.append([fill] * gap + list(row) if left else list(row) + [fill] * gap)
        is_real.append(
            [False] * gap + [True] * len(row) if left else [True] * len(row) + [False] * gap
        )
    return filled, is_real
