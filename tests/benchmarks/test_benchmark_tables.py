"""Published numbers: merged by id, turned into tables, never typed."""

import importlib
import json
import re

import pytest

from benchmarks import gate_characteristics, markdown, record, tables


def test_a_row_shows_value_peer_and_ratio():
    row = record.number(
        "images_per_cpu_s_64",
        512.0,
        "images/s",
        command="x",
        peer="GL",
        peer_value=128.0,
        ratio=4.0,
    ) | {"commit": "abc1234", "date": "2026-01-02"}
    expected = "| `images_per_cpu_s_64` | 512 images/s | GL: 128 | 4× | `x` | abc1234, 2026-01-02 |"
    assert expected in tables.table([row]).splitlines()


def test_every_table_shows_what_was_measured_last():
    for path, text in tables.pages().items():
        assert path.read_text() == text, f"{path}: type make bench-tables"


def test_the_page_about_gates_has_the_attempts_that_the_gates_of_today_need():
    told = gate_characteristics.PAGE.read_text()
    filled = markdown.filled(gate_characteristics.PAGE, gate_characteristics.exact_tables())
    assert told == filled, "type python -m benchmarks.gate_characteristics --num 0"


def test_the_readme_shows_what_others_do_better_too():
    rows = [
        {"id": "mt50_success", "value": 0.9604, "unit": "of 1", "peer": None, "ratio": None},
        {"id": "sac_ratio_vs_sbx", "value": 1139.8, "unit": "env-steps/s", "peer": "SBX"}
        | {"peer_value": 195.1, "ratio": 0.716},
        {"id": "not_in_the_readme", "value": 1.0, "unit": "s", "peer": None, "ratio": None},
    ]
    assert tables.strongest(rows).splitlines()[2:] == [
        "| all 50 tasks of Meta-World, one policy of 1.4 million parameters | 96.0% solved |  |  |",
        "| **slower**: SAC on HalfCheetah: steps per second | 1,139.8 env-steps/s | SBX: 195.1 "
        "| 0.716× |",
    ]


def test_every_number_of_the_readme_was_measured():
    measured = {
        row["id"] for path in record.RESULTS.glob("*.json") for row in json.loads(path.read_text())
    }
    assert set(tables.README) <= measured


def test_every_number_is_measured_by_the_command_beside_it():
    wrong = set()
    for path in record.RESULTS.glob("*.json"):
        for row in json.loads(path.read_text()):
            if command := re.match(
                r"python -m (benchmarks\.\w+) (\w[\w-]*)", row.get("command", "")
            ):
                known = getattr(importlib.import_module(command[1]), "IDS", (command[2],))
                wrong |= set() if command[2] in known else {row["command"]}
    assert wrong == set()


def test_a_table_needs_its_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- one -->\nold\n<!-- /one -->\nafter\n")
    expected = "before\n<!-- one -->\n\n| new |\n\n<!-- /one -->\nafter\n"
    assert markdown.filled(page, {"one": "| new |\n"}) == expected
    with pytest.raises(ValueError, match=r"page\.md has no marks <!-- two --> and <!-- /two -->"):
        markdown.filled(page, {"two": ""})


def test_saving_replaces_numbers_by_id_and_keeps_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    record.save("x", [{"id": "a", "value": 1}, {"id": "b", "value": 2}])
    record.save("x", [{"id": "b", "value": 3}])
    assert json.loads((tmp_path / "x.json").read_text()) == [
        {"id": "a", "value": 1},
        {"id": "b", "value": 3},
    ]
