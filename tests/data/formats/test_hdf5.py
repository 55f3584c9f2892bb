"""Reading foreign HDF5: links, text and damage."""

import h5py
import numpy as np
import pytest

from rrf.data.formats import hdf5


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.hdf5"


def write(path, fill):
    with h5py.File(path, "w") as file:
        fill(file)
    return h5py.File(path)


def test_datasets_are_listed_by_their_path_with_what_a_frame_is(path):
    def fill(file):
        file["actions"] = np.zeros((5, 7), np.float32)
        file["rewards"] = np.zeros(5)
        file["obs/front"] = np.zeros((5, 48, 64, 3), np.uint8)
        file["obs/wrist"] = np.zeros((5, 3, 48, 64), np.uint8)
        file["obs/depth"] = np.zeros((5, 48, 64, 1), np.float32)
        file["obs/touch"] = np.zeros((5, 2), bool)
        file["phase"] = ["reach"] * 5
        file["seed"] = 7
        file["pairs"] = np.zeros(5, [("a", "f4"), ("b", "f4")])

    with write(path, fill) as file:
        datasets = hdf5.list_datasets(file, "a.hdf5")
        assert {key: hdf5.describe(dataset) for key, dataset in datasets.items()} == {
            "actions": "float32[7]",
            "rewards": "float64[]",
            "obs/front": "image[48, 64]",
            "obs/wrist": "image[48, 64]",
            "obs/depth": "float32[48, 64, 1]",
            "obs/touch": "bool[2]",
            "phase": "text",
            "seed": None,
            "pairs": None,
        }
        with pytest.raises(ValueError, match=r"a: pairs holds .*expected numbers or text"):
            hdf5.read(file, "pairs", "a")


def test_text_comes_back_as_strings_of_its_shape(path):
    with write(path, lambda f: f.create_dataset("t", data=[["pull", "the züg"]])) as file:
        values = hdf5.read(file, "t", "a")
    assert values.dtype.kind == "U"
    assert values.tolist() == [["pull", "the züg"]]


def test_text_that_is_not_utf8_is_refused_wherever_it_stands(path):
    def fill(file):
        file.create_dataset("t", data=[b"ok", b"\xff\xfe"], dtype=h5py.string_dtype())
        file.attrs["fixed"] = np.bytes_(b"\xff")
        file.attrs.create("variable", b"gr\xfcn", dtype=h5py.string_dtype())

    with write(path, fill) as file:
        with pytest.raises(ValueError, match=r"a: t is not valid UTF-8"):
            hdf5.read(file, "t", "a")
        for name in ("fixed", "variable"):
            with pytest.raises(ValueError, match=rf"attribute '{name}' of / is not valid UTF-8"):
                hdf5.text_attribute((file,), name, "a")


def test_links_within_the_file_are_followed(path):
    def fill(file):
        file["data/x"] = [1.0, 2.0]
        file["data/same"] = h5py.SoftLink("/data/x")
        file["near"] = h5py.SoftLink("data")

    with write(path, fill) as file:
        assert hdf5.read(file, "near/same", "a").tolist() == [1.0, 2.0]
        assert sorted(hdf5.list_datasets(file, "a")) == [
            "data/same",
            "data/x",
            "near/same",
            "near/x",
        ]


@pytest.mark.parametrize("way", ["link", "soft link through it", "raw data", "virtual dataset"])
def test_nothing_outside_the_file_is_read(path, tmp_path, way):
    secret = tmp_path / "secret.hdf5"
    write(secret, lambda f: f.create_dataset("x", data=np.arange(3.0))).close()

    def fill(file):
        if "link" in way:
            file["out"] = h5py.ExternalLink(str(secret), "/")
            file["in"] = h5py.SoftLink("/out/x")
        elif way == "raw data":
            file.create_dataset("in", (3,), "u1", external=[(str(secret), 0, 3)])
        else:
            layout = h5py.VirtualLayout((3,), "f8")
            layout[:] = h5py.VirtualSource(str(secret), "x", (3,))
            file.create_virtual_dataset("in", layout)

    with write(path, fill) as file:
        with pytest.raises(ValueError, match=r"another file"):
            hdf5.read(file, "out/x" if way == "link" else "in", "a")
        if "link" in way:
            with pytest.raises(
                ValueError, match=r"a: in is a link to another|out is a link to ano"
            ):
                hdf5.list_datasets(file, "a")


def test_a_type_that_numpy_cannot_hold_is_named(path):
    def fill(file):
        number = h5py.h5t.IEEE_F32LE.copy()
        number.set_ebias(100_000)  # as a flipped bit leaves it
        h5py.h5d.create(file.id, b"x", number, h5py.h5s.create_simple((3,)))

    with (
        write(path, fill) as file,
        pytest.raises(ValueError, match=r"a: x is damaged .*precision.*copy it again"),
    ):
        hdf5.list_datasets(file, "a")


