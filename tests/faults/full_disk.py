"""Work on a disk that is full in the middle of it: it fails with a line, and goes on with space.

The workspace is a file system in memory whose size a seed draws, between what is in it and a little
more than the undisturbed work needs. Needs root, which may mount.
"""

import random
import shutil
import subprocess
from pathlib import Path

from tests.faults.kills import Killed, KillTrial, Survival, Trial
from tests.faults.registry_cases import Promotion, Registration
from tests.faults.work_cases import Ingest, LogUpload, Training

_MOST = 512 << 20
_SAID = ("OSError", "ValueError", "AssertionError: rrf ")
"""How the error of work begins that was refused in words: an exception that commands show as a
line, or a command that has shown it (exit code 2)."""


class FullDiskTrial(KillTrial):
    """A case on a file system of its own."""

    def __init__(self, case: Killed, folder: Path):
        home = folder / "home"
        home.mkdir(parents=True)
        _mount(home, "-t", "tmpfs", "-o", f"size={_MOST}", "tmpfs")
        try:
            super().__init__(case, folder)
        except BaseException:
            self.close()
            raise
        after = shutil.disk_usage(self.home).used
        self._again()
        self._used = shutil.disk_usage(self.home).used
        self._needed = max(after - self._used, 1 << 14)

    def close(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", "-l", self.home], check=True)

    def _disturb(self, rng: random.Random, survival: Survival) -> None:
        """Let the disk be full at a drawn place, then give it space."""
        self._again()
        free = int(rng.random() * 1.1 * self._needed)
        _mount(self.home, "-o", f"remount,size={self._used + free}")
        said = self._refused()
        survival.kills = int(bool(said))
        assert said.startswith(_SAID) or not said, f"no line, but {said}"
        self._in_fork(lambda: self.case.look(self.home))

    def _refused(self) -> str:
        """What the work says on the full disk, which has space afterwards; "" if it fits."""
        try:
            self._in_fork(lambda: self.case.work(self.home))
        except AssertionError as error:
            return str(error)
        finally:
            _mount(self.home, "-o", f"remount,size={_MOST}")
        return ""

    def _again(self) -> None:
        for path in self.home.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(self._start, self.home, symlinks=True, dirs_exist_ok=True)


class _OnFullDisk(Killed):
    """Mixed into a case: a full disk instead of kills."""

    @property
    def fault(self) -> str:
        return f"disk full during {self.name}"

    def trial(self, folder: Path) -> Trial:
        return FullDiskTrial(self, folder)


class PromotionOnFullDisk(_OnFullDisk, Promotion):
    """A promotion."""


class RegistrationOnFullDisk(_OnFullDisk, Registration):
    """A registration."""


class TrainingOnFullDisk(_OnFullDisk, Training):
    """A training."""


class UploadOnFullDisk(_OnFullDisk, LogUpload):
    """Sending of logs."""


class IngestOnFullDisk(_OnFullDisk, Ingest):
    """Bringing of logs."""


def _mount(home: Path, *words: str) -> None:
    subprocess.run(["mount", *words, home], check=True)
