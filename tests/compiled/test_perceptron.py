"""The compiled perceptrons against torch's operators. Shapes are drawn by a seed."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from rrf.compiled import perceptron
from rrf.networks.batched_mlp import BatchedMLP
from rrf.networks.configs import plain_mlp
from rrf.networks.mlp import MLP
from rrf.precision import allowing_compiled

needs_compiler = pytest.mark.skipif(
    perceptron.library() is None, reason="this machine has no C compiler"
)
_SIZES = (1, 2, 5, 6, 7, 15, 16, 17, 33, 64, 65, 70, 128, 129, 200, 256)


@pytest.fixture(params=range(12))
def case(request):
    """A network of drawn widths, and inputs for it."""
    torch.manual_seed(request.param)

    def size() -> int:
        return _SIZES[int(torch.randint(len(_SIZES), ()))]

    name = {2: "Tanh", 3: "Tanh", 5: "ELU", 6: "ELU", 7: "Tanh"}.get(request.param, "ReLU")
    cfg = plain_mlp([size() for _ in range(request.param % 4)], name)
    rows, width, outputs = size() + size(), size(), size()
    if request.param % 3 == 0:
        return MLP(cfg, width, outputs), torch.randn(rows, width)
    copies = 1 + request.param // 3
    shape = (rows, width) if request.param % 3 == 1 else (copies, rows, width)
    return BatchedMLP(cfg, copies, width, outputs), torch.randn(shape)


def everything(network: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Outputs, and the gradients of the inputs and of all parameters."""
    x = x.clone().requires_grad_()
    outputs = network(x)
    weights = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0))
    gradients = torch.autograd.grad((outputs * weights).sum(), [x, *network.parameters()])
    return [outputs.detach(), *gradients]


