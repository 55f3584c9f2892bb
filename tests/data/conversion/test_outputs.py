"""Whoever changes what a stage of dvc.yaml makes raises its version, so that DVC makes it again."""

import json
from pathlib import Path

import pyarrow.parquet as pq

from rrf import atomic
from rrf.data.conversion.checks_cfg import ChecksCfg
from rrf.data.conversion.convert import convert
from rrf.data.dataset import layout, parquet
from rrf.data.validation.validate import validate
from tests.data.conftest import make_cfg, write_raw

DATA = Path(__file__).parents[3] / "rrf/data"
OUTPUTS = json.loads((Path(__file__).parent / "outputs.json").read_text())


def check(room: str, made: object) -> None:
    now = {"version": int((DATA / room / "VERSION").read_text()), "digest": atomic.digest_of(made)}
    assert now == OUTPUTS[room], (
        f"what rrf/data/{room} makes has changed: raise rrf/data/{room}/VERSION, put {now} into "
        "outputs.json, and run: dvc repro"
    )


def test_what_is_made_changes_only_with_its_version(tmp_path):
    """The rows and images that conversion writes, and the checks and the templates of the page that
    validation makes; no statistics, whose last digits depend on the processor.
    """
    raw = write_raw(tmp_path / "raw", {"pull": [8, 6], "push": [5]})
    root = tmp_path / "toy"
    convert(make_cfg(), raw, root)
    tables = [pq.read_table(path).to_pydict() for path in parquet.data_files(root)]
    check("conversion", [layout.read_info(root), parquet.read_tasks(root), str(tables)])
    report = validate("toy", root, ChecksCfg(), tmp_path / "reports").to_dict()
    checks = [[c["check"], c["title"], c["status"]] for c in report["checks"]]
    templates = [
        DATA / "validation/validation.html",
        *sorted((DATA.parent / "pages").glob("*.html")),
    ]
    check("validation", [checks, [template.read_text() for template in templates]])