def test_links_that_lead_nowhere_or_in_circles_are_refused(path):
    def fill(file):
        file["void"] = h5py.SoftLink("/absent")
        file["round"] = h5py.SoftLink("/round")
        file["group/x"] = [1.0]
        file["group/self"] = file["group"]
        file["top/root"] = file["/"]

    with write(path, fill) as file:
        with pytest.raises(ValueError, match="void is a link to /absent, where nothing is"):
            hdf5.read(file, "void", "a")
        with pytest.raises(ValueError, match="round is a link that leads to itself"):
            hdf5.read(file, "round", "a")
        for name in ("group", "top"):
            with pytest.raises(ValueError, match="leads to itself"):
                hdf5.list_datasets(file[name], "a")


def test_attributes_that_are_no_number_or_json_name_where_they_stand(path):
    def fill(file):
        file.attrs.update({"fps": "fast", "env_args": "{", "list": "[1]", "none": h5py.Empty("f4")})
        file.attrs["nan"] = np.nan

    with write(path, fill) as file:
        with pytest.raises(ValueError, match=r"a: attribute 'fps' of / is 'fast', expected a numb"):
            hdf5.number_attribute((file,), "fps", "a")
        with pytest.raises(ValueError, match=r"a: attribute 'nan' of / is nan, expected a number"):
            hdf5.number_attribute((file,), "nan", "a")
        with pytest.raises(ValueError, match=r"a: attribute 'env_args' of / is not JSON"):
            hdf5.json_attribute(file, "env_args", "a")
        with pytest.raises(ValueError, match=r"a: attribute 'list' of / is no JSON object"):
            hdf5.json_attribute(file, "list", "a")
        assert hdf5.number_attribute((file,), "none", "a") is None
        assert hdf5.json_attribute(file, "absent", "a") == {}


def test_a_pickle_is_refused_with_the_reason(tmp_path):
    (tmp_path / "demos.pkl").write_bytes(b"\x80\x04N.")
    with pytest.raises(ValueError, match=r"demos\.pkl is a pickle, which runs code"):
        hdf5.find_files(tmp_path / "demos.pkl", "*.hdf5")


def test_a_directory_of_pickles_is_refused_with_the_reason_unless_hdf5_lies_beside(tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/0.pickle").write_bytes(b"\x80\x04N.")
    with pytest.raises(
        ValueError, match=r"holds no \*\.hdf5, and .*raw/0\.pickle is a pickle.*never"
    ):
        hdf5.find_files(tmp_path, "*.hdf5")
    write(tmp_path / "a.hdf5", lambda file: None).close()
    assert hdf5.find_files(tmp_path, "*.hdf5") == [tmp_path / "a.hdf5"]


def test_files_that_the_pattern_misses_are_named(tmp_path):
    (tmp_path / ".gitignore").write_bytes(b"")
    (tmp_path / "demos.h5").write_bytes(b"")
    with pytest.raises(
        ValueError, match=r"no recordings \*\.hdf5 in .* \(it holds demos\.h5, \.\.\.\)"
    ):
        hdf5.find_files(tmp_path, "*.hdf5")


def test_only_the_rows_asked_for_are_read(path):
    with write(path, lambda f: f.update(x=np.arange(6.0), t=["a", "b", "c"], n=7)) as file:
        assert hdf5.read(file, "x", "a", slice(2, 4)).tolist() == [2.0, 3.0]
        assert hdf5.read(file, "t", "a", slice(0, 1)).tolist() == ["a"]
        assert hdf5.read(file, "n", "a", slice(0, 1)) == 7


def test_numbered_names_come_in_the_order_of_their_numbers(path):
    def fill(file):
        for name in ("demo_10", "demo_2", "demo_x", "demo_1_old", "other_3"):
            file.create_group(name)

    with write(path, fill) as file:
        assert hdf5.numbered(file, "demo_", "a") == ["demo_2", "demo_10"]


def test_an_episode_of_no_frames_is_refused_by_name():
    columns = [("actions", np.zeros((0, 7))), ("rewards", np.zeros(0))]
    with pytest.raises(ValueError, match=r"a\.hdf5:demo_3 has no frames \(actions is empty\)"):
        hdf5.arrays_and_images(columns, "a.hdf5:demo_3")


@pytest.mark.parametrize("pattern", ["../*.hdf5", "/etc/*"])
def test_a_pattern_may_not_leave_the_directory(tmp_path, pattern):
    with pytest.raises(ValueError, match="leads out of"):
        hdf5.find_files(tmp_path, pattern)
