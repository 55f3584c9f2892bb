"""Results of other projects as tables of trials, and tables as their files."""

import typing
from pathlib import Path

from rrf.evaluation.trials.foreign import fieldtrial, lerobot, robostats, vla_eval
from rrf.evaluation.trials.outcomes import Table


class Exchange(typing.Protocol):
    """A module for one format."""

    def read(self, path: Path, arm: str) -> Table:
        """The trials in a file.

        Args:
            path: The file.
            arm: The policy, for formats that do not name it; "" for none.

        Raises:
            ValueError: For a field or a version that nobody here knows, or numbers that contradict
                each other; it names them.
        """
        ...

    def write(self, table: Table, path: Path, arm: str) -> None:
        """Write trials to a file.

        Args:
            table: The trials.
            path: The file.
            arm: Of which arm, for formats that hold one policy; "" if there is only one.

        Raises:
            ValueError: If the format cannot say what the table says.
        """
        ...


FORMATS: dict[str, Exchange] = {
    "fieldtrial": fieldtrial,
    "robostats": robostats,
    "vla-eval": vla_eval,
    "lerobot": lerobot,
}
