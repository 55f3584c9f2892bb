"""Pages from templates. A template lies beside the module that fills it, extends `pages/base.html`
and takes tables and the like from `pages/macros.html`. A page is one file that loads nothing.

Everything that a template is given is text and stays text, whatever stands in it. Markup is only
what is of the type `Markup`: charts, and markdown that was rendered.
"""

import base64
import functools
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **content) -> str:
    """The page as HTML.

    Args:
        template: Its path inside the package, e.g. "evaluation/open_loop/open_loop.html".
        content: What it shows. The template may use no other name.
    """
    return _environment().get_template(template).render(content)


def data_url(kind: str, content: bytes) -> str:
    """Content that stands in the page itself; `kind` is its media type."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


@functools.cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parents[1]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    return environment
