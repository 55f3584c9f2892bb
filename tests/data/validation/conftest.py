"""A good dataset of five episodes, and what tests do to it and ask of its report."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rrf.data.conversion.checks_cfg import ChecksCfg, LimitsCfg
from rrf.data.conversion.convert import convert
from rrf.data.dataset import layout
from rrf.data.images import encode_png
from rrf.data.validation.validate import validate
from tests.data.conftest import SIZE, edit_column, edit_table, make_cfg, write_raw

IMAGES = "observation.images.front"
BLACK = encode_png(np.zeros((1, SIZE, SIZE, 3), np.uint8))[0]


@pytest.fixture(scope="session")
def pristine(tmp_path_factory):
    """Five good episodes: rows 0..7, 8..13, 14..20 of one task, 21..25, 26..35 of the other."""
    folder = tmp_path_factory.mktemp("pristine")
    raw = write_raw(folder / "raw", {"pull": [8, 6, 7], "push": [5, 10]})
    for storage in ("image", "video"):
        convert(make_cfg(storage=storage), raw, folder / storage)
    return folder


@pytest.fixture
def root(pristine, tmp_path):
    shutil.copytree(pristine / "image", tmp_path / "d")
    return tmp_path / "d"


def run(root, limits=LimitsCfg(), **severity):
    levels: dict = {"constant_dimensions": "off"} | severity  # the drawn gripper never moves
    cfg = ChecksCfg(severity=levels, limits=limits)
    return validate("toy", root, cfg, root.parent / "reports")


def findings(report, status="fail"):
    return {
        (check.check, str(finding))
        for check in report.checks
        if check.status == status
        for finding in check.findings
    }


def nan_action(root):
    row = pq.read_table(root / "data/chunk-000/file-000.parquet")["action"][10].as_py()
    edit_column(root, "action", {10: [row[0], float("nan"), row[2]]})


def edit_info(root, **changes):
    path = root / layout.INFO
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_episode_table(root, column, row, value):
    def change(table):
        values = table[column].to_pylist()
        values[row] = value
        index = table.schema.get_field_index(column)
        return table.set_column(index, column, pa.array(values, table.schema.field(column).type))

    edit_table(root / "meta/episodes/chunk-000/file-000.parquet", change)
