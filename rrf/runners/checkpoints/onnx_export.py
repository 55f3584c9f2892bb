"""Export of a state-based policy as a self-contained ONNX file.

The normaliser is part of the file, and the actions are greedy. Inputs and outputs have the names of
rsl_rl and mjlab: "obs" [1, O] (the policy's observation groups joined, as the environment returns
them) and "actions" [1, A]. The memory is an input and an output: "h_in"/"h_out" [L, 1, D] for a
GRU, in addition "c_in"/"c_out" for an LSTM, and "history_in"/"history_out" for a transformer. An
episode begins with zeros. The metadata have the keys and the format of mjlab.

Legend: N observations at once, O observation width, A action width, L layers, D width of a memory.
"""

import math
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from rrf import atomic
from rrf.lookup import require
from rrf.policies.control.sequence_encoder import TransformerEncoder
from rrf.policies.control.world_model import WorldModel

OPSET = 18
TOLERANCE = 1e-5
_NUM_CHECKED, _CHECKED_STEPS = 64, 8


class ExportedActor(nn.Module):
    """An actor as a function of tensors: (obs, memories...) -> (actions, memories...)."""

    def __init__(self, actor):
        super().__init__()
        self.actor = actor
        memory = actor.initial_memory(1)
        self.is_lstm = bool(getattr(actor.memory, "is_lstm", False))
        if memory is None:
            self.memory_names: list[str] = []
        elif isinstance(actor.memory, TransformerEncoder):
            self.memory_names = ["history"]
        else:
            self.memory_names = ["h", "c"] if self.is_lstm else ["h"]

    def forward(self, obs_no: torch.Tensor, *memories: torch.Tensor):
        """Actions [N, A], and the memories after the step."""
        memory = torch.cat(memories) if memories else None
        outputs, memory = self.actor.step(obs_no, memory)
        actions = self.actor.distribution(outputs).mode
        return (actions, *self._parts(memory)) if memories else actions

    def initial_memories(self, num: int) -> tuple[torch.Tensor, ...]:
        """The memories at the beginning of an episode."""
        return self._parts(self.actor.initial_memory(num))

    def _parts(self, memory: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        if memory is None:
            return ()
        return tuple(memory.chunk(2)) if self.is_lstm else (memory,)


def export(
    actor, path: str | Path, metadata: Mapping | None = None, any_batch: bool = False
) -> float:
    """Write `actor` as ONNX, after checking that onnxruntime computes the same actions.

    Args:
        actor: The actor of a `ControlPolicy`.
        path: The file to write.
        metadata: Entries for the file's metadata_props; a list becomes comma-separated text.
        any_batch: Accept any number of observations at once instead of exactly one.

    Returns:
        The largest difference between two actions, over random observations and several steps.

    Raises:
        ImportError: If onnx or onnxruntime is not installed; the message contains the command that
            installs it.
        ValueError: If the results differ by more than `TOLERANCE`, or are not finite. Nothing is
            written then. Also for a policy that plans.
    """
    if isinstance(actor, WorldModel):
        raise ValueError(
            "this policy plans with random numbers, which an ONNX file cannot draw; load it with "
            "rrf.load_policy"
        )
    onnx = require("onnx", extra="onnx")
    require("onnxruntime", extra="onnx")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = atomic.temporary(path)
    exported = ExportedActor(actor).eval()
    try:
        _write(exported, scratch, any_batch)
        model = onnx.load(str(scratch))
        for key, value in (metadata or {}).items():
            model.metadata_props.add(key=key, value=as_text(value))
        onnx.checker.check_model(model)
        content = model.SerializeToString()
    finally:
        scratch.unlink(missing_ok=True)
    difference = largest_difference(exported, content, _NUM_CHECKED if any_batch else 1)
    if math.isnan(difference):
        raise ValueError(f"the actions are not finite numbers; {path} was not written")
    if difference > TOLERANCE:
        raise ValueError(
            f"onnxruntime's actions differ from the policy's by {difference:.2g}, allowed: "
            f"{TOLERANCE:g}; {path} was not written"
        )
    atomic.write_bytes(path, content)
    return difference


def largest_difference(exported: ExportedActor, content: bytes, batch: int) -> float:
    """The largest difference between the actions of torch and of onnxruntime.

    Each of them keeps its own memories. NaN if an action is not finite.
    """
    onnxruntime = require("onnxruntime", extra="onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [f"{name}_in" for name in exported.memory_names]
    generator = torch.Generator().manual_seed(0)
    worst = 0.0
    for _ in range(max(1, _NUM_CHECKED // batch)):
        memories = exported.initial_memories(batch)
        other = [memory.numpy() for memory in memories]
        for _ in range(_CHECKED_STEPS):
            obs = _likely_observations(exported.actor, batch, generator)
            with torch.no_grad():
                result = exported(obs, *memories)
            actions, memories = (result[0], result[1:]) if memories else (result, ())
            fed = {"obs": obs.numpy()} | dict(zip(names, other, strict=True))
            onnx_actions, *other = session.run(None, fed)
            difference = (torch.from_numpy(onnx_actions) - actions).abs().max().item()
            if not math.isfinite(difference):
                return math.nan
            worst = max(worst, difference / max(1.0, actions.abs().max().item()))
    return worst


def as_text(value) -> str:
    """A metadata value in mjlab's format.

    Lists are comma-separated, inner lists are separated by semicolons, and numbers in lists have 3
    decimals. Anything else is converted by `str`.
    """
    if not isinstance(value, (list, tuple)):
        return str(value)
    return ",".join(
        ";".join(map(_item, entry)) if isinstance(entry, (list, tuple)) else _item(entry)
        for entry in value
    )


def _item(value) -> str:
    return f"{value:.3f}" if isinstance(value, (int, float)) else str(value)


def _write(exported: ExportedActor, path: Path, any_batch: bool) -> None:
    names = exported.memory_names
    inputs = ["obs", *(f"{name}_in" for name in names)]
    outputs = ["actions", *(f"{name}_out" for name in names)]
    axes = {}
    if any_batch:
        axes = {name: {1: "N"} for name in [*inputs[1:], *outputs[1:]]}
        axes |= {"obs": {0: "N"}, "actions": {0: "N"}}
    num = 2 if any_batch else 1  # the tracer would treat a size of 1 as a constant
    obs = torch.zeros(num, exported.actor.width)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this is torch's old exporter, which mjlab uses, too
        torch.onnx.export(
            exported,
            (obs, *exported.initial_memories(num)),
            str(path),
            opset_version=OPSET,
            input_names=inputs,
            output_names=outputs,
            dynamic_axes=axes,
            dynamo=False,
        )


def _likely_observations(actor, num: int, generator: torch.Generator) -> torch.Tensor:
    """Random observations, float32 [N, O]; with the normaliser's mean and std, if there is one."""
    obs = torch.randn(num, actor.width, generator=generator)
    normalizer = actor.normalizer
    return normalizer.mean + obs * normalizer.std if normalizer is not None else obs
