"""`step`: a Prefect task whose result is never taken from Prefect's cache.

What is finished is known by its own files (run directories, evaluations, DVC, the registry), which
also notice a change of code or a file that has gone. A retried run asks them again, in seconds.
"""

import functools

from prefect import task
from prefect.cache_policies import NO_CACHE

step = functools.partial(task, cache_policy=NO_CACHE)
