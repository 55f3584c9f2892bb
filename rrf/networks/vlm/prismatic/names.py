"""Names of parameters in OpenVLA's published files, and ours.

They are the same but for the scale of what a block adds, `scale_factor` there and `gamma` in timm,
and for the blocks that FiLM wraps, which are plain in the files of the whole model.
"""

import re

_BLOCK = re.compile(r"(featurizer\.blocks\.\d+\.)(?!block\.|scale\.|shift\.)")
_WRAPPED = re.compile(r"(featurizer\.blocks\.\d+\.)block\.")
_FILM = re.compile(r"featurizer\.blocks\.\d+\.(scale|shift)\.")


def own_name(name: str, film: bool) -> str:
    """The name in our backbone of a published parameter."""
    name = name.replace(".scale_factor", ".gamma")
    return _BLOCK.sub(r"\1block.", name) if film else name


def published_name(name: str) -> str | None:
    """The inverse of `own_name`; None for a parameter of FiLM, which is published elsewhere."""
    if _FILM.search(name):
        return None
    return _WRAPPED.sub(r"\1", name).replace(".gamma", ".scale_factor")
