"""What holds for every training."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """As the command line does: two threads on contended cores are several times slower."""
    torch.set_num_threads(1)
