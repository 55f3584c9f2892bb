"""How far a motion is from a reference: the distance to the nearest piece of it.

A motion is cut into pieces of `window` frames. The distance of a piece is the root mean square
difference of the joint positions, over all joints and frames, from the most similar piece of any
reference that begins at any frame. The distance of the motion is the mean over its pieces. A piece
holds an order of postures, so a wrong rhythm counts as well as a wrong posture; the phase of a gait
does not.

Legend: T frames, J joints, W frames of a piece, P pieces, R pieces of references.
"""

from collections.abc import Sequence

import torch

WINDOW_S = 0.2


def motion_distance(
    poses_tj: torch.Tensor, references: Sequence[torch.Tensor], window: int
) -> float | None:
    """The distance in rad; None if the motion is shorter than a piece.

    Args:
        references: Each [T, J], in the same rate.
        window: Frames of a piece.

    Raises:
        ValueError: If no reference is as long as a piece.
    """
    if len(poses_tj) < window:
        return None
    pieces = [r.unfold(0, window, 1).flatten(1) for r in references if len(r) >= window]
    if not pieces:
        raise ValueError(f"no reference motion has {window} frames")
    mine = poses_tj.unfold(0, window, window).flatten(1)  # [P, J W]
    nearest = torch.cdist(mine, torch.cat(pieces)).min(1).values
    return float((nearest / mine.shape[1] ** 0.5).mean())
