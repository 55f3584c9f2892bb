"""Configs: overriding, checking, round trips, building, trust."""

import dataclasses
import typing

import pytest
import yaml

from rrf.config import (
    Cfg,
    configclass,
    did_you_mean,
    first_error,
    parse_overrides,
    read_yaml,
    trust,
)
from rrf.envs.metaworld.configs import MetaWorldCfg

trust(__name__)


@configclass(builds="Optimizer")
class OptimizerCfg(Cfg):
    lr: float = 1e-3
    """Learning rate."""
    betas: list[float] = [0.9, 0.999]


@configclass
class Shared(Cfg):
    pair: dict[str, list[float]]


@configclass
class SGDCfg(OptimizerCfg):
    momentum: float = 0.5


@configclass
class RunCfg(Cfg):
    seed: int = 0
    optimizer: OptimizerCfg = OptimizerCfg()
    name: str | None = None
    tags: dict[str, str] = {}
    options: dict[str, typing.Any] = {}
    overrides: dict[str, typing.Any] = {}


class Optimizer:
    def __init__(self, cfg, parameters):
        self.cfg, self.parameters = cfg, parameters


def test_a_bare_assignment_overrides_an_inherited_field():
    @configclass
    class Mine(RunCfg):
        seed = 42
        optimizer = SGDCfg(lr=0.1)

    assert (Mine().seed, Mine().optimizer.lr, Mine().name) == (42, 0.1, None)


def test_a_bare_assignment_that_overrides_nothing_is_an_error_with_a_suggestion():
    with pytest.raises(
        TypeError, match=r"Typo\.sed is neither annotated nor inherited; did you mean 'seed'"
    ):

        @configclass
        class Typo(RunCfg):
            sed = 42


def test_mutable_defaults_are_not_shared_between_instances():
    first, second = RunCfg(), RunCfg()
    first.optimizer.betas.append(1.0)
    first.tags["a"] = "b"
    assert second.optimizer.betas == [0.9, 0.999]
    assert second.tags == {}


def test_values_are_checked_at_construction_and_at_assignment():
    with pytest.raises(ValueError, match="seed"):
        RunCfg(seed="many")
    cfg = RunCfg()
    with pytest.raises(ValueError, match="seed"):
        cfg.seed = "many"
    with pytest.raises(ValueError, match="sed"):
        RunCfg(sed=1)


def test_dotted_overrides_replace_nested_values_and_leave_the_original_alone():
    cfg = RunCfg()
    changed = cfg.override(
        parse_overrides(["optimizer.lr=1e-1", "seed=9", "optimizer.betas=[0.5, 0.6]"])
    )
    assert (changed.optimizer.lr, changed.seed, changed.optimizer.betas) == (0.1, 9, [0.5, 0.6])
    assert (cfg.optimizer.lr, cfg.seed) == (1e-3, 0)


def test_a_path_into_a_mapping_makes_the_keys_that_are_missing():
    changed = RunCfg(options={"hidden": [1]}).override({"options.kwargs.mode": "ok"})
    assert changed.options == {"hidden": [1], "kwargs": {"mode": "ok"}}


def test_what_follows_overrides_is_one_key_of_dotted_paths():
    cfg = RunCfg(overrides={"rewards.a.weight": -0.02, "events.push": None})
    changed = cfg.override({"overrides.rewards.a.weight": -0.05, "overrides.curriculum": None})
    assert changed.overrides == {"rewards.a.weight": -0.05, "events.push": None, "curriculum": None}
    assert cfg.override({"overrides": {}}).overrides == {}
    deeper = RunCfg().override({"options.overrides.rewards.a.weight": 1})
    assert deeper.options == {"overrides": {"rewards.a.weight": 1}}


