"""Published numbers: merged by id, turned into tables, never typed."""

import json

from benchmarks import record, tables


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


def test_saving_replaces_numbers_by_id_and_keeps_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    record.save("x", [{"id": "a", "value": 1}, {"id": "b", "value": 2}])
    record.save("x", [{"id": "b", "value": 3}])
    assert json.loads((tmp_path / "x.json").read_text()) == [
        {"id": "a", "value": 1},
        {"id": "b", "value": 3},
    ]
