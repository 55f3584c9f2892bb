"""The probabilistic ensemble against mbrl-lib's, on its weights and inputs."""

import pytest
import torch

from rrf.algorithms.model_based.configs import EnsembleCfg
from rrf.algorithms.model_based.ensemble import Ensemble, gaussian_nll
from rrf.networks.configs import plain_mlp
from tests.closeness import assert_close
from tests.golden_files import activation, cases, golden

FILE = "mbrl_pets_ensemble.npz"
_KINDS = ("weight", "bias")


@pytest.fixture(params=cases(FILE, r"pets\d*"))
def case(request):
    return golden(FILE, request.param)


def named(arrays: dict, prefix: str, num_layers: int) -> dict[str, torch.Tensor]:
    """Their arrays under `prefix`, by the names of our parameters, as far as they are there."""
    theirs = [f"hidden_layers.{layer}.0" for layer in range(num_layers)] + ["mean_and_logvar"]
    names = {f"{name}.{kind}": (2 * i, kind) for i, name in enumerate(theirs) for kind in _KINDS}
    found = {
        f"network.layers.{layer}.{kind}": arrays[f"{prefix}.{name}"]
        for name, (layer, kind) in names.items()
        if f"{prefix}.{name}" in arrays
    }
    for bound in ("min", "max"):
        if f"{prefix}.{bound}_logvar" in arrays:
            found[f"{bound}_log_var"] = arrays[f"{prefix}.{bound}_logvar"]
    return found


def build(config: dict, arrays: dict) -> Ensemble:
    hidden = [config["hid_size"]] * config["num_layers"]
    members = config["ensemble_size"]
    cfg = EnsembleCfg(
        num_members=members,
        num_elites=members,
        network_cfg=plain_mlp(hidden, activation(config["activation"])),
        weight_decays=[0.0] * (len(hidden) + 1),
    )
    ensemble = Ensemble(cfg, config["in_size"], config["out_size"])
    weights = named(arrays, "params", config["num_layers"])
    assert weights.keys() == dict(ensemble.named_parameters()).keys()
    ensemble.load_state_dict(weights, strict=False)  # the standardisers stay neutral
    return ensemble


def test_means_variances_and_likelihoods(case):
    config, arrays = case
    mean, log_var, flag = build(config, arrays)(arrays["x"])
    assert_close(mean, arrays["mean"])
    assert_close(log_var, arrays["logvar"])
    assert_close(gaussian_nll(mean, log_var, arrays["target"]), arrays["nll_elementwise"])
    assert flag is None


def test_loss_and_gradients(case):
    config, arrays = case
    ensemble = build(config, arrays)
    loss = ensemble.loss(arrays["x"], arrays["target"])
    assert_close(loss, arrays["loss"])
    loss.backward()
    expected = named(arrays, "grads", config["num_layers"])
    assert expected
    for name, parameter in ensemble.named_parameters():
        if name in expected:
            assert parameter.grad is not None
            assert_close(parameter.grad, expected[name])


def test_held_out_errors(case):
    config, arrays = case
    errors = build(config, arrays).errors(arrays["x2"], arrays["target2"])
    assert_close(errors, arrays["eval_score"].mean((1, 2)))
