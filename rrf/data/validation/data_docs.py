"""Great Expectations' own context, and its Data Docs: the suites and their results as a small site.

The context is one on disk, in a directory that is gone afterwards; no telemetry is sent. The pages
take their style from the network where there is one; the report of `validation_report` needs none.
"""

import contextlib
import functools
import logging
import os
import shutil
import tempfile
import typing
import warnings
from collections.abc import Iterator
from pathlib import Path

from rrf import atomic

if typing.TYPE_CHECKING:
    from great_expectations.data_context import AbstractDataContext

INDEX = "index.html"
_SITE = "validation"


@contextlib.contextmanager
def open_context(site: Path | None = None) -> Iterator["AbstractDataContext"]:
    """A context for the block; what ran in it is then rendered to the directory `site`, which is
    replaced as a whole. Without a site, the context is ephemeral.
    """
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")
        import great_expectations as gx
        from great_expectations.data_context.types.base import ProgressBarsConfig

        if site is None:
            context = gx.get_context(mode="ephemeral")
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rrf-expectations-"))
            context = gx.get_context(mode="file", project_root_dir=folder)
        context.variables.progress_bars = ProgressBarsConfig(globally=False)
        yield context
        if site is not None:
            with atomic.directory(site) as pages:
                _render(context, pages)


def remove_site(site: Path) -> None:
    """Remove the pages of an earlier validation."""
    if site.is_dir():
        shutil.rmtree(site)


def _render(context: "AbstractDataContext", pages: Path) -> None:
    _keep_compiled_templates()
    for name in context.get_site_names():
        context.delete_data_docs_site(name)
    context.add_data_docs_site(
        _SITE,
        {
            "class_name": "SiteBuilder",
            "store_backend": {
                "class_name": "TupleFilesystemStoreBackend",
                "base_directory": str(pages.resolve()),
            },
            "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        },
    )
    context.build_data_docs(site_names=[_SITE])


@functools.cache
def _keep_compiled_templates() -> None:
    """Great Expectations would compile the same templates for each page, most of what it does."""
    import jinja2
    from great_expectations.render.view import view

    class Kept(jinja2.BytecodeCache):
        codes: typing.ClassVar[dict[tuple[str, str], typing.Any]] = {}

        def load_bytecode(self, bucket) -> None:
            bucket.code = self.codes.get((bucket.key, bucket.checksum))

        def dump_bytecode(self, bucket) -> None:
            self.codes[bucket.key, bucket.checksum] = bucket.code

    kept = functools.partial(jinja2.Environment, bytecode_cache=Kept())
    view.Environment = kept  # pyright: ignore[reportAttributeAccessIssue]
