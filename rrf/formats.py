"""The versions of what rrf writes and reads again, and the conversions from older versions.

`format_version` says by which version of its format a record was written (`Format.mark`). A reader
hands what it has read to `Format.read`: a version that this rrf does not know yet is refused, an
older one is converted, one version after the other. `docs/explanation/compatibility.md` is the
promise behind it.

To change a format, add the conversion from its present version to `conversions`, which raises the
version by one. No other code knows older versions. Digests and hashes are those of a record as it
was written, so readers compare them before they convert.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

VERSION_KEY = "format_version"


class NewerFormatError(ValueError):
    """Something was written by a newer rrf; it is not damaged."""


@dataclasses.dataclass(frozen=True)
class Format:
    """What a kind of record is called in messages, and how its older versions become the present
    one."""

    what: str
    conversions: Sequence[Callable[[dict], dict]] = ()
    """From version 1 to 2, from 2 to 3, ... Each takes the plain data of a record, without its
    version, and returns that of the next version."""

    @property
    def version(self) -> int:
        """The version that this rrf writes."""
        return len(self.conversions) + 1

    @property
    def mark(self) -> dict[str, int]:
        """The entry that a record is written with."""
        return {VERSION_KEY: self.version}

    def check(self, data: Mapping, where: str | Path) -> int:
        """The version of a record; one that does not name its version has the first.

        Raises:
            NewerFormatError: If a newer rrf wrote it.
            ValueError: If what stands there is no version.
        """
        version = data.get(VERSION_KEY, 1)
        if type(version) is not int or version < 1:
            raise ValueError(f"{where}: {VERSION_KEY} is {version!r}, allowed: 1 to {self.version}")
        if version > self.version:
            raise NewerFormatError(
                f"{where} was written by a newer rrf ({self.what} of version {version}, this rrf "
                f"reads up to {self.version}); install a newer rrf"
            )
        return version

    def read(self, data: Mapping, where: str | Path) -> dict:
        """The content of a record in the present version, without its version.

        Args:
            data: What was read.
            where: The file or tag that it was read from, for errors.

        Raises:
            ValueError: Like `check`.
        """
        version = self.check(data, where)
        content = {key: value for key, value in data.items() if key != VERSION_KEY}
        for convert in self.conversions[version - 1 :]:
            content = convert(content)
        return content


CHECKPOINT = Format("checkpoint")
"""`manifest.json` of a checkpoint, and with it all files that it lists."""
CONFIG = Format("config")
"""A config as YAML: `config.yaml` of a checkpoint, and the files below `configs/`."""
RUN = Format("run")
"""`run.json` and `result.json` of a run directory."""
EVALUATION = Format("evaluation", [lambda evaluation: evaluation])
"""`evaluation.json`, with the protocol in it. Version 2 may have a profile of the served policy; an
evaluation without one is still written as version 1."""
VERDICT = Format("verdict")
"""`verdict-*.json`."""
LEDGER = Format("ledger entry", [lambda entry: entry] * 6)
"""An entry of a promotion ledger, with the gate in it. From version 2 on it may be signed, from
version 3 on it may begin or end a release, from version 4 on it may plan trials on a robot, from
version 5 on its gate may ask for them beside its own protocol, from version 6 on a revocation ends
the approvals of a version, and from version 7 on who allows a version says what was revoked."""
OUTCOMES = Format("outcomes of a release")
"""The episodes of a release, as one server or the end of the release has stored them."""
BOOK = Format("book of episodes")
"""The database of the episodes that a policy server has answered, by SQLite's `user_version`."""
DATASET = Format("dataset record")
"""`meta/conversion.json` of a dataset. The rest of it is LeRobot's format, which has versions of
its own."""
BACKUP = Format("backup")
"""`manifest.json` in a file of `rrf backup`, and with it what the names of its files mean."""
EPISODE_LOG = Format("episode log")
"""`manifest.json` of a logged episode, and with it its records."""
TRIAL = Format("study of trials")
"""`plan.json` and the lines of `record.jsonl` of trials on a robot, and `trial.json`, both together
as evidence."""
