"""A Prefect plugin: with it, `prefect deployment run train-vla` accepts the bare name of a
deployment.

Prefect 3.8 itself accepts only FLOW/DEPLOYMENT. The entry point `prefect.plugins` loads this module
in every Prefect process that is started in the repository (`[tool.prefect.plugins]` in
pyproject.toml enables plugins). The plugin wraps one client method. With a Prefect version that it
was not tested with, it does nothing, and Prefect's own error asks for `train-vla/train-vla`.
"""

import functools
import inspect
import sys
from typing import Any, NoReturn

from prefect.plugins import register_hook

PREFECT_PLUGIN_API_REQUIRES = ">=0.1,<1"
_TESTED = "3.8."


@register_hook
def setup_environment(*, ctx: Any) -> None:
    """Called by Prefect at start-up. Prefect requires `ctx` to be keyword-only."""
    from prefect.client.orchestration import PrefectClient

    method = PrefectClient.read_deployment_by_name
    fits = list(inspect.signature(method).parameters) == ["self", "name"]
    if ctx.prefect_version.startswith(_TESTED) and fits and not hasattr(method, "__wrapped__"):
        PrefectClient.read_deployment_by_name = _with_bare_names(method)


def _with_bare_names(method):
    @functools.wraps(method)
    async def read_deployment_by_name(self, name: str):
        import httpx

        try:
            if "/" in name:
                return await method(self, name)
            return await _read_bare(self, name)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            _fail(f"no Prefect server answers at {self.api_url}; start it with `make up`")

    return read_deployment_by_name


async def _read_bare(client, name: str):
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName

    by_name = DeploymentFilter(name=DeploymentFilterName(any_=[name]))
    found = await client.read_deployments(deployment_filter=by_name)
    if len(found) == 1:
        return found[0]
    if found:
        full = [f"{(await client.read_flow(one.flow_id)).name}/{one.name}" for one in found]
        _fail(f"{len(found)} deployments are named '{name}'; choose one: {', '.join(sorted(full))}")
    known = ", ".join(sorted(one.name for one in await client.read_deployments())) or "none"
    return _fail(f"no deployment '{name}' at {client.api_url} (known: {known}); run `make up`")


def _fail(message: str) -> NoReturn:
    """End the `prefect` command with a one-line error; a Python caller gets a ValueError."""
    if "prefect.cli" in sys.modules:
        from prefect.cli._utilities import exit_with_error

        exit_with_error(message)
    raise ValueError(message)
