"""The dataset card says what a dataset is, from where, under which licence, and how good."""

import re
from html import escape
from pathlib import Path

import pytest
import yaml

from rrf import atomic
from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import MergeCfg, MergePartCfg
from rrf.data.conversion.merge import merge
from rrf.data.dataset.layout import NORM_STATS
from rrf.data.dataset.stats import norm_stats
from rrf.data.files import content_digest
from rrf.data.pages.card import judgement, render_card
from rrf.data.pages.dataset_report import markdown_html
from rrf.data.validation.checks import CheckResult, Finding
from rrf.data.validation.summary import DatasetPlace, EpisodeSummary, Summary, read_summary
from rrf.data.validation.validate import JSON_NAME, ValidationReport
from tests.data.conftest import make_cfg
from tests.data.fixtures_lerobot_v2 import write_v2


@pytest.fixture
def root(tmp_path, raw, cfg):
    convert(cfg, raw, tmp_path / "d")
    return tmp_path / "d"


def make_report(*checks, digest="ab12"):
    held = CheckResult("files", "files can be read", "pass")
    return ValidationReport("toy", digest, {}, (held, *checks)).to_dict()


def card_of(root, report=None):
    return render_card(read_summary(root), report)


def section(card, title):
    return card.partition(f"\n## {title}\n\n")[2].partition("\n\n## ")[0]


def front_matter(card):
    return yaml.safe_load(card.split("---\n")[1])


def test_the_card_holds_what_the_dataset_says(root):
    card = card_of(root, make_report())
    assert front_matter(card) == {
        "license": "mit",
        "pretty_name": "toy",
        "task_categories": ["robotics"],
        "tags": ["LeRobot"],
        "configs": [{"config_name": "default", "data_files": "data/*/*.parquet"}],
    }
    assert "# toy\n" in card
    glance = section(card, "At a glance").splitlines()
    assert "| episodes | 5 |" in glance
    assert "| frames | 36 |" in glance
    assert "| duration | 3.6 s |" in glance
    assert "| frames per episode | 5 to 10 |" in glance
    assert "| cameras | front |" in glance
    assert section(card, "Licence") == "MIT."
    assert section(card, "Provenance").startswith("drawn by a test")
    assert "| `action` | float32 | `[3]` | dx, dy, dz | fraction |" in card
    instructions = section(card, "Instructions").splitlines()
    assert instructions[2:] == ["| do the pull | 3 | 21 |", "| do the push | 2 | 15 |"]
    assert 'LeRobotDataset("local/toy", root="datasets/toy")' in section(card, "Use")


def test_statistics_stand_beside_what_is_allowed(root):
    rows = section(card_of(root), "Statistics").splitlines()
    assert rows[0] == "| dimension | min | q01 | mean | q99 | max | std | allowed |"
    (dy,) = [row for row in rows if row.startswith("| `action.dy` |")]
    assert dy.split(" | ")[1] == "-0.04"
    assert dy.endswith("| 0 | 0.01516 | -1 to 1 |")


def test_validation_is_summed_up_with_its_first_findings(root):
    bad = CheckResult(
        "finite",
        "values are finite",
        "fail",
        3,
        (Finding("action.dx", "nan", episode=1, frame=4), Finding("action.dx", "nan", 2, 0)),
    )
    odd = CheckResult("source", "the conversion warned of nothing", "warn", 1, (Finding("x", "y"),))
    text = section(card_of(root, make_report(bad, odd)), "Validation")
    assert text.startswith("**Failed**: 1 of 3 checks hold; warnings: 1, errors: 1.")
    assert "(../reports/toy/validation.html)" in text
    assert "sha256 `ab12`" in text
    assert "- fail: `finite`: values are finite (episode 1, frame 4, `action.dx`: nan, and 2 more)"
    assert "- warn: `source`: the conversion warned of nothing (`x`: y)" in text
    assert section(card_of(root), "Validation") == "There is no validation report on this content."


def test_what_a_foreign_dataset_does_not_say_is_said_to_be_unknown(tmp_path):
    card = card_of(write_v2(tmp_path / "d", {0: 4}, version="v2.0"))
    assert front_matter(card)["license"] == "unknown"
    assert "names no licence" in section(card, "Licence")
    assert "does not say how it came to be" in section(card, "Provenance")
    assert "| format | LeRobot v2.0 |" in card


