"""Networks and their configs, in the style of the example every user sees first."""

import subprocess
import sys

import pytest
import torch

from rrf import algorithms, components, configclass, networks, runners
from rrf.config import trust


@configclass
class MyCloningCfg(runners.SupervisedRunnerCfg):
    seed = 42
    max_steps = 10000
    experiment_name = "my_experiment"
    policy = components.CompactVLACfg(
        trunk=networks.MLPCfg(
            hidden_features=[512, 256, 128], activations=[[("ELU", {})]] * 3 + [[]]
        ),
        head=components.DiscreteTokenHeadCfg(num_bins=11),
    )
    algorithm = algorithms.BehaviorCloningCfg(augmentation=None)


def test_a_config_in_the_style_of_the_example_builds_what_it_says():
    cfg = MyCloningCfg()
    assert (cfg.seed, cfg.max_steps, cfg.experiment_name) == (42, 10000, "my_experiment")
    stats = {"min": [-1.0] * 4, "max": [1.0] * 4, "mean": [0.0] * 4, "std": [1.0] * 4}
    policy = cfg.policy.build({"observation.state": stats, "action": stats})
    widths = [m.out_features for m in policy.trunk.layers if isinstance(m, torch.nn.Linear)]
    assert widths == [512, 256, 128, 256]
    assert sum(isinstance(m, torch.nn.ELU) for m in policy.trunk.layers) == 3
    assert policy.head.output.out_features == 2 * 4 * 11


def test_a_config_in_the_style_of_the_example_survives_yaml():
    trust(MyCloningCfg.__module__)  # as a plugin's configs are
    cfg = MyCloningCfg()
    assert runners.SupervisedRunnerCfg.from_yaml(cfg.to_yaml()) == cfg


def test_a_class_that_does_not_exist_yet_is_answered_with_those_that_do():
    with pytest.raises(AttributeError, match=r"rrf.runners has no 'NovelRunnerCfg'; it has: .*"):
        _ = runners.NovelRunnerCfg
    with pytest.raises(AttributeError, match=r"it has: .*SupervisedRunnerCfg"):
        _ = runners.NovelRunnerCfg


def test_mlp_computes_the_layers_its_config_lists():
    cfg = networks.MLPCfg(hidden_features=[2], activations=[[("ReLU", {})], []])
    mlp = networks.MLP(cfg, in_features=1, out_features=1)
    with torch.no_grad():
        mlp.layers[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        mlp.layers[0].bias.zero_()
        mlp.layers[2].weight.copy_(torch.tensor([[2.0, 3.0]]))
        mlp.layers[2].bias.fill_(0.5)
    # 2 * max(4, 0) + 3 * max(-4, 0) + 0.5, and for -4 the other branch
    assert mlp(torch.tensor([[4.0], [-4.0]])).tolist() == [[8.5], [12.5]]


def test_mlp_needs_activations_for_every_linear_layer():
    with pytest.raises(ValueError, match=r"activations has 2 entries, expected 3"):
        networks.MLPCfg(hidden_features=[8, 8], activations=[[], []])


def test_mlp_names_the_closest_known_layer():
    with pytest.raises(ValueError, match=r"no layer 'ElU'; did you mean 'ELU'"):
        networks.MLPCfg(hidden_features=[], activations=[[("ElU", {})]])


def test_word_order_and_case_do_not_matter_but_words_do():
    cfg = networks.InstructionEncoderCfg(vocabulary=["drawer", "open", "the"], out_features=4)
    encoder = networks.InstructionEncoder(cfg)
    assert encoder.token_ids("Open the drawer.") == [2, 3, 1]
    first, second, other = encoder(["Open the drawer.", "the drawer open", "the drawer"])
    assert torch.allclose(first, second)
    assert not torch.allclose(first, other)


def test_words_outside_the_vocabulary_share_one_vector():
    cfg = networks.InstructionEncoderCfg(vocabulary=["open"], out_features=4)
    encoder = networks.InstructionEncoder(cfg)
    assert encoder.token_ids("open sesame") == [1, 0]
    assert torch.equal(encoder(["sesame"]), encoder(["window"]))
    assert encoder(["sesame"]).abs().sum() == 0


def test_an_instruction_without_words_is_refused():
    encoder = networks.InstructionEncoder(networks.InstructionEncoderCfg(vocabulary=["open"]))
    with pytest.raises(ValueError, match=r"' . ' has no words"):
        encoder([" . "])


def test_a_vocabulary_with_a_doubled_word_is_refused():
    with pytest.raises(ValueError, match=r"'open' more than once"):
        networks.InstructionEncoderCfg(vocabulary=["open", "shut", "open"])


def test_instruction_modulates_the_image_features_once_film_has_learnt():
    cfg = networks.ImageEncoderCfg(channels=[4], kernel_sizes=[3], strides=[2], num_film_layers=1)
    torch.manual_seed(0)
    encoder = networks.ImageEncoder(cfg, (8, 8), text_features=2)
    images = torch.randint(0, 256, (1, 8, 8, 3), dtype=torch.uint8)
    one, other = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    assert torch.equal(encoder(images, one), encoder(images, other))
    torch.nn.init.normal_(encoder.film[0].weight)
    assert not torch.allclose(encoder(images, one), encoder(images, other))


@pytest.mark.slow
def test_printing_a_preset_does_not_import_torch():
    script = (
        "import sys; from rrf.presets import PRESETS, resolve\n"
        "for name in PRESETS: resolve(name).to_yaml()\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
