"""Freed tensors leave their memory to the next ones."""

import platform
import subprocess
import sys

import pytest

# Without keep_freed_memory, most processes have tens of thousands of faults here.
FAULTS = """
import resource, torch
from rrf.runners.control.speed import keep_freed_memory
keep_freed_memory()
def work():
    for size in range(18, 22):
        for _ in range(5):
            [torch.ones(2**size) for _ in range(6)]
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left alone")
def test_pages_are_not_brought_again():
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 1000
