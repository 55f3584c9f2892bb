"""Recordings of robots train from end to end and say more of held-out episodes than their mean."""

from pathlib import Path

import pytest

from rrf import workspace
from rrf.evaluation.candidate import candidate_at
from rrf.evaluation.open_loop.errors import MEAN, POLICY, evaluate_held_out
from rrf.presets import resolve


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "steps", "share"),
    [("bridge-sft-laptop", 400, 0.97), ("gr1-sft-laptop", 60, 0.8), ("g1-sft-laptop", 60, 0.85)],
)
def test_a_policy_beats_the_mean_action_on_held_out_episodes(preset, steps, share, tmp_path):
    cfg = resolve(preset, {"max_steps": steps, "trackers": []})
    place = workspace.dataset(cfg.dataset)
    if not (place / "meta" / "info.json").is_file():
        pytest.skip(f"no {place}; `dvc --cd infra/recordings repro` makes it of ../shared/data")
    result = cfg.build(tmp_path).run()
    errors, episodes = evaluate_held_out(candidate_at(Path(result["checkpoint"]), preset), place)
    assert episodes
    assert errors.total(POLICY) < share * errors.total(MEAN)
