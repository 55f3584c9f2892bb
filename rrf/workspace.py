"""Where a user's files are: a workspace with configs, data, flows and, in `.rrf/`, its state.

A workspace is a folder whose pyproject.toml says `workspace = 1` in `[tool.rrf]`. `rrf init` makes
one, and a checkout of rrf is one. Outside of any, the user's data folder stands in for it. Configs
that a workspace does not have are those that the package ships.
"""

import functools
import os
import re
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import platformdirs

HOME_VARIABLE = "RRF_HOME"
VERSION = 1
"""The version of the layout of a workspace that this rrf works with."""
CONFIGS = "configs"
SHIPPED = "_workspace"
"""Folder of the installed package with what a checkout has in its root: configs, flows, infra."""
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


def root() -> Path | None:
    """The workspace: `$RRF_HOME`, or else the nearest one upwards from here; None outside of any.

    Raises:
        ValueError: If it is of a version that this rrf does not know.
    """
    if named := os.environ.get(HOME_VARIABLE):
        folder = Path(named).resolve()
        _is_workspace(folder)  # it need not be one, but not one of another version
        return folder
    here = Path.cwd().resolve()
    return next((folder for folder in [here, *here.parents] if _is_workspace(folder)), None)


def home() -> Path:
    """The workspace, or outside of any the user's data folder, e.g. ~/.local/share/rrf.

    Raises like `root`.
    """
    return root() or platformdirs.user_data_path("rrf")


def state() -> Path:
    """`.rrf/`: tracking store, Prefect's database, runs, logs. Safe to delete when nothing runs."""
    return home() / ".rrf"


def _is_workspace(folder: Path) -> bool:
    file = folder / "pyproject.toml"
    if not file.is_file():
        return False
    version = _version(file, file.stat().st_mtime_ns)
    if version in (None, VERSION):
        return version == VERSION
    raise ValueError(
        f"{folder} is a workspace of version {version!r}, and this rrf works with version {VERSION}"
        "; install a newer rrf, or work in another folder"
    )


@functools.lru_cache(maxsize=64)
def _version(file: Path, changed_ns: int) -> object:
    """What a pyproject.toml says about the workspace in its folder; None if it says nothing."""
    try:
        tools = tomllib.loads(file.read_text()).get("tool", {})
    except ValueError as error:
        raise ValueError(f"{file} is not TOML ({error}); mend it") from error
    return tools.get("rrf", {}).get("workspace")


def shipped() -> Path:
    """The folder of what rrf ships for workspaces: of the installed package, or of the checkout."""
    package = Path(__file__).resolve().parent
    inside = package / SHIPPED
    return inside if inside.is_dir() else package.parent


def find(path: str | Path) -> Path:
    """A file as it is named in commands and configs: as it is from the working directory, or else
    in the workspace, or else, below configs/, among the files that rrf ships.

    What exists nowhere stays as it is named.
    """
    path = Path(path)
    if path.is_absolute() or path.exists():
        return path
    places = [home() / path]
    if path.parts[:1] == (CONFIGS,):
        places.append(shipped() / path)
    return next((place for place in places if place.exists()), path)


def configs(kind: str, suffix: str = ".yaml") -> dict[str, Path]:
    """Name -> file of the configs of a kind, e.g. gates. One of the workspace hides the one that
    rrf ships under the same name.
    """
    files: dict[str, Path] = {}
    for place in (shipped(), home()):
        files |= {file.stem: file for file in (place / CONFIGS / kind).glob(f"*{suffix}")}
    return dict(sorted(files.items()))


def relative(path: str | Path) -> str:
    """A path as records name it: relative to the workspace if it lies below, so that they still
    hold when the workspace was moved.
    """
    full, base = Path(path).absolute(), home()
    return str(full.relative_to(base)) if full.is_relative_to(base) else str(path)


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
