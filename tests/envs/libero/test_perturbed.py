"""LIBERO-PRO and LIBERO-Plus: their names, and what differs in their scenes."""

import numpy as np
import pytest

from rrf.envs import ENVS
from rrf.envs.libero.configs import PRO_TASKS, LiberoCfg, LiberoPlusCfg
from rrf.envs.libero.perturbed import in_words, plus_task
from rrf.envs.vec_env import InitialState
from tests.envs.foreign import real

BOWL = "put_the_bowl_on_the_plate"
FAR = f"{BOWL}_view_0_0_181_0_0_initstate_0"
LEANING = f"{BOWL}_view_0_0_100_0_0_initstate_119"
WORDED = f"{BOWL}_language_2_view_0_0_100_0_0_initstate_0"
SHARED = {
    "num_envs": 1, "chunk_length": 1, "image_size": 64, "image_flip": "vertical", "effects": False,
}  # fmt: skip


def test_names_say_what_is_changed():
    assert len(set(PRO_TASKS)) == 160
    pro = LiberoCfg()
    pro.check_initial_state(InitialState(f"{BOWL}@swap", 0, 49))
    with pytest.raises(ValueError, match=f"no LIBERO task '{BOWL}@swop'; did you mean"):
        pro.check_initial_state(InitialState(f"{BOWL}@swop", 0, 0))
    assert pro.instruction(f"{BOWL}@swap") == "put the bowl on the plate"
    said = in_words(f"{BOWL}@task", "Put the wine bottle on the plate")
    assert pro.instruction(said) == "put the wine bottle on the plate"
    assert plus_task(FAR) == (BOWL, None, (0, 0, 181, 0, 0), 0)
    assert plus_task(WORDED) == (BOWL, 2, (0, 0, 100, 0, 0), 0)
    changed = [plus_task(name) for name in (FAR, LEANING, WORDED)]
    assert [each and each.category for each in changed] == ["camera", "robot", "language"]
    nothing, noise = f"{BOWL}_view_0_0_100_0_0_initstate_0", f"{LEANING}_noise_4"
    assert [plus_task(name) for name in (BOWL, nothing, noise)] == [None] * 3


def test_tasks_of_libero_plus_are_known_by_their_form():
    cfg = ENVS.get("libero-plus")()
    assert isinstance(cfg, LiberoPlusCfg)
    for name in (BOWL, FAR, LEANING, WORDED):
        cfg.check_initial_state(InitialState(name, 0, 0))
        assert cfg.instruction(name) == "put the bowl on the plate"
    for name in (f"{LEANING}_noise_4", FAR.replace("bowl", "ball"), f"{BOWL}_light_3"):
        with pytest.raises(ValueError, match="no LIBERO-Plus task"):
            cfg.check_initial_state(InitialState(name, 0, 0))


def begun(cfg, *tasks):
    """What the real simulator shows at the beginning of some tasks."""
    with real.built(cfg) as env:
        return [env.reset([InitialState(task, 1, 0)]) for task in tasks]


@pytest.mark.slow
def test_libero_pro_changes_things_places_words_and_goals():
    tasks = [BOWL, *(f"{BOWL}@{how}" for how in ("object", "swap", "lan", "task"))]
    seen = begun(LiberoCfg(**SHARED), *tasks)
    usual, *others = [each.images["agentview"][0].astype(int) for each in seen]
    things, swapped, *_ = [(np.abs(image - usual).max(2) > 40).mean() for image in others]
    assert min(things, swapped) > 0.05
    assert [each.instruction[0] for each in seen] == [
        *["put the bowl on the plate"] * 3,
        "place the bowl on top of the plate",
        "put the wine bottle on the plate",
    ]


@pytest.mark.slow
def test_libero_plus_changes_view_posture_and_words():
    usual, far, leaning, worded = begun(LiberoPlusCfg(**SHARED), BOWL, FAR, LEANING, WORDED)
    image = usual.images["agentview"][0].astype(int)
    assert (np.abs(far.images["agentview"][0] - image).max(2) > 40).mean() > 0.1
    np.testing.assert_array_equal(far.state, usual.state)
    assert np.abs(leaning.state - usual.state).max() > 0.1
    assert worded.instruction[0].startswith("place the rounded dish used for eating cereal")


@pytest.mark.slow
def test_a_wording_that_libero_plus_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"LIBERO-Plus has no .*_language_999_view.*not among"):
        begun(LiberoPlusCfg(**SHARED), WORDED.replace("language_2", "language_999"))