def distance(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The error of all tensors together, relative to their norm."""
    a, b = (torch.cat([one.flatten() for one in every]) for every in (found, expected))
    return ((a - b).norm() / b.norm()).item()


@needs_compiler
def test_equals_torch(case):
    network, x = case
    with allowing_compiled("fp32"):
        found = everything(network, x)
    assert distance(found, everything(network, x)) < 1e-6


@needs_compiler
def test_bfloat16_is_as_exact_as_that_of_torch(case):
    network, x = case
    expected = everything(network, x)
    with torch.autocast("cpu", torch.bfloat16):
        of_torch = everything(network, x)
    with allowing_compiled("bf16"):
        found = everything(network, x)
    assert distance(found, expected) < 2 * distance(of_torch, expected) + 1e-6


@needs_compiler
def test_the_number_of_threads_changes_no_bit(case, monkeypatch):
    network, x = case
    for products in ("fp32", "bf16"):
        found = []
        for threads in (1, 2, 3):
            monkeypatch.setattr(perceptron, "num_threads", lambda threads=threads: threads)
            with allowing_compiled(products):
                found.append(everything(network, x))
        for one in found[1:]:
            assert all(torch.equal(a, b) for a, b in zip(one, found[0], strict=True))


@needs_compiler
def test_weights_without_gradient_get_none():
    network = MLP(plain_mlp([16, 16], "ReLU"), 3, 2).requires_grad_(False)
    x = torch.randn(9, 3, requires_grad=True)
    with allowing_compiled("fp32"):
        found = torch.autograd.grad(network(x).sum(), x)[0]
    assert torch.allclose(found, torch.autograd.grad(network(x).sum(), x)[0], atol=1e-6)
    assert all(weight.grad is None for weight in network.parameters())


@needs_compiler
def test_sequences_of_rows():
    network, x = MLP(plain_mlp([16], "ReLU"), 3, 2), torch.randn(4, 5, 3)
    with allowing_compiled("fp32"):
        found = network(x)
    assert found.shape == (4, 5, 2)
    assert torch.allclose(found, network(x), atol=1e-6)


@needs_compiler
@pytest.mark.parametrize("products", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("activation", "bad"), [("ReLU", "nan"), ("ReLU", "inf"), ("Tanh", "nan"), ("ELU", "nan")]
)
def test_a_diverged_network_shows(products, activation, bad):
    network, x = MLP(plain_mlp([32, 32], activation), 3, 2), torch.randn(9, 3)
    x[4, 1] = float(bad)
    with allowing_compiled(products):
        found = network(x)
    assert not found[4].isfinite().all()
    assert found[:4].isfinite().all()


@needs_compiler
@pytest.mark.parametrize("name", ["ReLU", "Tanh", "ELU"])
def test_activations_everywhere(name):
    network = MLP(plain_mlp([1], name), 1, 1).requires_grad_(False)
    for parameter, value in zip(network.parameters(), (1.0, 0.0, 1.0, 0.0), strict=True):
        parameter.fill_(value)
    whole = torch.linspace(-120, 120, 240_001).unsqueeze(-1)
    x = torch.cat([whole, whole * 1e-6, torch.tensor([[float("inf")], [-float("inf")], [3e38]])])
    with allowing_compiled("fp32"):
        found = network(x)
    torch.testing.assert_close(found.double(), getattr(nn, name)()(x.double()), atol=2e-7, rtol=0)


@needs_compiler
def test_is_used_only_where_it_may_be(monkeypatch):
    calls = []
    monkeypatch.setattr(perceptron, "perceptron", lambda _, x, *__: calls.append(x) or x[..., :2])
    relu, x = MLP(plain_mlp([8], "ReLU"), 3, 2), torch.randn(6, 3)
    relu(x)
    with allowing_compiled("fp32"):
        MLP(plain_mlp([8], "GELU"), 3, 2)(x)
        relu.double()(x.double())
        relu.float()(x[:0])
        assert not calls
        relu(x)
    relu(x)
    assert len(calls) == 1


class Doubled(nn.Linear):
    def forward(self, input):
        return 2 * super().forward(input)


class Halved(nn.ReLU):
    def forward(self, input):
        return super().forward(input) / 2


def with_a_layer(place: int, layer: nn.Module) -> MLP:
    network = MLP(plain_mlp([8], "ReLU"), 3, 2)
    network.layers[place] = layer
    return network


def with_a_hook() -> MLP:
    network = MLP(plain_mlp([8], "ReLU"), 3, 2)
    network.layers[0].register_forward_hook(lambda *call: 3 * call[-1])
    return network


def with_a_parametrisation() -> MLP:
    network = MLP(plain_mlp([8], "ReLU"), 3, 2)
    torch.nn.utils.parametrizations.spectral_norm(network.layers[0])
    return network


@needs_compiler
@pytest.mark.parametrize(
    "made",
    [
        lambda: with_a_layer(0, Doubled(3, 8)),
        lambda: with_a_layer(2, Doubled(8, 2)),
        lambda: with_a_layer(1, Halved()),
        lambda: with_a_layer(1, nn.ELU(alpha=0.5)),
        with_a_hook,
        with_a_parametrisation,
    ],
)
def test_a_layer_of_somebody_elses_computes_itself(made):
    torch.manual_seed(0)
    network, x = made().eval(), torch.randn(6, 3)
    with allowing_compiled("fp32"):
        found = everything(network, x)
    expected = everything(network, x)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@needs_compiler
def test_cannot_be_differentiated_twice():
    network, x = MLP(plain_mlp([8], "ReLU"), 3, 2), torch.randn(6, 3, requires_grad=True)
    with allowing_compiled("fp32"):
        slope = torch.autograd.grad(network(x).sum(), x, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="does not require grad"):
        slope.square().sum().backward()


@needs_compiler
def test_weights_that_changed_before_the_gradient_are_an_error():
    network, x = MLP(plain_mlp([8], "ReLU"), 3, 2), torch.randn(6, 3)
    with allowing_compiled("fp32"):
        loss = network(x).sum()
    with torch.no_grad():
        next(network.parameters()).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


_SCRIPT = """
import torch
from rrf.compiled import perceptron
from rrf.networks.configs import plain_mlp
from rrf.networks.mlp import MLP
from rrf.precision import allowing_compiled
with allowing_compiled("fp32"):
    outputs = MLP(plain_mlp([8], "ReLU"), 3, 2)(torch.ones(4, 3))
print(len(outputs), perceptron.library() is None)
"""


def _script(cache, **variables) -> str:
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)} | variables
    words = [sys.executable, "-c", _SCRIPT]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_without_a_compiler_torch_computes(tmp_path):
    assert _script(tmp_path, CC="/nonexistent/cc") == "4 True\n"


@pytest.mark.slow
@needs_compiler
def test_code_from_a_folder_of_others_is_not_loaded(tmp_path):
    assert _script(tmp_path) == "4 False\n"
    (compiled,) = (tmp_path / "rrf").iterdir()
    assert compiled.suffix == ".so"
    (tmp_path / "rrf").chmod(0o777)
    assert _script(tmp_path) == "4 True\n"
