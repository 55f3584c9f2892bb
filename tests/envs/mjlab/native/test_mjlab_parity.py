"""Every term of the native backend has the value mjlab's own has, on the same states.

mjlab's environment runs on Warp's CPU device (`mjlab_twin`). Contact forces come out of two
constraint solvers that stop after ten iterations, so they agree nearly always, not always; where
height fields are touched the two engines also find other contact points, and forces are not
compared. Images of cameras are compared pixel by pixel.
"""

import collections

import pytest
import torch

pytest.importorskip("mjlab")

from tests.envs.mjlab.native.mjlab_twin import Twins, make_twins, observation_terms, other_terms
from tests.envs.mjlab.native.standing_motion import write_standing_motion

FORCE_TERMS = (
    "critic/foot_contact_forces", "reward/soft_landing", "reward/self_collisions",
    "reward/shank_collision", "reward/trunk_head_collision",
)  # fmt: skip
SLOW = pytest.mark.slow
NUM_STEPS = 105
ENOUGH_FOR_RESETS = 25


@pytest.mark.parametrize(
    ("task", "num_envs", "num_steps"),
    [
        pytest.param("Mjlab-Velocity-Flat-Unitree-Go1", 4, ENOUGH_FOR_RESETS, marks=SLOW),
        ("Mjlab-Cartpole-Balance", 16, ENOUGH_FOR_RESETS),
        pytest.param("Mjlab-Cartpole-Balance", 16, NUM_STEPS, marks=SLOW),
        pytest.param("Mjlab-Velocity-Flat-Unitree-Go1", 16, NUM_STEPS, marks=SLOW),
        pytest.param("Mjlab-Velocity-Flat-Unitree-G1", 8, NUM_STEPS, marks=SLOW),
        pytest.param("Mjlab-Velocity-Rough-Unitree-Go1", 10, NUM_STEPS, marks=SLOW),
        pytest.param("Mjlab-Velocity-Rough-Unitree-G1", 10, NUM_STEPS, marks=SLOW),
        pytest.param("Mjlab-Tracking-Flat-Unitree-G1", 8, NUM_STEPS, marks=SLOW),
        pytest.param("Mjlab-Lift-Cube-Yam", 8, NUM_STEPS, marks=SLOW),
        pytest.param("Mjlab-Lift-Cube-Yam-Depth", 8, NUM_STEPS, marks=SLOW),
        pytest.param("Mjlab-Lift-Cube-Yam-Rgb", 8, NUM_STEPS, marks=SLOW),
        pytest.param("Mjlab-Multi-Cube-Seg-Yam", 8, NUM_STEPS, marks=SLOW),
        pytest.param("Mjlab-Cartpole-Swingup", 16, NUM_STEPS, marks=SLOW),
    ],
)
def test_terms_have_the_values_they_have_in_mjlab(task, num_envs, num_steps, tmp_path):
    overrides = {}
    if "Tracking" in task:
        write_standing_motion(tmp_path / "motion.npz", num_frames=30)
        overrides["commands.motion.motion_file"] = str(tmp_path / "motion.npz")
    twins = make_twins(task, num_envs, overrides)
    try:
        check_randomised_models(twins)
        num_ended = check_steps(twins, num_steps)
        assert num_ended >= 3, "resets were part of the comparison"
    finally:
        twins.close()


def check_randomised_models(twins: Twins) -> None:
    """Startup and reset events drew the same numbers, and constants were recomputed alike."""
    native, mjlab = twins.native.env.sim, twins.mjlab.env.sim
    for field, ours in native.model.expanded.items():
        if ours.numel():
            theirs = getattr(mjlab.model, field)[:]
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6, msg=field)
    for field in ("qpos", "qvel", "ctrl"):
        ours, theirs = getattr(native.data, field), getattr(mjlab.data, field)[:]
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6, msg=field)


def check_steps(twins: Twins, num_steps: int) -> int:
    """Step both with the same actions and compare all terms; how many episodes ended."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(0, 900, (twins.native.num_envs,), generator=generator)
    lengths[:3] = twins.native.max_episode_length - torch.tensor([5, 12, 20])
    twins.native.episode_length_buf = twins.mjlab.episode_length_buf = lengths
    forces: dict[str, list[torch.Tensor]] = collections.defaultdict(list)
    num_ended = 0
    for step in range(num_steps):
        actions = 0.6 * torch.randn(
            twins.native.num_envs, twins.native.num_actions, generator=generator
        )
        ours, theirs = twins.step(actions)
        where = f"step {step}"
        assert torch.equal(ours[2], theirs[2]), where
        assert torch.equal(ours[3]["time_outs"], theirs[3]["time_outs"]), where
        compare_log(ours[3]["log"], theirs[3]["log"], where)
        num_ended += int(ours[2].sum())
        compare_ends(twins, ours[3]["final_obs"], theirs[3]["final_obs"], where)
        found = observation_terms(twins.native, ours[0]) | other_terms(twins.native)
        expected = observation_terms(twins.mjlab, theirs[0]) | other_terms(twins.mjlab)
        assert found.keys() == expected.keys()
        for name, value in found.items():
            if name.startswith("camera/"):
                assert_pixels(value, expected[name], f"{name}, {where}")
            elif name in FORCE_TERMS:
                rows = without_height_field(twins)
                forces[name].append((value - expected[name])[rows].abs().flatten())
            else:
                torch.testing.assert_close(
                    value, expected[name], rtol=1e-5, atol=1e-5, msg=f"{name}, {where}"
                )
    for name, differences in forces.items():
        share = (torch.cat(differences) > 0.02).float().mean()
        assert share <= 0.01, f"{name} differs in {float(share):.1%} of its values"
    return num_ended


def compare_ends(twins: Twins, ours, theirs, where: str) -> None:
    assert (ours is None) == (theirs is None), where
    if ours is None:
        return
    found, expected = observation_terms(twins.native, ours), observation_terms(twins.mjlab, theirs)
    for name, value in found.items():
        if name.startswith("camera/"):
            assert_pixels(value, expected[name], f"end {name}, {where}")
        elif name not in FORCE_TERMS:
            torch.testing.assert_close(
                value, expected[name], rtol=1e-5, atol=1e-5, msg=f"end {name}, {where}"
            )


def assert_pixels(ours: torch.Tensor, theirs: torch.Tensor, where: str) -> None:
    """Poses are rounded to float32, so an edge may fall into the next pixel."""
    share = ((ours - theirs).abs() > 0.005).float().mean()
    assert share <= 0.005, f"{where}: {float(share):.1%} of the pixels differ"


def compare_log(ours: dict, theirs: dict, where: str) -> None:
    """What mjlab logs of ended episodes: sums of terms, curricula, terminations."""
    assert ours.keys() == theirs.keys(), where
    for name, value in ours.items():
        if not any(word in name for word in ("landing", "collision", "env/diverged")):
            assert float(value) == pytest.approx(float(theirs[name]), rel=1e-4, abs=1e-5), name


def without_height_field(twins: Twins) -> torch.Tensor:
    """bool [N]: environments on ground made of planes and boxes."""
    terrain = twins.native.env.scene.terrain
    if terrain.cfg.terrain_generator is None:
        return torch.ones(twins.native.num_envs, dtype=torch.bool)
    kinds = terrain.cfg.terrain_generator.sub_terrains.values()
    is_field = torch.tensor([type(kind).__name__.startswith("Hf") for kind in kinds])
    assert is_field.any()
    assert not is_field.all()
    return ~is_field[terrain.terrain_types]
