"""Files with groups, anchors and values that stand for others become one config."""

import pytest

from rrf.presets.rlinf.composition import Unresolved, composed, leaves


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


def test_groups_stand_where_their_package_says_and_the_file_goes_over_them(write):
    write("model/big.yaml", "width: 8\nhead:\n  depth: 2\n  bias: true\nlist: [1, 2]\n")
    write("env/base.yaml", "steps: 5\n")
    write("env/sim.yaml", "defaults: [env/base@_global_]\nname: sim\n")
    file = write(
        "run.yaml",
        "defaults:\n  - model/big@actor.model\n  - env: sim\n  - override hydra/job_logging: out\n"
        "  - optional_nothing@x: null\n"
        "hydra: {run: {dir: .}}\nactor: {model: {head: {depth: 3}, list: [3]}}\n",
    )
    assert composed(file) == {
        "actor": {"model": {"width": 8, "head": {"depth": 3, "bias": True}, "list": [3]}},
        "env": {"steps": 5, "name": "sim"},
    }


def test_self_says_what_goes_over_what_and_groups_may_lie_elsewhere(write, tmp_path):
    write("groups/a/b.yaml", "# @package x.y\nvalue: 1\nother: 2\n")
    file = write("run.yaml", "defaults: [_self_, a/b]\nx: {y: {value: 7, mine: 8}}\n")
    assert composed(file, [tmp_path / "groups"]) == {
        "x": {"y": {"value": 1, "mine": 8, "other": 2}}
    }
    with pytest.raises(ValueError, match=r"'a/b' among the defaults is no file in .*--search-path"):
        composed(file)


def test_values_stand_for_others_from_their_place_or_from_the_top(write, monkeypatch):
    monkeypatch.setenv("RUNS", "/runs")
    monkeypatch.delenv("NOWHERE", raising=False)
    file = write(
        "run.yaml",
        "top: 3\n"
        "a:\n  b: 5e-6\n  c: ${.b}\n  d: {e: '${..b}', f: '${top}', g: '${a.list[1]}'}\n"
        "  list: [1, x]\n  path: ${oc.env:RUNS}/${a.list[1]}\n"
        "  other: ${oc.env:NOWHERE,none}\n  lost: ${oc.env:NOWHERE}/x\n"
        "  six: ${multiply:${top},2}\n  chosen: ${oc.select:no.such,dflt}\n",
    )
    config = composed(file)["a"]
    assert config.pop("lost") == Unresolved(
        "${oc.env:NOWHERE}/x", "the variable NOWHERE is not set"
    )
    assert config == {
        "b": 5e-6,
        "c": 5e-6,
        "d": {"e": 5e-6, "f": 3, "g": "x"},
        "list": [1, "x"],
        "path": "/runs/x",
        "other": "none",
        "six": 6,
        "chosen": "dflt",
    }
    assert dict(leaves({"a": {"b": 1, "c": {}}, "d": [2]})) == {"a.b": 1, "d": [2]}


def test_anchors_are_read_as_isaac_labs_file_has_them(write):
    file = write(
        "run.yaml",
        "env:\n  train: {isaaclab: &maps {main_images: front, states: [{key: q, slice: [1, 2]}]}}\n"
        "  eval: {isaaclab: *maps, extra: {<<: *maps, main_images: back}}\n",
    )
    env = composed(file)["env"]
    assert env["eval"]["isaaclab"] == env["train"]["isaaclab"]
    assert env["eval"]["extra"] == env["train"]["isaaclab"] | {"main_images": "back"}


BOMB = "".join(f"a{n}: &a{n} [{', '.join(['*a' + str(n - 1)] * 10)}]\n" for n in range(1, 9))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: ${b}\nb: ${a}\n", "a -> b -> a stand for one another"),
        ("a: {b: '${..c}'}\n", "a.b stands for .*but there is no 'c'"),
        ("alpha: 1\na: ${alpah}\n", "no 'alpah'; did you mean 'alpha'"),
        ("a: '${...b}'\n", "leads out of the file"),
        ("a: ${secret:1}\n", "calls 'secret', which is not read"),
        ("a: ${int_div:1,0}\n", "cannot be computed"),
        ("a: '${b'\nb: 1\n", "is not closed"),
        ("a: 'x ${b}'\nb: [1]\n", "is no text"),
        ("- 1\n", "must hold a mapping at top level, found list"),
        ("a: [1\n", "is not YAML"),
        ("a: &x [*x]\n", "an anchor holds itself"),
        (f"a0: &a0 [1]\n{BOMB}", "more than 100,000 values with its aliases written out"),
        ("defaults: {env: a}\n", "defaults is a dict, expected a list"),
        ("defaults: [override env: a]\n", "is not read; name the file of the group"),
        ("defaults: ['${x}/a']\n", "is not read; expected GROUP/NAME@PACKAGE"),
        ("defaults: [../a]\n", "leaves its directory"),
        ("defaults: [run@x]\n", "defaults name one another without an end"),
    ],
)
def test_what_cannot_be_composed_is_refused_by_name(write, text, message):
    file = write("run.yaml", text)
    with pytest.raises(ValueError, match=message) as caught:
        composed(file)
    assert "run.yaml" in str(caught.value)


def test_a_missing_file_names_its_neighbour(write):
    write("libero_10.yaml", "a: 1\n")
    with pytest.raises(ValueError, match=r"no file '.*libero_1\.yaml'; did you mean '.*libero_10"):
        composed(write("libero_10.yaml", "a: 1\n").with_name("libero_1.yaml"))