def test_a_licence_that_is_no_identifier_is_given_as_other(tmp_path, raw):
    convert(make_cfg(licence="MIT AND CC-BY-4.0"), raw, tmp_path / "d")
    head = front_matter(card_of(tmp_path / "d"))
    assert (head["license"], head["license_name"]) == ("other", "MIT AND CC-BY-4.0")


def test_text_of_the_dataset_cannot_break_the_card(tmp_path, raw):
    cfg = make_cfg(provenance="a | b\n# not a title <script>alert(1)</script> *c*")
    convert(cfg, raw, tmp_path / "d")
    card = card_of(tmp_path / "d")
    assert "a \\| b # not a title \\<script>alert(1)\\</script> \\*c\\*" in card
    assert "\n# not a title" not in card


@pytest.mark.parametrize(
    "text",
    [
        "![seen](http://example.org/seen.png) and [a link](http://example.org)",
        "&lt;b&gt; &copy; R&D",
        "# 1",
        "- a list",
        "+ a list",
        "> a quote",
        "---",
        "===",
        "1. put the cup down",
        "2)",
        "put `it` ~~on~~ *the* **table** \\ | <b>now</b>",
        "-3.5",
        "put image_0 into a_b, _now_ and __then__",
    ],
)
def test_text_of_the_dataset_is_shown_as_it_is(text):
    html = markdown_html(render_card(summary_of(text), None))
    shown = escape(text, quote=False)
    assert f"<td>{shown}</td>" in html  # an instruction
    assert f"<p>{shown}</p>" in html  # the provenance
    assert re.findall("<(?:img|a) ", html) == []


def test_a_foreign_provenance_of_any_form_is_shown():
    text = "ours\n```\n![seen](http://example.org)"
    names = summary_of({"name": text, "licence": 3})
    for summary in (summary_of(text), summary_of({"provenance": [text]}), names):
        assert "<img" not in markdown_html(render_card(summary, None))
    assert front_matter(render_card(names, None))["license"] == "3"


def summary_of(provenance):
    """A foreign dataset of one episode, whose instruction is the provenance."""
    info = {"codebase_version": "v2.1", "fps": 10, "features": {}, "provenance": provenance}
    return Summary(Path("d"), info, 10.0, [], [EpisodeSummary(0, 4, str(provenance))], {}, [])


def test_a_merged_dataset_names_its_parts(tmp_path, raw):
    for name, licence in (("one", "MIT"), ("two", "CC-BY-4.0")):
        convert(make_cfg(name=name, licence=licence), raw, tmp_path / name)
    parts = [MergePartCfg(dataset="one", weight=2.0), MergePartCfg(dataset="two")]
    cfg = MergeCfg(name="both", merge=parts, licence="CC-BY-4.0", provenance="one and two")
    merge(cfg, tmp_path, tmp_path / "both")
    text = section(card_of(tmp_path / "both"), "Provenance")
    assert "| one | 2 | MIT | drawn by a test |" in text
    assert "| two | 1 | CC-BY-4.0 | drawn by a test |" in text


def test_the_same_dataset_gives_the_same_card_wherever_it_lies(root, tmp_path):
    report = make_report()
    before = card_of(root, report)
    root.rename(tmp_path / "elsewhere")
    assert card_of(tmp_path / "elsewhere", report) == before


def test_only_a_report_on_this_very_content_counts(root, tmp_path):
    place = DatasetPlace("toy", root, tmp_path / "reports")
    assert judgement(place) is None
    digest = content_digest(root)
    atomic.write_json(tmp_path / "reports" / JSON_NAME, make_report(digest=digest))
    report = judgement(place)
    assert report is not None
    assert (report["passed"], report["digest"]) == (True, digest)
    atomic.write_json(root / NORM_STATS, norm_stats(root))
    (root / "README.md").write_text("card")
    assert judgement(place) is not None
    (root / "meta/stats.json").write_text("{}")
    assert judgement(place) is None
