"""Killed work, and work on a full disk, ends as if undisturbed, and attacks change nothing;
`python -m benchmarks.faults` does the same with 20 seeds each.
"""

import json
import subprocess
import sys

import pytest

from benchmarks.faults import FAULTS
from tests import postgres
from tests.faults.kills import Killed, KillTrial
from tests.repository.structure import ROOT


class Half(Killed):
    """Work that a kill leaves half done: a file is written in place, not beside and renamed."""

    name = "half"

    def prepare(self, home):
        (home / "file").write_text("old")

    def work(self, home):
        import time

        with (home / "file").open("w") as file:
            for _ in range(40):
                file.write("new")
                file.flush()
                time.sleep(0.01)

    def look(self, home):
        assert (home / "file").read_text() in ("old", "new" * 40), "the file is half"

    def state(self, home):
        return (home / "file").read_text()


class Twice(Half):
    """Work that counts once more what it has counted before it was killed."""

    name = "twice"

    def look(self, home):
        pass

    def work(self, home):
        import time

        with (home / "file").open("a") as file:
            for _ in range(40):
                file.write("new")
                file.flush()
                time.sleep(0.01)


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        (Half(), "the file is half"),
        pytest.param(Twice(), "another result: 'old", marks=pytest.mark.slow),
    ],
)
def test_what_does_not_survive_is_seen(tmp_path, case, problem):
    trial = KillTrial(case, tmp_path)
    survivals = []
    for seed in range(6):
        survivals.append(trial.survive(seed))
        assert survivals[-1].kills
        if problem in survivals[-1].problem:
            return
    pytest.fail(str(survivals))


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost_half_or_counted_twice(fault, tmp_path):
    if fault.startswith("full-disk"):
        if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", tmp_path], check=False).returncode:
            pytest.skip("a disk of its own that is full needs the right to mount")
        subprocess.run(["umount", tmp_path], check=True)
    if fault in ("two-sites-postgres", "database-restart") and not postgres.found():
        pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
    command = [sys.executable, "-m", "benchmarks.faults", fault, "--small"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    survivals = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(survivals) == 2, done.stdout
    assert [each["problem"] for each in survivals] == ["", ""]
