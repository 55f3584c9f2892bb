"""When two results of float32 arithmetic count as equal.

Processors and libraries add up sums in another order and approximate exp, tanh and erf in another
way. What this changes follows the magnitude of the numbers that went into a sum, and not that of a
sum that came out small. The unit of a tolerance is therefore an ulp (unit in the last place) of the
largest expected number, 2^-23 of it.

The default is 16 of them. Measured on what this repository compares with other projects' numbers,
with seven sets of instructions and BLAS (AVX-512, AVX2 and none in torch; MKL's AVX-512 and its
bit-compatible code; oneDNN held at SSE4.1): up to 10, and most of them up to 3, behind 20 matrix
products, too. A result further away says at its place why, with the `ulps` that it needs, or with
the `scale` of the numbers that cancelled.
"""

import typing

import numpy as np
import torch

ULP = 2.0**-23
FLOOR = 1e-7
"""What is always allowed: about an ulp of 1, for results that should be 0."""

Numbers = torch.Tensor | np.ndarray | float | typing.Sequence[float]


def tolerance(expected: Numbers, ulps: float = 16, scale: Numbers | None = None) -> float:
    """How far from `expected` a number may be.

    Args:
        expected: What is compared with.
        ulps: Units in the last place of the largest number.
        scale: The numbers that were added up, where they are larger than the sums of them.
    """
    largest = 0.0
    for numbers in (expected, scale if scale is not None else 0.0):
        sizes = torch.as_tensor(numbers).detach().double().abs()
        sizes = sizes[sizes.isfinite()]
        if sizes.numel():
            largest = max(largest, sizes.max().item())
    return ulps * ULP * largest + FLOOR


def assert_close(
    actual: Numbers, expected: Numbers, ulps: float = 16, scale: Numbers | None = None
) -> None:
    """Fail unless shapes are equal and all numbers within the `tolerance`."""
    allowed = tolerance(expected, ulps, scale)
    if not (isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor)):
        actual, expected = (torch.as_tensor(x).double() for x in (actual, expected))
    torch.testing.assert_close(actual, expected, atol=allowed, rtol=0)
