"""The FAST tokenizer of action chunks (arXiv:2501.09747), trained on one's own data.

A chunk becomes an orthonormal discrete cosine transform (DCT-II) along its steps; the coefficients
times `scale` are rounded; they are put in a row, the lowest frequency of all dimensions first; and
byte-pair encoding, here over whole numbers instead of bytes, joins what often stands together. All
but the rounding is invertible: an action is off by at most sqrt(H) / (2 scale).

Any row of tokens decodes to a chunk. Coefficients beyond the last are dropped, and missing ones,
which are the highest frequencies, are 0.

Legend: B chunks, H steps in a chunk, A action dimension.
"""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import tokenizers

from rrf import atomic

FILE = "fast_tokenizer.json"
_FIRST_CHARACTER = 0x4E00  # a block of 20,992 characters that nothing normalises or splits
_NUM_CHARACTERS = 20_992


class FastTokenizer:
    """Chunks of normalised actions to tokens and back.

    Args:
        text: The content of a fast_tokenizer.json.

    Raises:
        ValueError: If the text is damaged.
    """

    def __init__(self, text: str):
        try:
            facts = atomic.parse_json(text)
            self.chunk_length, self.action_dim = (
                int(facts["chunk_length"]),
                int(facts["action_dim"]),
            )
            self.scale, self.lowest = float(facts["scale"]), int(facts["lowest"])
            self.highest = int(facts["highest"])
            self._pairs = tokenizers.Tokenizer.from_str(json.dumps(facts["pairs"]))
        except Exception as error:  # the package tokenizers raises nothing more precise
            raise ValueError(f"this is not a FAST tokenizer: {error}") from error
        self._text = text
        self._dct_hh = dct_matrix(self.chunk_length)

    @classmethod
    def train(
        cls, chunks_bha: np.ndarray, scale: float = 10.0, num_tokens: int = 1024
    ) -> "FastTokenizer":
        """A tokenizer for chunks like these.

        Args:
            chunks_bha: Normalised actions [B, H, A], mostly in [-1, 1].
            scale: Coefficients are rounded to multiples of 1 / scale.
            num_tokens: Size of the vocabulary at most; at least one per coefficient that occurs.

        Raises:
            ValueError: If the chunks are too few, or have too many different coefficients.
        """
        if chunks_bha.ndim != 3 or len(chunks_bha) == 0 or scale <= 0:
            raise ValueError(
                f"chunks are {list(chunks_bha.shape)} and scale is {scale}, expected [B, H, A] "
                "with one chunk or more, and a scale above 0"
            )
        _, length, dims = chunks_bha.shape
        whole_bha = _coefficients(chunks_bha, dct_matrix(length), scale)
        lowest, highest = int(whole_bha.min()), int(whole_bha.max())
        span = highest - lowest + 1
        if span > min(num_tokens, _NUM_CHARACTERS):
            raise ValueError(
                f"the coefficients have {span} values, allowed: num_tokens, {num_tokens}; lower "
                f"scale ({scale:g}), raise num_tokens, or look for outliers in the actions"
            )
        pairs = tokenizers.Tokenizer(tokenizers.models.BPE())
        trainer = tokenizers.trainers.BpeTrainer(  # type: ignore[call-arg]
            vocab_size=num_tokens,
            min_frequency=2,
            show_progress=False,
            initial_alphabet=[chr(_FIRST_CHARACTER + value) for value in range(span)],
        )
        rows = (_text_of(row - lowest) for row in whole_bha.reshape(len(whole_bha), -1))
        pairs.train_from_iterator(rows, trainer)
        facts = {"chunk_length": length, "action_dim": dims, "scale": scale}
        facts |= {"lowest": lowest, "highest": highest, "pairs": json.loads(pairs.to_str())}
        return cls(json.dumps(facts))

    @classmethod
    def load(cls, folder: str | Path) -> "FastTokenizer":
        """The tokenizer in a directory. Raises ValueError if there is none."""
        file = Path(folder) / FILE
        if not file.is_file():
            raise ValueError(
                f"there is no {FILE} in '{folder}'; make one with train(dataset, folder, "
                "chunk_length) of rrf.policies.vla.heads.fast_training, and give the folder as "
                "policy.head.files"
            )
        return cls(file.read_text(encoding="utf-8"))

    @property
    def num_tokens(self) -> int:
        """Tokens are below this number."""
        return self._pairs.get_vocab_size()

    @property
    def num_coefficients(self) -> int:
        """H A: no chunk has more tokens."""
        return self.chunk_length * self.action_dim

    def encode(self, chunks_bha: np.ndarray) -> list[list[int]]:
        """The tokens of each chunk. Coefficients outside the range of the training are clipped."""
        whole_bha = _coefficients(chunks_bha, self._dct_hh, self.scale)
        whole_bha = whole_bha.clip(self.lowest, self.highest) - self.lowest
        texts = [_text_of(row) for row in whole_bha.reshape(len(whole_bha), -1)]
        return [encoding.ids for encoding in self._pairs.encode_batch(texts)]

    def decode(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """The chunk of each row of tokens, float64 [B, H, A]; see the module for rows that no chunk
        has."""
        whole = np.zeros((len(rows), self.num_coefficients))
        for number, row in enumerate(rows):
            values = list(self._values(row))[: self.num_coefficients]
            whole[number, : len(values)] = values
        whole_bha = whole.reshape(-1, self.chunk_length, self.action_dim) / self.scale
        return np.einsum("kh,bka->bha", self._dct_hh, whole_bha)

    def to_json(self) -> str:
        """The content of a fast_tokenizer.json."""
        return self._text

    def _values(self, row: Sequence[int]) -> Iterator[int]:
        for token in row:
            for character in self._pairs.id_to_token(int(token)) or "":
                yield ord(character) - _FIRST_CHARACTER + self.lowest


def dct_matrix(length: int) -> np.ndarray:
    """The orthonormal DCT-II, [length, length]: row k holds the wave of frequency k. Its transpose
    is its inverse."""
    steps, frequencies = np.arange(length), np.arange(length)[:, None]
    matrix = np.cos(math.pi * (steps + 0.5) * frequencies / length) * math.sqrt(2 / length)
    matrix[0] /= math.sqrt(2)
    return matrix


def _coefficients(chunks_bha: np.ndarray, dct_hh: np.ndarray, scale: float) -> np.ndarray:
    waves_bka = np.einsum("kh,bha->bka", dct_hh, np.asarray(chunks_bha, np.float64))
    return np.rint(waves_bka * scale).astype(np.int64)


def _text_of(values: np.ndarray) -> str:
    return "".join(chr(_FIRST_CHARACTER + value) for value in values.tolist())
