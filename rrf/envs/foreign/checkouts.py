"""Repositories that a foreign interpreter needs besides packages, cloned at one commit with git."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from rrf import atomic


@dataclasses.dataclass(frozen=True)
class Checkout:
    """A repository at a commit, as a lock names it."""

    name: str
    licence: str
    url: str
    commit: str
    """40 hexadecimal digits."""

    @property
    def variable(self) -> str:
        """The environment variable that says where it is: CALVIN_ENV_PATH of calvin-env."""
        return f"{self.name.upper().replace('-', '_')}_PATH"

    @property
    def as_package(self) -> dict[str, str]:
        """What the record of an interpreter says of a package."""
        return {"name": self.name, "version": self.commit, "licence": self.licence}

    def clone_to(
        self, folder: Path, source: Path | None, command: str, run: Callable[..., str]
    ) -> None:
        """Clone it, unless `folder` is there already.

        Args:
            folder: Where to.
            source: A clone to take it from, instead of `url`. It must have the commit.
            command: What the user has typed, for errors.
            run: `run(command, cwd=None)` returns what a command prints, or raises a ValueError.

        Raises:
            ValueError: If there is no git, no such repository or no such commit.
        """
        if folder.exists():
            return
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = folder.with_name(f".partial-{folder.name}")
        if partial.exists():
            atomic.remove(partial)
        try:
            origin = self.url if source is None else source.absolute()
            run(["git", "clone", "--quiet", "--no-checkout", origin, partial])
            run(["git", "-C", partial, "checkout", "--quiet", self.commit])
        except ValueError as error:
            raise ValueError(
                f"{error}. Where there is a connection, type: git clone {self.url}; then here, "
                f"with that folder: {command} --source FOLDER"
            ) from error
        partial.rename(folder)
