"""Where the C code cannot be compiled, training goes on without it and says so once."""

import os
import re
import subprocess
import sys

import pytest

TRAIN = "rrf train pendulum-ppo max_iterations=1 trackers=[]"


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        ("no-such-cc", "there is no compiler 'no-such-cc'; install one, or name yours: CC=/path"),
        pytest.param(
            "failing-cc",
            r"failing-cc fails on [a-z_]+\.c: fatal error: out of letters",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_compiler_that_fails_is_named_once_and_training_goes_on(tmp_path, compiler, reason):
    failing = tmp_path / "failing-cc"
    failing.write_text(
        "#!/bin/sh\necho 'note: hm' >&2\necho 'fatal error: out of letters' >&2\nexit 1\n"
    )
    failing.chmod(0o755)
    own = {"CC": compiler, "PATH": f"{tmp_path}:{os.environ['PATH']}", "RRF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", *TRAIN.split()],
        env={**os.environ, **own, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "trained pendulum-ppo" in done.stdout
    told = [line for line in done.stderr.splitlines() if "without its C code" in line]
    assert len(told) == 1
    assert re.search(reason, told[0])
