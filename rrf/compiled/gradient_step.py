"""What the compiled gradient steps share: Adam on the weights and the states that torch keeps."""

import ctypes
import typing
from collections.abc import Sequence

import torch

from rrf.compiled import perceptron
from rrf.compiled.perceptron import Pass, PassGradients
from rrf.precision import Products


class LearnedStruct(ctypes.Structure):
    """`Learned` of gradient_step.c."""

    _fields_: typing.ClassVar = [("count", ctypes.c_long)] + [
        (name, ctypes.c_void_p) for name in ("weights", "mean", "square", "first", "second", "slow")
    ]


class LearnerStruct(ctypes.Structure):
    """`Learner` of gradient_step.c."""

    _fields_: typing.ClassVar = [
        ("count", ctypes.c_long),
        ("tensors", ctypes.POINTER(LearnedStruct)),
        ("step", ctypes.c_long),
        ("rate", ctypes.c_float),
        ("epsilon", ctypes.c_float),
        ("scale", ctypes.c_float),
    ]


class Learning:
    """The weights that an optimizer moves, and the state that it keeps of them."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[torch.Tensor],
        gradients: PassGradients | None = None,
        slow: Sequence[torch.Tensor] | None = None,
        others: Sequence[tuple[torch.Tensor, torch.Tensor]] = (),
    ):
        """
        Args:
            parameters: Weight and bias of each layer.
            slow: Those of the slow copy.
            others: Parameters outside of layers, and the parts of their gradients, [PARTS, ...].
        """
        self.group = optimizer.param_groups[0]
        states = [_state(optimizer, parameter) for parameter in parameters]
        self.steps = [state["step"] for state in states]
        copies = parameters[0].shape[0] if parameters[0].dim() == 3 else 1
        # As in the scratch memory: the last layer first, and of each the weight first.
        order = sorted(range(len(parameters)), key=lambda index: (-(index // 2), index))
        entries = []
        for copy in range(copies):
            second = 0 if gradients is None else gradients.scratch.numel() // copies * copy
            for index in order:
                tensors = [parameters[index], states[index]["exp_avg"], states[index]["exp_avg_sq"]]
                count = parameters[index].numel() // copies
                entry = LearnedStruct(
                    count, *(tensor.data_ptr() + 4 * copy * count for tensor in tensors)
                )
                if gradients is not None:
                    entry.first = gradients.parameters[index].data_ptr() + 4 * copy * count
                    entry.second = gradients.scratch.data_ptr() + 4 * second
                if slow is not None:
                    entry.slow = slow[index].data_ptr() + 4 * copy * count
                entries.append(entry)
                second += count
        for parameter, parts in others:
            state = _state(optimizer, parameter)
            self.steps.append(state["step"])
            tensors = [parameter, state["exp_avg"], state["exp_avg_sq"], *parts]
            addresses = [tensor.data_ptr() for tensor in tensors]
            entries.append(LearnedStruct(parameter.numel(), *addresses))
        self.struct = LearnerStruct(
            count=len(entries),
            tensors=(LearnedStruct * len(entries))(*entries),
            epsilon=self.group["eps"],
            scale=1,
        )

    def next_step(self, steps: int = 1) -> tuple[int, float]:
        """Count `steps` steps; returns the number of the first and the learning rate.

        The count is the optimizer's, which torch raises too when it makes a step in between.
        """
        first = int(self.steps[0]) + 1
        torch._foreach_add_(self.steps, steps)
        return first, self.group["lr"]


def pass_through(network: typing.Any, x: torch.Tensor, products: Products) -> Pass:
    """A pass of an actor or critic from normalised observations. Its backbone is a perceptron that
    the code knows."""
    layers = network.backbone.layers
    activation = perceptron.known_activation(layers, type(layers[0]))
    assert activation is not None, "`acceleration` lets nothing else through"
    return Pass(x, perceptron.parameters(layers), activation, products)


def _state(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> dict:
    """What Adam keeps of a parameter; made as torch makes it if there was no step yet."""
    state = optimizer.state[parameter]
    if not state:
        state["step"] = torch.zeros(())
        state["exp_avg"] = torch.zeros_like(parameter.detach())
        state["exp_avg_sq"] = torch.zeros_like(parameter.detach())
    return state
