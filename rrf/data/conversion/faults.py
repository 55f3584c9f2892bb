"""Episodes that are not converted: those that are faulty, and those that the config leaves out.

Nothing is left out silently: the conversion says so, and its record has each with the reason.
"""

from collections.abc import Callable, Sequence

from rrf.data.conversion.dataset_cfg import DatasetCfg
from rrf.data.conversion.edit_cfg import numbers
from rrf.data.conversion.recordings import BAD_FROM_THE_START

_MAX_SHOWN = 20
_MAX_NAMED = 5


class Faults:
    """Collects what is wrong with the episodes of one conversion.

    Args:
        cfg: The dataset, which says what to do about it.
        total: Episodes of all recordings.

    Raises:
        ValueError: If the config leaves out an episode that there is not.
    """

    def __init__(self, cfg: DatasetCfg, total: int):
        self._cfg, self._total = cfg, total
        self._skipped = set(numbers(cfg.skip))
        if self._skipped and max(self._skipped) >= total:
            raise ValueError(
                f"{cfg.name}: skip names episode {max(self._skipped)}, but there are only 0 to "
                f"{total - 1}"
            )
        self._bad: dict[int, str] = {}  # not named in `skip`
        self._why: dict[int, str] = {}  # of those named in `skip` that are faulty
        self._num_good = 0

    @property
    def count(self) -> int:
        """Faulty episodes found so far, without those that the config leaves out."""
        return len(self._bad)

    @property
    def stop(self) -> bool:
        """Whether nothing will be written any more."""
        return len(self._bad) > (
            self._cfg.max_bad_episodes if self._cfg.on_bad_episode == "skip" else 0
        )

    def take(self, first: int, num_episodes: int, bad: Sequence[tuple[int, str]]) -> list[bool]:
        """Which of the episodes that a recording gave are wanted.

        Args:
            first: Number of its first episode.
            num_episodes: How many it has.
            bad: Position and fault of those that it could not give.

        Raises:
            ValueError: If the first ones of all are all faulty.
        """
        faults = {first + position: text for position, text in bad}
        good = [n for n in range(first, first + num_episodes) if n not in faults]
        for number, text in faults.items():
            (self._why if number in self._skipped else self._bad)[number] = text
        self._num_good += len(good)
        if not self._num_good and len(self._bad) >= BAD_FROM_THE_START:
            raise ValueError(self._first())
        return [number not in self._skipped for number in good]

    def check(self) -> None:
        """Raise ValueError naming every fault, if they stop the conversion, or if there is no
        episode at all.
        """
        if not self._bad and not self._num_good:
            raise ValueError(
                f"{self._cfg.name}: all {self._total} episodes are said to have failed; to keep "
                "them, write source: {options: {only_successful: false}}"
            )
        if not self.stop:
            return
        if not self._num_good or self._total == 1:
            raise ValueError(self._first())
        ranges = _ranges(sorted(self._bad))
        hint = f"To leave them out, write into the config skip: [{ranges}]"
        if self._cfg.on_bad_episode == "skip":
            hint += f", or a larger max_bad_episodes than {self._cfg.max_bad_episodes}"
        else:
            hint += ", or on_bad_episode: skip"
        if len(self._bad) == 1:
            which = f"episode {ranges}, the only faulty one of {self._total}"
            raise ValueError(f"{self._first()} ({which}. {hint.replace('them', 'it')})")
        listed = [f"  {n}: {text}" for n, text in sorted(self._bad.items())[:_MAX_SHOWN]]
        more = len(self._bad) - len(listed)
        listed += [f"  and {more} more"] * (more > 0)
        lines = "\n".join(listed)
        raise ValueError(f"{len(self._bad)} of {self._total} episodes are faulty:\n{lines}\n{hint}")

    def warnings(self) -> list[str]:
        """What was left out, in a sentence for each reason."""
        said = []
        if self._skipped:
            said.append(
                f"{len(self._skipped)} of {self._total} episodes are left out, as the config says "
                f"(skip): {_ranges(sorted(self._skipped))}"
            )
        if self._bad:
            named = sorted(self._bad.items())[:_MAX_NAMED]
            texts = "; ".join(f"{number} ({text})" for number, text in named)
            more = len(self._bad) - len(named)
            said.append(
                f"{len(self._bad)} of {self._total} episodes are faulty and left out: {texts}"
                + (f"; and {more} more" if more else "")
            )
        return said

    def record(self, shown: Callable[[str], str]) -> dict:
        """What the conversion's record says of them; `shown` makes paths those of the config."""
        why = dict.fromkeys(self._skipped, "skip in the config") | self._why | self._bad
        if not why:
            return {}
        return {"skipped": [{"episode": n, "why": shown(text)} for n, text in sorted(why.items())]}

    def _first(self) -> str:
        return self._bad[min(self._bad)]


def _ranges(episodes: Sequence[int]) -> str:
    """Ascending numbers as a list of numbers and ranges."""
    parts: list[list[int]] = []
    for number in episodes:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
