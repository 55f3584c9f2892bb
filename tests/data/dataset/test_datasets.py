"""Recordings of other projects become datasets that can be learned from."""

import numpy as np
import pytest

from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import DatasetCfg, InstructionCfg, SourceCfg
from rrf.data.conversion.vector_cfg import VectorCfg
from rrf.data.dataset.transitions import read_transitions
from tests.data.fixtures_simulators import write_d4rl, write_minari


def vector(key: str) -> VectorCfg:
    return VectorCfg(keys=[key], names=["a", "b"], unit="1")


def cfg(source: str, state: str, action: str, **keys: str) -> DatasetCfg:
    return DatasetCfg(
        name="recorded",
        source=SourceCfg(format=source, path="x"),
        fps=10,
        state=vector(state),
        action=vector(action),
        instruction=InstructionCfg(text="do it"),
        licence="MIT",
        provenance="made by a test",
        **keys,
    )


@pytest.mark.parametrize(
    ("source", "write", "keys", "lengths", "ends"),
    [
        (
            "d4rl", lambda to: write_d4rl(to / "toy.hdf5"),
            ("observations", "actions", "rewards", "terminals"), (3, 4), (True, False),
        ),
        (
            "minari", write_minari,
            ("observations/observation", "actions/_index_0", "rewards", "terminations"),
            (3, 5), (True, True),
        ),
    ],
)  # fmt: skip
def test_terminations_are_kept(tmp_path, source, write, keys, lengths, ends):
    write(tmp_path / "raw")
    state, action, reward, terminated = keys
    dataset = cfg(source, state, action, reward=reward, terminated=terminated)
    convert(dataset, tmp_path / "raw", tmp_path / "converted")
    data = read_transitions(tmp_path / "converted")
    counts = [length - (not end) for length, end in zip(lengths, ends, strict=True)]
    assert len(data) == sum(counts)
    assert np.flatnonzero(data.ended).tolist() == [counts[0] - 1, sum(counts) - 1]
    assert data.terminated[data.ended].tolist() == list(ends)
    goes_on = np.flatnonzero(~data.ended)
    np.testing.assert_array_equal(data.next_observations[goes_on], data.observations[goes_on + 1])
