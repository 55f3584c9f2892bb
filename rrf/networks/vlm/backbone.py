"""The contract of backbones: images and a prompt in, features of each token out.

Legend: B rows, H W height and width of an image, L tokens, S slots, N inserted vectors, D width of
a token, V words of the language, T words of an answer.
"""

import dataclasses
import typing
from collections.abc import Callable, Sequence

import torch
from torch import nn

from rrf.networks.vlm.configs import BackboneCfg


@dataclasses.dataclass
class View:
    """What a backbone sees: B rows of images and prompts."""

    images: tuple[torch.Tensor, ...]
    """One tensor per camera, uint8 [B, H, W, 3], row 0 on top, as recorded."""
    is_shown: torch.Tensor
    """bool [B, number of cameras]: False where a row has no such camera. Its pixels mean nothing
    then, and no token may attend to them."""
    prompts: list[str]
    """B prompts, without the marks of a family such as image tokens."""

    def __len__(self) -> int:
        return len(self.prompts)


@dataclasses.dataclass
class Features:
    """What a backbone found in a view."""

    tokens: torch.Tensor  # [B, L, D], in the backbone's number format
    is_token: torch.Tensor  # bool [B, L], False for padding
    is_image: torch.Tensor  # bool [B, L], True for tokens of images
    layers: list[tuple[torch.Tensor, torch.Tensor]] = dataclasses.field(default_factory=list)
    """Keys and values of each layer, both [B, heads, L, width of a head]; only with the ability
    "layers"."""

    def to(self, device: torch.device) -> "Features":
        """The same on another device, without `layers`."""
        return Features(self.tokens.to(device), self.is_token.to(device), self.is_image.to(device))

    def pooled(self, how: str) -> torch.Tensor:
        """One vector per row, [B, D]: the mean of all tokens, or the last one."""
        if how == "last":
            places = torch.arange(self.is_token.shape[1], device=self.is_token.device)
            last_b = (places * self.is_token).argmax(1)
            return self.tokens[torch.arange(len(last_b), device=last_b.device), last_b]
        weight_bl1 = self.is_token.unsqueeze(-1).to(self.tokens.dtype)
        return (self.tokens * weight_bl1).sum(1) / weight_bl1.sum(1)


AnyCfg = typing.TypeVar("AnyCfg", bound=BackboneCfg)


class Backbone(nn.Module, typing.Generic[AnyCfg]):
    """The base class of backbones. A family overrides `forward`, and what it has the ability for.

    Every subclass is built with (cfg, assets), where `assets` is a checkpoint directory that holds
    the files of `assets()`, or None to take them from where the config says. It only builds the
    architecture; `rrf.networks.vlm.build` fills in pretrained weights and decides what is trained.
    """

    def __init__(self, cfg: AnyCfg):
        super().__init__()
        self.cfg = cfg
        self.base_digest: str | None = None
        """Digest of the published weights, if checkpoints do not hold them."""

    @property
    def width(self) -> int:
        """Width D of the features of a token."""
        return self.cfg.width

    @property
    def vocabulary_size(self) -> int:
        """Number of words V of the language; ability "language"."""
        raise NotImplementedError

    def forward(self, view: View) -> Features:
        """The features of the images and of the prompt."""
        raise NotImplementedError

    def image_tokens(self, view: View) -> list[torch.Tensor]:
        """The tokens of each image, [B, P, D], to fill slots several times; ability "slots"."""
        raise NotImplementedError

    def fill_slots(
        self,
        view: View,
        slots: torch.Tensor,
        inserted: torch.Tensor | None = None,
        images: Sequence[torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """The features of slots that stand after the prompt, in one pass; ability "slots".

        Args:
            view: What stands before the slots.
            slots: The vectors in the slots, [B, S, D].
            inserted: Vectors [B, N, D] that stand after the images, e.g. an encoded state.
            images: What `image_tokens` returned for the view; None to compute it.

        Returns:
            [B, S, D].
        """
        raise NotImplementedError

    def slot_logits(
        self, view: View, num_slots: int, inserted: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Logits of the words in empty slots after the prompt, in one pass; ability "slot_words".

        Args:
            view: What stands before the slots.
            num_slots: S.
            inserted: As in `fill_slots`.

        Returns:
            float32 [B, S, V].
        """
        raise NotImplementedError

    def language_logits(self, view: View, answer: torch.Tensor) -> torch.Tensor:
        """Logits of each token of an answer, given the view and the tokens before it; ability
        "language".

        Args:
            view: What stands before the answer.
            answer: Tokens, int64 [B, T].

        Returns:
            float32 [B, T, V].
        """
        raise NotImplementedError

    def answer(
        self,
        view: View,
        num_tokens: int,
        choose: Callable[[torch.Tensor, int], torch.Tensor],
        stop: int | None = None,
    ) -> torch.Tensor:
        """Generate an answer token by token, with a cache; ability "language".

        Args:
            view: What stands before the answer.
            num_tokens: T at most.
            choose: Maps the logits, float32 [B, V], and the place in the answer to tokens, int64
                [B].
            stop: Generation ends when every row holds this token; None always gives T tokens.

        Returns:
            int64 [B, T].
        """
        raise NotImplementedError

    def num_prompt_tokens(self, prompt: str) -> int:
        """Tokens of a prompt with the family's marks, without those of images."""
        raise NotImplementedError

    def blocks(self) -> list[nn.Module]:
        """Layers that are always called as a whole; their weights can be gathered one at a time."""
        return []

    def assets(self) -> dict[str, str]:
        """Files that a checkpoint needs besides config and weights: name -> content."""
        return {}

    def lora_target(self) -> str:
        """Regular expression for the names of the language model's attention projections."""
        raise NotImplementedError

    def unseen_settings(self) -> dict[str, tuple[str, typing.Any]]:
        """What a published config.json says that no shape of a weight shows, as heads that share
        a width: its setting -> our field, and the value that this backbone has."""
        return {}

    def published_name(self, name: str) -> str | None:
        """The name in this module of a tensor in published files; None if it is not used."""
        raise NotImplementedError
