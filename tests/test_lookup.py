"""Tables of names, and optional packages."""

import pytest

from rrf.lookup import Lookup, require


def test_a_registered_name_gives_the_object_and_iteration_is_sorted():
    table = Lookup("thing", {"b": "json:dumps", "a": "json:loads"})
    assert list(table) == ["a", "b"]
    assert table.get("b")([1]) == "[1]"


def test_an_unknown_name_suggests_the_closest():
    with pytest.raises(ValueError, match="no simulator 'metawrld'; did you mean 'metaworld'"):
        Lookup("simulator", {"metaworld": "json:loads"}).get("metawrld")


def test_an_unknown_environment_says_how_one_of_the_users_is_made_known():
    from rrf.envs import ENVS

    said = "simpler; one of your own: --import MODULE, in flows a plugin .*'rrf.plugins'"
    with pytest.raises(ValueError, match=said):
        ENVS.get("toy")


def test_an_alias_gives_the_object_of_its_name_and_is_suggested():
    table = Lookup("thing", {"a-long-name": "json:loads"}, {"other_name": "a-long-name"})
    assert table.get("other_name")("[1]") == [1]
    assert "other_name" in table
    assert list(table) == ["a-long-name"]
    with pytest.raises(ValueError, match="no thing 'other_nam'; did you mean 'other_name'"):
        table.get("other_nam")


def test_a_name_cannot_be_taken_twice_by_different_targets():
    table = Lookup("thing", {"a": "json:loads"})
    table.register("a", "json:loads")
    with pytest.raises(ValueError, match="thing 'a' already stands for json:loads"):
        table.register("a", "json:dumps")


def test_a_missing_optional_package_names_the_command_that_installs_it():
    with pytest.raises(ImportError, match=r"uv pip install -e '\.\[s3\]'"):
        require("a_package_nobody_has", extra="s3")


def test_a_package_that_lacks_a_library_of_the_system_says_so(tmp_path, monkeypatch):
    (tmp_path / "half_a_package.py").write_text("raise ImportError('libEGL.so.1: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ImportError, match=r"is installed, but cannot be used: libEGL\.so\.1: cannot"
    ):
        require("half_a_package", extra="s3")