def test_an_exponent_without_a_point_is_a_number_and_quotes_make_it_text(tmp_path):
    words = ["a=1e-3", "b={c: [-1E5, 1e-05, .5e+2]}", "d='1e-3'", "e=1e", "f=12", "g=1.5"]
    assert parse_overrides(words) == {
        "a": 0.001,
        "b": {"c": [-100000.0, 0.00001, 50.0]},
        "d": "1e-3",
        "e": "1e",
        "f": 12,
        "g": 1.5,
    }
    (tmp_path / "train.yaml").write_text("g: 1e-3")
    assert read_yaml(tmp_path / "train.yaml") == {"g": 0.001}
    assert RunCfg.from_yaml("options: {g: 1e-3}").options == {"g": 0.001}
    cfg = RunCfg(name="1e-3", options={"g": 1e-5})
    assert RunCfg.from_yaml(cfg.to_yaml()) == cfg


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("optimizer.lrr=1", "no config field 'optimizer.lrr'; did you mean 'lr'"),
        ("optimiser.lr=1", "no config field 'optimiser'; did you mean 'optimizer'"),
        ("seed=abc", "seed"),
        ("seed=true", "seed is true, which is neither a number nor text"),
        ("seed.x=1", "'seed.x' goes into a plain value"),
    ],
)
def test_a_wrong_override_names_the_path_and_the_closest_field(word, message):
    with pytest.raises(ValueError, match=message):
        RunCfg().override(parse_overrides([word]))


def test_a_word_without_equals_is_refused():
    with pytest.raises(ValueError, match="'seed' is not of the form path=value"):
        parse_overrides(["seed"])


def test_yaml_round_trip_keeps_nested_subclasses():
    cfg = RunCfg(optimizer=SGDCfg(momentum=0.9), name="x", tags={"k": "v"})
    again = RunCfg.from_yaml(cfg.to_yaml())
    assert again == cfg
    assert type(again.optimizer) is SGDCfg


def test_a_type_outside_the_trusted_packages_is_refused():
    with pytest.raises(ValueError, match="lies outside the trusted packages"):
        RunCfg.from_dict({"optimizer": {"type": "subprocess:Popen", "args": "true"}})


def test_a_type_or_field_that_is_no_text_is_refused():
    with pytest.raises(ValueError, match=r"type is 5; expected text such as 'module:Name'"):
        RunCfg.from_dict({"optimizer": {"type": 5}})
    with pytest.raises(ValueError, match="RunCfg has no field '5'; known: "):
        RunCfg.from_dict({5: 1})


def test_a_trusted_type_that_is_not_a_subclass_is_refused():
    with pytest.raises(ValueError, match="is not a OptimizerCfg"):
        RunCfg.from_dict({"optimizer": {"type": f"{__name__}:RunCfg"}})


def test_build_constructs_the_described_class_with_runtime_arguments():
    built = SGDCfg(lr=0.2).build(["w"])
    assert isinstance(built, Optimizer)
    assert (built.cfg.lr, built.parameters) == (0.2, ["w"])


def test_replace_returns_a_deep_copy():
    cfg = RunCfg()
    other = cfg.replace(seed=3)
    other.optimizer.betas.append(0.0)
    assert (cfg.seed, other.seed, cfg.optimizer.betas) == (0, 3, [0.9, 0.999])


def test_configs_without_the_base_class_get_its_methods():
    @configclass
    class Plain:
        x: int = 1

    assert Plain().to_dict()["x"] == 1  # type: ignore[attr-defined]
    assert dataclasses.is_dataclass(Plain)


def test_first_error_says_path_and_problem_on_one_line():
    with pytest.raises(ValueError, match="seed") as caught:
        RunCfg.from_dict({"seed": "many"})
    assert first_error(caught.value).startswith("seed: Input should be a valid integer")


def test_what_is_far_off_is_not_taken_for_what_was_meant():
    assert did_you_mean("Hoper-v5", ["Hopper-v5"]) == "; did you mean 'Hopper-v5'?"
    assert did_you_mean("Nope-v1", ["Hopper-v5", "Ant-v5"]) == "; known: Ant-v5, Hopper-v5"
    many = [f"task-{i}" for i in range(2000)]
    assert did_you_mean("put", many) == (
        "; the nearest of 2,000: task-9, task-8, task-7, task-6, task-5"
    )


