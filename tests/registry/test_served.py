"""Limits on latency and memory at a promotion: what was stored decides, edited or not."""

import dataclasses
import json
import shutil

import pytest
import yaml

from rrf.evaluation.results import Evaluation
from rrf.evaluation.serving_profile import ServingProfile
from rrf.registry import card_facts, cards, evidence, listing, promotion, registration, rules
from rrf.registry.descriptions import version_text
from rrf.runners.checkpoints.deployable import deployable_digest
from tests.registry.conftest import make_checkpoint, make_evaluation, write_gate

NAME = "policy"
LIMITS = {"serving": {"latency_ms_p95": {"max": 50}}, "hardware": "AMD EPYC*"}


@pytest.fixture
def add(home, run_id):
    """Register a checkpoint that solves all, with a profile of this latency; returns its folder."""
    from rrf.registry.lineage_sources import collect_lineage

    gate = write_gate(home / "configs/gates/g.yaml", **LIMITS)

    def _add(latency_ms: float | None, processor: str = "AMD EPYC 9474F", seed: int = 1):
        checkpoint = make_checkpoint(home / f"checkpoints/{seed}", seed)
        folder = home / f"checkpoints/evaluation-{seed}"
        evaluation = make_evaluation(folder, checkpoint, 20)
        if latency_ms is not None:
            metrics = {"latency_ms_p95": latency_ms, "peak_memory_mb": 812.4}
            digest = deployable_digest(checkpoint)
            evaluation.profile = ServingProfile(
                digest, processor, "", "cpu", 2, 500, metrics, "s", "2026-01-02T03:04:05+00:00"
            )
            evaluation.save(folder / "evaluation.json")
        lineage = collect_lineage("demo")
        registration.register(checkpoint, NAME, run_id, lineage, folder, gate=gate)
        return folder

    return _add


def test_a_slow_policy_and_one_that_was_not_measured_are_not_promoted(add):
    for seed, latency_ms, message in (
        (1, None, r"serving: not measured on 'AMD EPYC\*'; there: rrf profile CHECKPOINT"),
        (2, 50.5, "latency_ms_p95: 50.5 in 500 requests .* asked is at most 50"),
    ):
        add(latency_ms, seed=seed)
        with pytest.raises(promotion.NotPromotedError, match=message):
            promotion.promote(NAME, str(seed))
    add(49.5, seed=3)
    assert promotion.promote(NAME, "3").champion == "3"


@pytest.mark.slow
def test_a_profile_that_comes_later_counts_with_the_evaluation_that_was_there_before(add):
    add(None)
    add(60, processor="Raspberry Pi 5 Model B")
    with pytest.raises(promotion.NotPromotedError, match="only on 'Raspberry Pi 5 Model B, 2 thr"):
        promotion.promote(NAME, "1")
    add(20)
    assert promotion.promote(NAME, "1").champion == "1"


def test_measuring_again_until_it_is_fast_gains_nothing(add):
    add(60)
    add(20)
    with pytest.raises(promotion.NotPromotedError, match="latency_ms_p95: 60 in 500 requests"):
        promotion.promote(NAME, "1")


def test_a_profile_that_was_edited_in_the_store_is_refused(add, client):
    folder = add(60)
    digest = Evaluation.load(folder).digest
    [version] = listing.versions(NAME)
    data = json.loads((folder / "evaluation.json").read_text())
    data["profile"]["metrics"]["latency_ms_p95"] = 20.0
    (folder / "evaluation.json").write_text(json.dumps(data))
    client.log_artifact(version.run_id, str(folder / "evaluation.json"), evidence.place(digest))
    with pytest.raises(ValueError, match=f"registered as {digest[:12]}.*it was replaced"):
        promotion.promote(NAME, "1")
    del data["profile"]
    (folder / "evaluation.json").write_text(json.dumps(data))
    client.log_artifact(version.run_id, str(folder / "evaluation.json"), evidence.place(digest))
    with pytest.raises(ValueError, match=f"registered as {digest[:12]}.*it was replaced"):
        promotion.promote(NAME, "1")


def test_an_evaluation_with_a_missing_file_is_named(add, home, client):
    add(20)
    add(30)
    slower = listing.versions(NAME)[0]
    digest = promotion.ledger_of(NAME).evaluations("1")[0].digest
    [stored] = [p for p in (home / ".rrf").rglob(f"{digest[:12]}/evaluation.json")]
    shutil.rmtree(stored.parent)
    with pytest.raises(
        OSError, match=rf"evaluation/{digest[:12]}/evaluation\.json of run .* cannot"
    ):
        promotion.promote(NAME, slower.version)


def test_people_see_what_was_measured(add, client):
    add(41.26)
    [version] = listing.versions(NAME)
    assert version.tags["evaluation.served.latency_ms_p95"] == "41.26"
    text = version_text(version, [])
    served = "95 of 100 requests in 41.3 ms, 812 MB"
    assert f"- Served on AMD EPYC 9474F, 2 threads: {served}" in text
    card = cards.markdown(card_facts.gather(client, promotion.ledger_of(NAME), version))
    numbers = "latency_ms_p95 41.26, peak_memory_mb 812.4"
    assert f"served policy: {numbers} (500 requests, AMD EPYC 9474F, 2 threads)" in card


def test_the_recorded_gate_keeps_its_limits(add, home):
    add(20)
    gate = rules.gate_of(promotion.ledger_of(NAME))
    assert gate is not None
    assert gate.serving["latency_ms_p95"].max == 50
    file = home / "configs/gates/g.yaml"
    lenient = yaml.safe_load(file.read_text()) | {"serving": {"latency_ms_p95": {"max": 90}}}
    file.write_text(yaml.safe_dump(lenient))
    assert "ruled by" in promotion.other_gate(NAME, file)
    assert dataclasses.asdict(gate.serving["latency_ms_p95"])["max"] == 50
