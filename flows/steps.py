"""`step`: a Prefect task whose result is never taken from Prefect's cache.

The files of a step show whether it is finished (run directories, evaluations, DVC, the registry).
Unlike a cache, they also reveal changed code and missing files. A retried flow run checks them
again, which takes seconds.
"""

import functools

from prefect import task
from prefect.cache_policies import NO_CACHE

step = functools.partial(task, cache_policy=NO_CACHE)
