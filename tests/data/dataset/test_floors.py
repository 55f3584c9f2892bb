import numpy as np
import pytest

from rrf.data.dataset.floors import FloorsCfg, raised, with_floors
from rrf.data.dataset.stats import describe, plain
from rrf.data.dataset.transforms import Mode, Normalize
from rrf.data.schema import STATE

MODES: tuple[Mode, ...] = ("mean_std", "min_max", "quantile")
RNG = np.random.default_rng(0)


def stats_of(values) -> dict:
    return plain(describe(np.asarray(values, np.float64).reshape(-1, 1)))


def scale(stats: dict, mode: Mode) -> float:
    return Normalize(stats, mode).scale[0]


@pytest.mark.parametrize("mode", MODES)
def test_a_millimetre_beside_a_state_that_only_trembles_stays_small(mode):
    stats = stats_of(0.3 + 1e-8 * RNG.normal(size=2000))
    floored, reasons = raised(stats, FloorsCfg())
    assert scale(stats, mode) < 5e-8  # 1 mm was 20,000 and more
    assert scale(floored, mode) == pytest.approx(0.0003)
    assert list(reasons) == [0]
    assert "about 0.3 and is divided by 0.0003" in reasons[0]


@pytest.mark.parametrize("mode", MODES)
def test_a_finger_that_moves_in_one_of_200_frames_has_a_range(mode):
    finger = np.where(np.arange(2000) % 200 == 0, 0.04, 0.0)
    floored, reasons = raised(stats_of(finger), FloorsCfg())
    moved = Normalize(floored, mode).apply(np.array([[0.04]]))[0, 0]
    assert moved == pytest.approx(14.1 if mode == "mean_std" else 1.0, rel=0.01)
    assert "between 0 and 0 in 98 % of the frames and goes from 0 to 0.04" in reasons[0]
    trembling = finger + 1e-4 * RNG.normal(size=2000)  # its quantiles differ, but by noise alone
    floored, reasons = raised(stats_of(trembling), FloorsCfg())
    assert scale(floored, "quantile") == pytest.approx(0.02, rel=0.05)
    assert list(reasons) == [0]


@pytest.mark.parametrize(
    "values",
    [
        RNG.normal(size=2000),
        RNG.uniform(-0.01, 0.01, 2000),  # metres per step
        np.arange(2000) % 2.0,  # a gripper
        np.where(np.arange(2000) < 60, 1.0, 0.0),  # one that is rarely open
        np.r_[RNG.normal(size=1999), 1000.0],  # an outlier, which quantiles are there for
        np.full(2000, 5.0),
    ],
)
def test_ordinary_dimensions_keep_their_statistics_to_the_last_bit(values):
    stats = stats_of(values)
    floored, reasons = raised(stats, FloorsCfg())
    assert floored == stats
    assert not reasons


def test_a_constant_that_rounding_gave_a_deviation_is_only_shifted():
    stats = stats_of(np.full(1000, 0.3))
    assert 0 < stats["std"][0] < 1e-12
    floored, reasons = raised(stats, FloorsCfg())
    assert Normalize(floored).apply(np.array([[0.301]]))[0, 0] == pytest.approx(0.001)
    assert not reasons


def test_floors_can_be_moved_and_switched_off():
    stats = stats_of(0.3 + 1e-8 * RNG.normal(size=2000))
    assert raised(stats, FloorsCfg(relative=0, absolute=0)) == (stats, {})
    floored, _ = raised(stats, FloorsCfg(relative=0, absolute=0.5))
    assert scale(floored, "min_max") == 0.5
    with pytest.raises(ValueError, match="absolute is -1"):
        FloorsCfg(absolute=-1)


def test_dimensions_are_named_and_other_features_left_alone():
    trembling = stats_of(0.3 + 1e-8 * RNG.normal(size=2000))
    stats = {STATE: trembling, "other": trembling}
    floored, lines = with_floors(stats, FloorsCfg(), {STATE: ("slide",), "absent": ("x",)})
    assert floored["other"] == trembling
    assert floored[STATE] != trembling
    assert [line.split(" has ")[0] for line in lines] == ["observation.state.slide"]
