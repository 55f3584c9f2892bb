import math

import pytest
import torch

from rrf.evaluation.control.metrics import motion_distance
from rrf.evaluation.protocols.files import load_protocol
from rrf.presets import resolve


def column(*numbers):
    return torch.tensor(numbers).unsqueeze(-1)


def test_a_piece_of_the_reference_has_no_distance_wherever_it_begins():
    reference = column(0.0, 1.0, 2.0, 3.0, 4.0)
    assert motion_distance(column(2.0, 3.0, 1.0, 2.0), [reference], 2) == 0.0


def test_the_order_of_postures_counts():
    # Backwards, the nearest piece to (3, 2) is (2, 3): both frames differ by 1.
    assert motion_distance(column(3.0, 2.0), [column(0.0, 1.0, 2.0, 3.0)], 2) == pytest.approx(1.0)


def test_the_nearest_of_several_references_counts_and_pieces_are_averaged():
    references = [column(0.0, 0.0), column(10.0, 10.0)]
    # (9, 10) is 1 and 0 off: sqrt(1 / 2); (1, 1) is 1 off. The fifth frame fills no piece.
    got = motion_distance(column(9.0, 10.0, 1.0, 1.0, 5.0), references, 2)
    assert got == pytest.approx((math.sqrt(0.5) + 1) / 2)


def test_joints_are_averaged():
    got = motion_distance(torch.tensor([[3.0, 4.0]]), [torch.zeros(1, 2)], 1)
    assert got == pytest.approx(math.sqrt(12.5))


def test_short_motions_have_none_and_short_references_are_refused():
    assert motion_distance(column(1.0), [column(1.0, 2.0)], 2) is None
    with pytest.raises(ValueError, match="no reference motion has 2 frames"):
        motion_distance(column(1.0, 2.0), [column(1.0)], 2)


def test_policies_with_clips_and_those_without_have_one_protocol_each():
    with_clips, without = resolve("go1-flat-amp").to_dict(), resolve("go1-flat-ppo").to_dict()
    for name, about in (("go1-flat-motion", [True, False]), ("go1-flat", [False, True])):
        protocol = load_protocol(f"configs/protocols/{name}.yaml")
        assert [protocol.is_about(with_clips), protocol.is_about(without)] == about
