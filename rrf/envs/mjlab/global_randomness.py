"""Separate random numbers for code that uses the global generators of torch, NumPy and Python.

Such code runs inside `with randomness:`. Inside the block, the global generators continue from
where the last block left them. Outside, they are as if no block had run. So an environment whose
terms use them depends on its own seed only, and does not affect the random numbers of a learner.
"""

import random
import typing

import numpy as np
import torch


class GlobalRandomness:
    """One stream of random numbers for all global generators."""

    def __init__(self, seed: int, device: torch.device | str = "cpu"):
        device = torch.device(device)
        self._cuda = device if device.type == "cuda" else None
        self._outside: dict[str, typing.Any] | None = None
        outside = self._global_state()
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        self._inside = self._global_state()
        self._set_global_state(outside)

    def __enter__(self) -> None:
        assert self._outside is None, "the blocks must not be nested"
        self._outside = self._global_state()
        self._set_global_state(self._inside)

    def __exit__(self, *_error) -> None:
        self._inside = self._global_state()
        assert self._outside is not None
        self._set_global_state(self._outside)
        self._outside = None

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, typing.Any]]:
        """Tensors and plain values for `load_state`."""
        kind, keys, position, has_gauss, gauss = self._inside["numpy"]
        version, words, spare = self._inside["python"]
        tensors = {"torch": self._inside["torch"], "numpy": torch.from_numpy(keys.astype(np.int64))}
        tensors["python"] = torch.tensor(words, dtype=torch.int64)
        if self._cuda is not None:
            tensors["cuda"] = self._inside["cuda"]
        facts = {"numpy": [kind, int(position), int(has_gauss), float(gauss)]}
        return tensors, facts | {"python": [version, spare]}

    def load_state(
        self, tensors: typing.Mapping[str, torch.Tensor], facts: typing.Mapping[str, typing.Any]
    ) -> None:
        """Restore what `state` returned."""
        kind, position, has_gauss, gauss = facts["numpy"]
        version, spare = facts["python"]
        keys = tensors["numpy"].numpy().astype(np.uint32)
        self._inside = {
            "torch": tensors["torch"].clone(),
            "numpy": (kind, keys, position, has_gauss, gauss),
            "python": (version, tuple(tensors["python"].tolist()), spare),
        }
        if self._cuda is not None:
            self._inside["cuda"] = tensors["cuda"].clone()

    def _global_state(self) -> dict[str, typing.Any]:
        state: dict[str, typing.Any] = {
            "torch": torch.get_rng_state(),
            "numpy": np.random.get_state(),
            "python": random.getstate(),
        }
        if self._cuda is not None:
            state["cuda"] = torch.cuda.get_rng_state(self._cuda)
        return state

    def _set_global_state(self, state: dict[str, typing.Any]) -> None:
        torch.set_rng_state(state["torch"])
        np.random.set_state(state["numpy"])
        random.setstate(state["python"])
        if self._cuda is not None:
            torch.cuda.set_rng_state(state["cuda"], self._cuda)
