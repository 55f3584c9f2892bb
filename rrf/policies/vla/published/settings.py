"""What a published policy's files may say: each setting is honoured, harmless, or refused by name.

An unknown setting is refused too: it may change what the policy does. A field that a newer version
of the other project adds is therefore an error here until somebody says which of the three it is.
"""

import dataclasses
import typing
from collections.abc import Collection, Mapping
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of one kind of file."""

    honoured: Collection[str]
    """Read and followed."""
    harmless: Mapping[str, str]
    """Setting -> why no action depends on it. A name that ends in * is the beginning of several."""
    only: Mapping[str, tuple[typing.Any, str]] = dataclasses.field(default_factory=dict)
    """Setting -> the one value that can be had (a tuple: one of these), and why no other; what to
    do instead."""

    def knows(self, name: str) -> bool:
        """Whether a setting is in one of the three lists."""
        return name in self.honoured or name in self.only or self._is_harmless(name)

    def check(self, where: str | Path, settings: Mapping[str, typing.Any]) -> None:
        """Refuse what is not in one of the lists, or has a value that cannot be had.

        Args:
            where: The file or its part, for messages.
            settings: Its content.

        Raises:
            ValueError: Naming the setting.
        """
        for name, value in settings.items():
            if name in self.only:
                allowed, reason = self.only[name]
                if value not in (allowed if isinstance(allowed, tuple) else (allowed,)):
                    raise ValueError(f"{where} has {name} {value}, which cannot be had: {reason}")
            elif not self.knows(name):
                raise ValueError(
                    f"{where} has the setting {name}, which is not known here: it comes from "
                    "another version and may change actions; remove it from the file if it does not"
                )

    def __or__(self, other: "Settings") -> "Settings":
        """The settings of both."""
        return Settings(
            {*self.honoured, *other.honoured},
            {**self.harmless, **other.harmless},
            {**self.only, **other.only},
        )

    def _is_harmless(self, name: str) -> bool:
        return name in self.harmless or any(
            prefix.endswith("*") and name.startswith(prefix[:-1]) for prefix in self.harmless
        )


_HUB = "it says where the files are published"
_BEGAN = "it says where the training began"
LEROBOT_BASE = Settings(
    honoured=("type", "input_features", "output_features"),
    harmless={
        "device": "it says where lerobot computes",
        "use_amp": "it says in which numbers lerobot computes",
        "push_to_hub": _HUB,
        "repo_id": _HUB,
        "private": _HUB,
        "tags": _HUB,
        "license": _HUB,
        "pretrained_path": _BEGAN,
        "pretrained_revision": _BEGAN,
    },
    only={
        "use_peft": (False, "adapters are in files of their own; merge them with merge_and_unload")
    },
)
"""The settings that all of lerobot's policies have, but for n_obs_steps."""