def test_read_yaml_names_the_file_and_a_near_one(tmp_path):
    (tmp_path / "train.yaml").write_text("[1, 2]")
    with pytest.raises(ValueError, match=r"train\.yaml must hold a mapping"):
        read_yaml(tmp_path / "train.yaml")
    with pytest.raises(ValueError, match=r"did you mean .*train\.yaml"):
        read_yaml(tmp_path / "trian.yaml")
    (tmp_path / "bad.yaml").write_text("a: [1")
    with pytest.raises(ValueError, match=r"bad\.yaml is not YAML"):
        read_yaml(tmp_path / "bad.yaml")


def test_class_variables_are_no_fields_and_are_overridden_bare():
    @configclass
    class Base(Cfg):
        kinds: typing.ClassVar[dict[str, str]] = {}
        size: int = 1

    @configclass
    class Special(Base):
        kinds = {"a": "b"}

    assert Special.kinds == {"a": "b"}
    assert [name for name in Special().to_dict() if name != "type"] == ["size"]
    with pytest.raises(ValueError, match="has no field 'kinds'"):
        Special.from_dict({"kinds": {}})


@pytest.mark.parametrize(
    "content",
    [
        b"a: 2001-99-99",
        b"a: !!bool x",
        b"a: !!timestamp x",
        b"a: !!int ''",
        b"a: !!float z",
        b"\xa1",
    ],
)
def test_a_value_that_yaml_cannot_make_is_named_with_its_file(tmp_path, content):
    (tmp_path / "bad.yaml").write_bytes(content)
    with pytest.raises(ValueError, match=r"bad\.yaml is not YAML: ."):
        read_yaml(tmp_path / "bad.yaml")
    if content.startswith(b"a"):
        with pytest.raises(ValueError, match=r"of override .* is not YAML"):
            parse_overrides([content.decode().replace(": ", "=")])


def test_a_key_that_is_no_text_is_unknown_like_any_other():
    for key in (None, 3, 2.5, True):
        with pytest.raises(ValueError, match=f"has no field '{key}'"):
            Shared.from_dict({key: 1})
        assert did_you_mean(key, ["none", "other"]).startswith("; ")


BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{new}: &{new} [{', '.join(['*' + old] * 10)}]\n"
    for old, new in zip("abcdefghijklmno", "bcdefghijklmnop", strict=True)
)


def test_aliases_which_make_gigabytes_of_a_small_file_are_refused(tmp_path):
    (tmp_path / "config.yaml").write_text(BOMB)
    with pytest.raises(ValueError, match=r"is not YAML: \*a must be written out.*line 2"):
        read_yaml(tmp_path / "config.yaml")
    (tmp_path / "config.yaml").write_text("a: " + "[" * 100_000)
    with pytest.raises(ValueError, match=r"config.yaml is not YAML: it is nested too deeply"):
        read_yaml(tmp_path / "config.yaml")
    betas = [0.5, 0.6]
    pair = {"first": betas, "second": betas}
    assert yaml.safe_load(Shared(pair=pair).to_yaml())["pair"] == pair
    assert Shared.from_yaml(Shared(pair=pair).to_yaml()) == Shared(pair=pair)


def test_a_colon_between_numbers_is_text_and_no_sum_of_minutes():
    given = parse_overrides(["a=1:2", "b={c: 0:0-3, d: 3:30}", "e=0x10", "f=-1.5", "g=1_000"])
    assert given == {
        **{"a": "1:2", "b": {"c": "0:0-3", "d": "3:30"}},
        **{"e": 16, "f": -1.5, "g": 1000},
    }


def test_a_field_that_plain_data_leaves_out_can_be_overridden():
    cfg = MetaWorldCfg().override({"ignore_terminations": True})
    assert cfg.ignore_terminations
    assert cfg.override({"ignore_terminations": False}).to_dict() == MetaWorldCfg().to_dict()
