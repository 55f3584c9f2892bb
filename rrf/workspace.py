"""Where a checkout keeps its state: the repository root, `.rrf/` beside the code, and the tracking
store in it."""

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

HOME_VARIABLE = "RRF_HOME"
_MARKS = ("dvc.yaml", "configs", "pyproject.toml")
SERVERS = ("http://", "https://")  # how the address of a server begins
# "user@" or "user:password@" after "://"; the password of a database may contain a slash, but what
# begins with a port and a slash is a path.
_LOGIN = re.compile(r"""(?<=://)(?:[^\s/'"]*|[^\s/:@'"]+:(?!\d+/)[^\s'"]*)@""")

TELEMETRY_OFF = {
    "DO_NOT_TRACK": "1",
    "DVC_NO_ANALYTICS": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "WANDB_ERROR_REPORTING": "false",
}


def home() -> Path:
    """The repository root: `$RRF_HOME`, or else the nearest directory upwards that looks like one.

    Raises:
        ValueError: If there is none; the message names the command that fixes it.
    """
    if named := os.environ.get(HOME_VARIABLE):
        return Path(named).resolve()
    here = Path.cwd().resolve()
    for directory in [here, *here.parents]:
        if all((directory / mark).exists() for mark in _MARKS):
            return directory
    raise ValueError(
        f"{here} is not inside an rrf repository; cd into one, "
        f"or export {HOME_VARIABLE}=/path/to/it"
    )


def state() -> Path:
    """`.rrf/`: tracking store, Prefect's database, runs, logs. Safe to delete when nothing runs."""
    return home() / ".rrf"


def relative(path: str | Path) -> str:
    """A path as records name it: relative to the repository root if it lies below, so that they
    still hold when the workspace was moved.
    """
    full, root = Path(path).absolute(), home()
    return str(full.relative_to(root)) if full.is_relative_to(root) else str(path)


def dataset(name: str) -> Path | str:
    """The place of a published dataset, given by name (a folder of datasets/), by path, or as
    s3://bucket/prefix, which is returned unchanged.
    """
    if "://" in name:
        return name
    return Path(name) if "/" in name else home() / "datasets" / name


def tracking_uri() -> str:
    """The MLflow store: `$MLFLOW_TRACKING_URI`, or else a SQLite file under `.rrf/`.

    User and password in the address of a server move to the variables that MLflow's clients read
    for them. So the address can be shown, stored and linked to.
    """
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{state() / 'mlflow.db'}"
    bare, user, password = split_login(uri)
    if bare != uri:
        os.environ["MLFLOW_TRACKING_URI"] = bare
        os.environ["MLFLOW_TRACKING_USERNAME"] = user
        os.environ["MLFLOW_TRACKING_PASSWORD"] = password
    return bare


def split_login(uri: str) -> tuple[str, str, str]:
    """The address of a server without user and password, the user, and the password.

    Other URIs, e.g. of databases, stay as they are.

    Raises:
        ValueError: If `uri` cannot be read, e.g. because of a slash in the password.
    """
    if not uri.startswith(SERVERS):
        return uri, "", ""
    try:
        parts = urlsplit(uri)
        _ = parts.port  # read here, because only reading it checks it
    except ValueError:
        raise ValueError(
            f"{shown_uri(uri)} is not the address of a server; write special characters in user "
            "and password as in %2F for a slash"
        ) from None
    if "@" not in parts.netloc:
        return uri, "", ""
    login, _, host = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    return urlunsplit(parts._replace(netloc=host)), unquote(user), unquote(password)


def shown_uri(text: str) -> str:
    """A URI, or a text with URIs, without the users and passwords in them.

    Everything that prints, logs or stores the URI of a store or a database calls this.
    """
    return _LOGIN.sub("", text)


def settle_environment() -> None:
    """Turn telemetry off, give torch one thread, and let threads sleep while they wait, unless the
    user has set those variables.

    On two cores shared with other processes, two threads of torch are four to six times slower than
    one. Where two runs share the cores, threads that spin while they wait make both three times
    slower; on free cores spinning gains two per cent.
    """
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    for name, value in {**TELEMETRY_OFF, **threads}.items():
        os.environ.setdefault(name, value)
