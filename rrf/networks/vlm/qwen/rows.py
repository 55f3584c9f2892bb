"""The token rows that Qwen's language model reads, and their three-dimensional positions.

A row is: marks of the chat, then for every image <|vision_start|>, image tokens, <|vision_end|>,
then the prompt, and marks again. Rows are padded on the left, so that their last tokens align.

Legend: L tokens of the longest row, B rows.
"""

import dataclasses
import functools
from collections.abc import Sequence

import torch

from rrf.networks.vlm.tokenizer import Tokenizer, padded

VISION_START, VISION_END, IMAGE = "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"
TURN_START, TURN_END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
SPECIALS = (PAD, TURN_START, TURN_END, VISION_START, VISION_END, IMAGE, "<|video_pad|>")


@dataclasses.dataclass
class Rows:
    """The rows of a batch, all on the CPU."""

    ids: torch.Tensor  # int64 [B, L]
    is_token: torch.Tensor  # bool [B, L]
    positions: torch.Tensor  # int64 [3, B, L]: time, height, width


class RowWriter:
    """Writes the rows of a model.

    Args:
        tokenizer: The model's tokenizer.
        grid: Height and width of an image in tokens of the language model.
        system_prompt: The first turn of the chat; an empty text leaves it out; None leaves out all
            marks of a chat.
    """

    def __init__(self, tokenizer: Tokenizer, grid: tuple[int, int], system_prompt: str | None):
        self._tokenizer, self._grid = tokenizer, grid
        special = tokenizer.special
        count = grid[0] * grid[1]
        self._image = [special(VISION_START), *[special(IMAGE)] * count, special(VISION_END)]
        self._before, self._after = self._chat(system_prompt)

    def write(self, num_images: Sequence[int], prompts: Sequence[str]) -> Rows:
        """The rows of B prompts with that many images each."""
        rows, positions = [], []
        for count, prompt in zip(num_images, prompts, strict=True):
            text = self._tokenizer.encode(prompt) + self._after
            rows.append([*self._before, *self._image * count, *text])
            positions.append(_positions(len(self._before), count, self._grid, len(text)))
        ids, is_token = padded(rows, self._tokenizer.special(PAD), left=True)
        longest = len(ids[0])
        # Positions of padding do not matter; transformers writes 1.
        aligned = [
            torch.nn.functional.pad(one, (longest - one.shape[1], 0), value=1) for one in positions
        ]
        return Rows(torch.tensor(ids), torch.tensor(is_token), torch.stack(aligned, dim=1))

    def _chat(self, system_prompt: str | None) -> tuple[list[int], list[int]]:
        """The tokens before the images and after the prompt, as in Qwen's chat template."""
        if system_prompt is None:
            return [], []
        encode, special = self._tokenizer.encode, self._tokenizer.special
        start, end = special(TURN_START), special(TURN_END)
        system = [start, *encode(f"system\n{system_prompt}"), end, *encode("\n")]
        user = [start, *encode("user\n")]
        answer = [end, *encode("\n"), start, *encode("assistant\n")]
        return (system if system_prompt else []) + user, answer


@functools.lru_cache(maxsize=1024)
def _positions(
    num_before: int, num_images: int, grid: tuple[int, int], num_after: int
) -> torch.Tensor:
    """Positions of a row, int64 [3, L] (arXiv:2409.12191, section 2.1).

    A text token has the same position three times. The tokens of an image share the first one and
    count rows and columns in the others. What follows begins after the largest position so far.
    """
    parts, start = [], 0

    def text(count: int) -> int:
        parts.append(torch.arange(start, start + count).expand(3, -1))
        return start + count

    start = text(num_before)
    for _ in range(num_images):
        start = text(1)
        rows, columns = torch.meshgrid(*[torch.arange(side) for side in grid], indexing="ij")
        image = torch.stack([torch.zeros_like(rows), rows, columns]).flatten(1)
        parts.append(image + start)
        start += max(grid)
        start = text(1)
    text(num_after)
    return torch.cat(parts, dim=1)
