"""The record of a lineage: as plain data, as facts of all datasets together, and as tags."""

import json

import pytest

from rrf.lineage import DatasetLineage, EnvironmentLineage, Lineage, facts_in, lacking

DEMO = DatasetLineage("demo", md5="12.dir", validation="passed", pushed=True, num_frames=91)
LAB = DatasetLineage("lab", md5="34.dir", validation="failed", pushed=False, num_frames=9)
WHOLE = Lineage(
    (DEMO, LAB),
    EnvironmentLineage("Pendulum-v1", "56", {"gymnasium": "1.0"}),
    git_revision="ab",
    git_dirty=False,
    published={"name": "pi0", "commit": None},
    recorded=({"beta": 0.5},),
    missing=("card: there is no card",),
)


def test_a_lineage_is_the_same_after_a_way_through_json():
    data = json.loads(json.dumps(WHOLE.to_dict()))
    assert data == WHOLE.to_dict()
    assert data["datasets"][0] == {
        "name": "demo",
        "md5": "12.dir",
        "validation": "passed",
        "pushed": True,
        "num_frames": 91,
    }
    assert Lineage.from_dict(data) == WHOLE
    assert Lineage().to_dict() == {}


def test_a_key_of_another_version_is_refused_with_the_file_that_has_it():
    with pytest.raises(ValueError, match=r"manifest.json cannot be read .*'colour'"):
        Lineage.from_dict({"colour": "red"}, "manifest.json")
    with pytest.raises(ValueError, match="'hue'"):
        Lineage.from_dict({"datasets": [{"name": "demo", "hue": 1}]})


def test_facts_describe_all_datasets_together_and_leave_out_what_one_lacks():
    facts = WHOLE.facts()
    assert facts["dataset"] == "demo, lab"
    assert facts["dataset_md5"] == "12.dir, 34.dir"
    assert facts["validation"] == "passed, failed"
    assert facts["num_frames"] == 100
    assert facts["data_pushed"] is False
    assert facts["environment.packages.gymnasium"] == "1.0"
    assert "published.commit" not in facts
    absent = WHOLE.replace(datasets=(DEMO, DatasetLineage("absent")))
    assert not {"dataset_md5", "num_frames", "validation"} & absent.facts().keys()


def test_tags_hold_the_facts_as_text():
    tags = WHOLE.tags()
    assert tags["lineage.git_dirty"] == "false"
    assert tags["lineage.num_frames"] == "100"
    assert json.loads(tags["lineage.missing"]) == ["card: there is no card"]
    assert facts_in({"training.seed": "1"} | tags)["validation"] == "passed, failed"


def test_a_promotion_needs_a_dataset_or_an_environment_and_the_code():
    assert lacking(WHOLE.facts()) == []
    assert lacking(Lineage((DEMO,)).facts()) == ["git_revision"]
    assert lacking(Lineage().facts()) == ["dataset_md5", "git_revision", "validation"]
    environment = Lineage(environment=EnvironmentLineage("Pendulum-v1"), git_revision="ab")
    assert lacking(environment.facts()) == ["environment.config_digest"]


def test_the_card_of_one_of_several_datasets_has_a_folder_of_its_own():
    assert DEMO.card_place(Lineage((DEMO,))) == "dataset/README.md"
    assert DatasetLineage("s3://robots/lab").card_place(WHOLE) == "dataset/lab/README.md"
    assert (DEMO.path, DatasetLineage("s3://robots/lab").path) == (
        *("datasets/demo", "s3://robots/lab"),
    )
