"""What setuptools puts into the wheel of rrf beside its code: what `rrf init` makes workspaces of.

A checkout has `configs/`, `flows/` and `infra/` in its root. The wheel has them in
`rrf/_workspace/`, so that it brings a single name into site-packages. They are copied while it is
built, and nothing is left in the checkout; an editable installation reads those of the checkout.
"""

import shutil
from pathlib import Path

from setuptools.command.build_py import build_py

PLACE = Path("rrf", "_workspace")  # rrf.workspace.SHIPPED
_INFRA = ("__init__", "deployments", "ports", "prefect_server", "services", "slurm", "worker")
_SHIPPED = (
    *("configs/**/*", "flows/*.py", ".dvc/plots/*.json", "infra/watch/*", "infra/workspace/**/*"),
    *(f"infra/{name}.py" for name in _INFRA),
)


def shipped() -> list[Path]:
    """The files that go into the wheel, relative to the root of the checkout, which is the cwd."""
    paths = {path for pattern in _SHIPPED for path in Path().glob(pattern) if path.is_file()}
    return sorted(path for path in paths if "__pycache__" not in path.parts)


class BuildPy(build_py):
    """setuptools' own, and `shipped()`."""

    def run(self) -> None:
        """Copy the code, then the rest. What an earlier build has left would go into the wheel too,
        so it is removed before.
        """
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        for source, target in self._copies():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """What `run` writes."""
        return super().get_outputs(include_bytecode) + [str(target) for _, target in self._copies()]

    def get_source_files(self) -> list[str]:
        """What the source distribution needs for the wheel."""
        return [*super().get_source_files(), *map(str, shipped()), "infra/wheel.py"]

    def _copies(self) -> list[tuple[Path, Path]]:
        if self.editable_mode:
            return []
        return [(path, Path(self.build_lib) / PLACE / path) for path in shipped()]
