"""Training files that do not fit."""

import pytest

from rrf.presets import resolve


@pytest.mark.parametrize("overrides", ["0.9", "[1]", "seed=1"])
def test_overrides_that_are_no_map_are_refused_in_a_line(tmp_path, overrides):
    file = tmp_path / "t.yaml"
    file.write_text(f"preset: cartpole-ppo\noverrides: {overrides}\n")
    with pytest.raises(ValueError, match=r"t\.yaml: overrides is .*, but has a line PATH: VALUE"):
        resolve(str(file))
