"""Configs may grow without becoming other runs."""

from rrf.policies.vla.configs import FlowMatchingHeadCfg
from rrf.saved_names import settled, without_added


def test_a_new_field_with_its_first_value_changes_no_digest():
    now = FlowMatchingHeadCfg()
    added = ("num_noise_draws", "start_noise", "trains_padding")
    before = {k: v for k, v in now.to_dict().items() if k not in added}
    assert len(before) == len(now.to_dict()) - 3
    assert settled(before) == now.identity()
    assert without_added({"head": now.to_dict()}) == {"head": before}


def test_a_new_field_with_another_value_is_another_run():
    assert FlowMatchingHeadCfg(num_noise_draws=2).identity() != FlowMatchingHeadCfg().identity()
