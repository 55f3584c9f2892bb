"""`step`: a Prefect task whose result is never taken from Prefect's cache.

The files of a step show whether it is finished (run directories, evaluations, DVC, the registry).
Unlike a cache, they also reveal changed code and missing files. A retried flow run checks them
again, which takes seconds.

The parameters of a flow run become words of commands, and must not become options of them: they are
of the types `Word` and `Override`, or of narrower ones.

Every flow that has steps may meet a gate, a protocol or a preset of an installed plugin, e.g. in
the ledger of a model. So the plugins are loaded here.
"""

import functools
from typing import Annotated

from prefect import task
from prefect.cache_policies import NO_CACHE
from pydantic import Field

from rrf.lookup import load_plugins

Word = Annotated[str, Field(min_length=1, pattern=r"^[^-]")]
DottedField = Annotated[str, Field(pattern=r"^[^-.]([^.]|\.[^-.])*$")]
Override = dict[DottedField, bool | int | float | str | list | None]

load_plugins()
step = functools.partial(task, cache_policy=NO_CACHE)
