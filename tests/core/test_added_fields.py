"""Configs may grow without becoming other runs."""

from rrf.policies.vla.configs import FlowMatchingHeadCfg
from rrf.saved_names import settled, without_added


def test_a_new_field_with_its_first_value_changes_no_digest():
    now = FlowMatchingHeadCfg()
    before = {
        k: v for k, v in now.to_dict().items() if k not in ("num_noise_draws", "trains_padding")
    }
    assert len(before) == len(now.to_dict()) - 2
    assert settled(before) == now.identity()
    assert without_added({"head": now.to_dict()}) == {"head": before}


def test_a_new_field_with_another_value_is_another_run():
    assert FlowMatchingHeadCfg(num_noise_draws=2).identity() != FlowMatchingHeadCfg().identity()
