import json

import pytest

from rrf.data.formats.groot_metadata import (
    PATH,
    EmbodimentData,
    read_metadata,
    write_metadata,
)
from rrf.data.schema import ACTION, STATE

NUMBERS = ("max", "min", "mean", "std", "q01", "q99")
ENTRY = EmbodimentData(
    statistics={
        "state": {
            "arm": {
                number: [10 * row, 10 * row + 1, 10 * row + 2] for row, number in enumerate(NUMBERS)
            },
            "hand": {number: [10 * row + 3, 10 * row + 4] for row, number in enumerate(NUMBERS)},
        },
        "action": {
            "hand": {number: [10 * row + 2] for row, number in enumerate(NUMBERS)},
            "arm": {number: [10 * row, 10 * row + 1] for row, number in enumerate(NUMBERS)},
        },
    },
    modalities={"video": {"front": {"resolution": [64, 48], "channels": 3, "fps": 20.0}}},
)


def norm_stats():
    return {
        key: {
            number: [10 * row + column for column in range(size)]
            for row, number in enumerate(NUMBERS)
        }
        for key, size in ((STATE, 5), (ACTION, 3))
    }


def test_metadata_survives_writing_and_reading(tmp_path):
    write_metadata(tmp_path, {"gr1": ENTRY})
    assert json.loads((tmp_path / PATH).read_text())["gr1"]["embodiment_tag"] == "gr1"
    again = read_metadata(tmp_path, "gr1")
    assert again == ENTRY
    assert again.norm_stats(["arm", "hand"], ["arm", "hand"]) == norm_stats()
    # by default in the order of the file: hand before arm
    assert again.norm_stats()[ACTION]["max"] == [2, 0, 1]


def test_unknown_tags_and_parts_are_refused_with_the_known_ones(tmp_path):
    write_metadata(tmp_path, {"gr1": ENTRY})
    with pytest.raises(ValueError, match="no statistics of embodiment 'gr2', it has: gr1"):
        read_metadata(tmp_path, "gr2")
    with pytest.raises(ValueError, match=r"no statistics of state\.leg, it has: arm, hand"):
        read_metadata(tmp_path, "gr1").norm_stats(["leg"])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"gr1": {}}, "has no mapping 'statistics'"),
        ({"gr1": {"statistics": {}, "modalities": {}}}, "has no mapping 'state'"),
        (
            {
                "gr1": {
                    "statistics": {"state": {"arm": {"max": [1], "min": [0, 1]}}, "action": {}},
                    "modalities": {},
                }
            },
            r"gr1\.state\.arm has the statistics",
        ),
    ],
)
def test_damaged_metadata_is_named(tmp_path, data, message):
    (tmp_path / "experiment_cfg").mkdir()
    (tmp_path / PATH).write_text(json.dumps(data))
    with pytest.raises(ValueError, match=message):
        read_metadata(tmp_path, "gr1")
