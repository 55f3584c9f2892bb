import h5py
import numpy as np
import pytest

from rrf.data.formats.d4rl import D4RLSource
from tests.data.fixtures_simulators import edit, read_all, replace, truncate, write_d4rl


def test_d4rl_splits_at_terminals_and_timeouts(tmp_path):
    path = write_d4rl(tmp_path / "hopper.hdf5", [3, 4, 2])
    source = D4RLSource(path, {})
    (recording,) = source.recordings()
    assert (recording.name, recording.num_episodes) == ("hopper", 3)
    episodes = read_all(source, ["observations", "actions", "rewards", "terminals", "infos/qpos"])
    assert [e.arrays["observations"][:, 0].tolist() for e in episodes] == [
        [0, 1, 2],
        [100, 101, 102, 103],
        [200, 201],
    ]
    assert [e.arrays["terminals"][-1] for e in episodes] == [True, False, False]
    assert episodes[1].arrays["rewards"].tolist() == [3, 4, 5, 6]
    assert episodes[1].arrays["actions"].dtype == np.float32
    assert episodes[1].source == f"{path}:episode_1"
    assert episodes[0].images == {}


def test_d4rl_offers_arrays_with_a_row_per_step(tmp_path):
    assert D4RLSource(write_d4rl(tmp_path / "a.hdf5"), {}).keys() == {
        "observations": "float64[2]",
        "actions": "float32[2]",
        "rewards": "float32[]",
        "terminals": "bool[]",
        "timeouts": "bool[]",
        "infos/qpos": "float64[3]",
    }


def test_d4rl_without_timeouts_is_cut_at_the_length_limit(tmp_path):
    path = write_d4rl(tmp_path / "a.hdf5", [3, 5], timeouts=False)
    with pytest.raises(
        ValueError,
        match=r"neither timeouts nor next_observations, .* \{options: \{max_episode_steps: N\}\}",
    ):
        D4RLSource(path, {}).recordings()
    episodes = read_all(D4RLSource(path, {"max_episode_steps": 2}), ["rewards"])
    assert [e.arrays["rewards"].tolist() for e in episodes] == [[0, 1], [2], [3, 4], [5, 6], [7]]


@pytest.mark.parametrize(("keep", "expected"), [(True, [3, 4, 2]), (False, [3, 4])])
def test_d4rl_keeps_the_unfinished_end_unless_told_otherwise(tmp_path, keep, expected):
    path = write_d4rl(tmp_path / "a.hdf5", [3, 4, 2])
    edit(path, lambda f: f["timeouts"].write_direct(np.arange(9) == 6))
    source = D4RLSource(path, {"keep_unfinished": keep})
    assert [len(e) for e in read_all(source, ["actions"])] == expected
    assert source.recordings()[0].num_episodes == len(expected)


def test_d4rl_episode_as_long_as_the_limit_is_finished(tmp_path):
    path = write_d4rl(tmp_path / "a.hdf5", [3, 4], timeouts=False)
    options = {"max_episode_steps": 4, "keep_unfinished": False}
    assert [len(e) for e in read_all(D4RLSource(path, options), ["actions"])] == [3, 4]


def test_d4rl_flags_may_be_columns_and_floats(tmp_path):
    path = write_d4rl(tmp_path / "a.hdf5", [3, 4])
    ends = (np.arange(7) == 2).astype(np.float32)[:, None]
    edit(path, lambda f: replace(f, "terminals", ends))
    episodes = read_all(D4RLSource(path, {}), ["terminals"])
    assert [e.arrays["terminals"].shape for e in episodes] == [(3, 1), (4, 1)]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, r"a\.hdf5 is truncated or not HDF5"),
        (lambda p: edit(p, lambda f: f.pop("terminals")), r"a\.hdf5 has no key 'terminals'"),
        (
            lambda p: edit(p, lambda f: replace(f, "actions", np.zeros((6, 2)))),
            r"a\.hdf5: the arrays differ in length: .*'actions': 6",
        ),
        (
            lambda p: edit(p, lambda f: replace(f, "timeouts", np.zeros(6, bool))),
            r"a\.hdf5: timeouts has shape \[6\], expected \[7\]",
        ),
        (lambda p: write_d4rl(p, []), r"a\.hdf5 holds no transitions, so no episodes"),
    ],
)
def test_d4rl_names_what_is_wrong(tmp_path, damage, message):
    path = write_d4rl(tmp_path / "a.hdf5")
    damage(path)
    with pytest.raises(ValueError, match=message):
        read_all(D4RLSource(path, {}), ["observations"])


def test_d4rl_reads_arrays_put_together_from_parts_of_the_same_file(tmp_path):
    path = write_d4rl(tmp_path / "a.hdf5")

    def split(file):
        values = file["observations"][()]
        del file["observations"]
        layout = h5py.VirtualLayout(values.shape, values.dtype)
        for part, rows in enumerate((slice(0, 4), slice(4, 7))):
            file[f"virtual/{part}/observations"] = values[rows]
            layout[rows] = h5py.VirtualSource(file[f"virtual/{part}/observations"])
        file.create_virtual_dataset("observations", layout)

    edit(path, split)
    episodes = read_all(D4RLSource(path, {}), ["observations"])
    assert [e.arrays["observations"][:, 0].tolist() for e in episodes] == [
        [0, 1, 2],
        [100, 101, 102, 103],
    ]


def test_d4rl_reads_no_rows_that_lie_in_another_file(tmp_path):
    path = write_d4rl(tmp_path / "a.hdf5")
    (tmp_path / "secret").write_bytes(bytes(7 * 8))

    def point_out(file):
        place = [(str(tmp_path / "secret"), 0, 7 * 8)]
        file.create_dataset("infos/goal", (7,), np.float64, external=place)

    edit(path, point_out)
    with pytest.raises(ValueError, match=r"infos/goal lies in another file"):
        read_all(D4RLSource(path, {}), ["infos/goal"])
