"""A Prefect plugin: with it, `prefect deployment run train-vla` accepts the bare name of a
deployment, and every Prefect command finds the server of `rrf services up`.

Prefect 3.8 itself accepts only FLOW/DEPLOYMENT. The entry point `prefect.plugins` loads this module
in every Prefect process that is started in a workspace (`[tool.prefect.plugins]` in its
pyproject.toml enables plugins). The plugin wraps one client method.

It also lets runs survive a server that is away. Prefect's clients repeat a request that finds no
server only if this very client has reached it before, and most requests of a run come from clients
of their own. With the plugin it is enough that any client of the process has reached the server, or
that `rrf services up` started the process. `client.max_retries` in pyproject.toml says how often.

With a Prefect version that it was not tested with, the plugin changes nothing of this.
"""

import contextlib
import functools
import inspect
import os
import sys
import threading
import time
import uuid
from typing import Any, NoReturn

from prefect.plugins import SetupResult, register_hook

from rrf import service_guard, service_records, workspace

PREFECT_PLUGIN_API_REQUIRES = ">=0.1,<1"
_TESTED = "3.8."
_API, _LOGIN = "PREFECT_API_URL", "PREFECT_API_AUTH_STRING"
_RESUMES, _PAUSE_S = 15, 2.0
_USUAL = "http://127.0.0.1:4200/api"  # as in pyproject.toml


@register_hook
def setup_environment(*, ctx: Any) -> SetupResult | None:
    """Called by Prefect at start-up. Prefect requires `ctx` to be keyword-only.

    Returns:
        The address of this workspace's server, unless the shell or a profile names one, and its
        login, unless there is one. If the address holds user and password, they move to Prefect's
        own setting, so that they are never shown.
    """
    if ctx.prefect_version.startswith(_TESTED):
        _accept_bare_names()
        _share_connected()
    bare, user, password = workspace.split_login(ctx.api_url or "")
    if user or password:
        os.environ[_LOGIN] = f"{user}:{password}"
        return SetupResult({_API: bare})
    try:
        bare = _server(bare)
    except ValueError:  # a workspace of a newer version
        return None
    if _LOGIN not in os.environ and (login := service_guard.login_of(bare)):
        os.environ[_LOGIN] = login
    return SetupResult({_API: bare}) if bare and bare != ctx.api_url else None


def _server(api_url: str | None) -> str:
    """The address of this workspace's server, unless the shell or a profile names another.

    Raises:
        ValueError: For a workspace of a newer version.
    """
    record = service_records.read("prefect")
    if record and _API not in os.environ and api_url in (None, "", _USUAL):
        return f"http://127.0.0.1:{record.port}/api"
    return api_url or ""


def resume(flow_run_id: str) -> bool:
    """Let a flow run that waits for approvals go on (`flows.promote`); whether it does. Where no
    server answers, or it does not wait any more, it does not.

    A run that has just been suspended takes an answer only when it has written down what it asks
    for, and a busy server asks to be asked again: so this tries for half a minute.
    """
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.settings import (
        PREFECT_API_AUTH_STRING,
        PREFECT_API_URL,
        get_current_settings,
        temporary_settings,
    )

    # Whoever imports this module before Prefect has Prefect without it, so it may know no server.
    url, user, password = workspace.split_login(_server(get_current_settings().api.url))
    if not url:  # Prefect would start one of its own
        return False
    login = f"{user}:{password}" if user else os.environ.get(_LOGIN) or service_guard.login_of(url)
    reached = temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: login})
    id = uuid.UUID(flow_run_id)
    try:
        with reached, get_client(sync_client=True) as client:
            for _ in range(_RESUMES):
                state = client.read_flow_run(id).state
                if state is None or not state.is_paused():
                    return False
                with contextlib.suppress(httpx.HTTPStatusError):
                    answer = client.resume_flow_run(id, run_input={"approval": ""})
                    if answer.status.value == "ACCEPT":
                        return True
                time.sleep(_PAUSE_S)
    except (httpx.HTTPError, ObjectNotFound):
        pass
    return False


def refusal(error: Exception, url: str) -> str:
    """What to type if Prefect's server at `url` does not answer a client, or refuses it."""
    import httpx

    what = service_guard.hint(str(error), service_guard.PREFECT_CERTIFICATES)
    if isinstance(error, httpx.HTTPStatusError):
        what = what or str(error)
    url = workspace.shown_uri(url)
    if what:
        return f"the Prefect server at {url}: {what}"
    return f"no Prefect server answers at {url}; start it with `rrf services up`"


def _share_connected() -> None:
    """Let what one HTTP client knows, that there is a server, be known to all of this process."""
    from prefect.client.base import PrefectHttpxAsyncClient, PrefectHttpxSyncClient

    reached = threading.Event()
    if service_records.MARK in os.environ:
        reached.set()
    for client in (PrefectHttpxAsyncClient, PrefectHttpxSyncClient):
        client._has_connected = property(  # type: ignore[assignment]
            lambda _: reached.is_set(), lambda _, is_up: reached.set() if is_up else None
        )


def _accept_bare_names() -> None:
    from prefect.client.orchestration import PrefectClient

    method = PrefectClient.read_deployment_by_name
    fits = list(inspect.signature(method).parameters) == ["self", "name"]
    if fits and not hasattr(method, "__wrapped__"):
        PrefectClient.read_deployment_by_name = _with_bare_names(method)


def _with_bare_names(method):
    @functools.wraps(method)
    async def read_deployment_by_name(self, name: str):
        import httpx

        try:
            if "/" in name:
                return await method(self, name)
            return await _read_bare(self, name)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            _fail(refusal(error, str(self.api_url)))
        except httpx.HTTPStatusError as error:
            if error.response.status_code != 401:
                raise
            _fail(refusal(error, str(self.api_url)))

    return read_deployment_by_name


async def _read_bare(client, name: str):
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName

    by_name = DeploymentFilter(name=DeploymentFilterName(any_=[name]))
    matches = await client.read_deployments(deployment_filter=by_name)
    if len(matches) == 1:
        return matches[0]
    if matches:
        full = [f"{(await client.read_flow(each.flow_id)).name}/{each.name}" for each in matches]
        _fail(
            f"{len(matches)} deployments are named '{name}'; choose one: {', '.join(sorted(full))}"
        )
    known = ", ".join(sorted(each.name for each in await client.read_deployments())) or "none"
    return _fail(
        f"no deployment '{name}' at {client.api_url} (known: {known}); run `rrf services up`"
    )


def _fail(message: str) -> NoReturn:
    """End the `prefect` command with a one-line error; a Python caller gets a ValueError."""
    if "prefect.cli" in sys.modules:
        sys.stdout.write(f"{message}\n")
        raise SystemExit(1)
    raise ValueError(message)
