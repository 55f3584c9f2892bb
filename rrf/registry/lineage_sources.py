"""Where a lineage comes from: DVC's files, git, the validation report, the installed packages.

Facts that cannot be found are listed in `Lineage.missing`; nothing is guessed.
"""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rrf import atomic, code_digest, workspace
from rrf.config import NOT_YAML, readable
from rrf.data.files import RemotePath, open_dataset_root
from rrf.lineage import DatasetLineage, EnvironmentLineage, Lineage

LOCK_FILE = "requirements.lock"
_PINNED = "hf://"  # the config itself names the version of such a source
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # eight times as fast; dvc.lock is long
_REMOTE_S = 60  # a remote that does not answer by then says nothing


def collect_lineage(*datasets: str, pushed: Mapping[str, bool | None] | None = None) -> Lineage:
    """The lineage of a policy that is trained on `datasets` in this workspace.

    Datasets are names under datasets/, paths, or s3://bucket/prefix. Without datasets the lineage
    is empty. `pushed` is what was asked of DVC's remote already (`is_pushed`), by dataset.
    """
    return with_remote(local_lineage(*datasets), pushed)


def local_lineage(*datasets: str) -> Lineage:
    """Like `collect_lineage`, without asking DVC's remote, which may take seconds."""
    if not datasets:
        return Lineage()
    home, missing = workspace.home(), []
    collected = []
    for name in datasets:
        missing_here: list[str] = []
        collected.append(_dataset_lineage(home, name, missing_here))
        missing += [f"{name}: {what}" if len(datasets) > 1 else what for what in missing_here]
    code = _code(home, missing)
    return Lineage(datasets=tuple(collected), **code, missing=tuple(missing))


def with_remote(lineage: Lineage, pushed: Mapping[str, bool | None] | None = None) -> Lineage:
    """The lineage that also says whether DVC's default remote holds the recordings."""
    home, known = workspace.home(), dict(pushed or {})
    for name in lineage.dataset_names:
        if name not in known:
            known[name] = _is_pushed(home, name)
    return lineage.replace(
        datasets=tuple(dataclasses.replace(d, pushed=known[d.name]) for d in lineage.datasets)
    )


def recordings(dataset: str) -> list[str]:
    """The paths that DVC knows what a dataset was made from by; none if it does not."""
    config = _config_of(dataset)
    sources = [source for source in _sources(config) if "://" not in source] if config else []
    return sources if (workspace.home() / ".dvc").is_dir() else []


def version_of(path: str) -> str | None:
    """The version that DVC knows of a path of the workspace; None if it knows none."""
    return _version(_dvc_entry(workspace.home(), path))


def is_pushed(states: Mapping[str, str] | None) -> bool | None:
    """Whether DVC's remote holds recordings, by the answer of `dvc status --cloud`: path -> state.
    Without an answer, nobody can say.
    """
    # "new" is here only, "missing" is nowhere, and "deleted" is in the remote only.
    return None if states is None else not {"new", "missing"} & set(states.values())


def environment_lineage(env: Mapping, versions: Mapping[str, str] | None = None) -> Lineage:
    """The lineage of a policy that is trained in a simulator without a dataset.

    Args:
        env: The environment's config as plain data.
        versions: Package -> version, of a simulator in an interpreter of its own.
    """
    missing: list[str] = []
    digest = atomic.digest_of(env)
    packages = code_digest.simulator_versions() | dict(versions or {})
    environment = EnvironmentLineage(env.get("task"), digest, packages)
    code = _code(workspace.home(), missing)
    return Lineage(environment=environment, **code, missing=tuple(missing))


def _code(home: Path, missing: list[str]) -> dict[str, Any]:
    """The fields of a lineage about the code and its packages."""
    return {
        **_git(home, missing),
        "lock_hash": _file_hash(home / LOCK_FILE, missing),
        "source_digest": code_digest.source_digest(),
    }


def _dataset_lineage(home: Path, name: str, missing: list[str]) -> DatasetLineage:
    root = open_dataset_root(workspace.dataset(name))
    return DatasetLineage(
        name,
        **_dvc(home, name, missing),
        **_validation(home / "datasets/reports" / name / "validation.json", missing),
        **_size(root / "meta/info.json", missing),
        card=_card(name, root / "README.md", missing),
    )


def _dvc(home: Path, dataset: str, missing: list[str]) -> dict[str, Any]:
    path = DatasetLineage(dataset).path
    entry = _dvc_entry(home, path)
    md5 = _version(entry)
    if md5 is None:
        missing.append(f"dataset_md5: dvc.lock has no output {path}; run `dvc repro`")
    elif not _is_as_recorded(home / path, entry):
        md5 = None
        missing.append(f"dataset_md5: {path} was changed since dvc.lock knew it; run `dvc repro`")
    config = _config_of(dataset)
    sources = _sources(config) if config or "/" not in dataset else []
    if not sources:
        missing.append(f"raw_md5: no configs/datasets/*.yaml says what {path} was made from")
    versions = {source: _version(_dvc_entry(home, source)) for source in sources}
    for source, version in versions.items():
        if version is None and not source.startswith(_PINNED):
            missing.append(
                f"raw_md5: no dvc.lock and no *.dvc file knows {source}; run `dvc repro`"
            )
    if len(versions) == 1 and "merge" not in config:
        return {"md5": md5, "raw_md5": versions[sources[0]]}
    known = [f"{source} {version}" for source, version in versions.items() if version]
    return {"md5": md5, "raw_md5": ", ".join(known) or None}


def _is_pushed(home: Path, dataset: str) -> bool | None:
    """Whether DVC's default remote holds the recordings of a dataset; None if nobody can say."""
    if not (sources := recordings(dataset)):
        return None
    command = [sys.executable, "-m", "dvc", "status", "--cloud", "--json", *sources]
    try:
        done = subprocess.run(
            command, cwd=home, capture_output=True, text=True, check=False, timeout=_REMOTE_S
        )
        states = json.loads(done.stdout) if done.returncode == 0 else None
    except (subprocess.TimeoutExpired, ValueError):
        return None
    return is_pushed(states)


def _config_of(dataset: str) -> dict:
    file = workspace.configs("datasets").get(dataset)
    return _read_yaml(file) if file else {}


def _sources(config: dict) -> list[str]:
    """The sources of a dataset: its recordings, or the datasets it is merged or edited from."""
    if "merge" in config:
        return [f"datasets/{part['dataset']}" for part in config["merge"]]
    if "edit_of" in config:
        return [f"datasets/converted/{config['edit_of']}"]
    return [config.get("source", {}).get("path", "datasets/raw")]


def _dvc_entry(home: Path, path: str) -> dict:
    """The record that DVC has of an output or dependency; {} if there is none.

    The record is in dvc.lock, in the dvc.lock of a pipeline under infra/, or in a *.dvc file at the
    top of the workspace.
    """
    main = home / "dvc.lock"
    others = [*sorted(home.glob("infra/*/dvc.lock")), *sorted(home.glob("*.dvc"))]
    for file, data in ({main: _read_yaml(main)} | readable(others, _read_yaml)).items():
        for stage in [*data.get("stages", {}).values(), data]:
            for item in [*stage.get("outs", []), *stage.get("deps", [])]:
                if path in _paths(home, file, item) and _version(item):
                    return item
    return {}


def _paths(home: Path, file: Path, item: dict) -> tuple[str, str]:
    """How one of DVC's files names a path, and the same as seen from the top of the workspace."""
    path = item.get("path", "")
    return path, os.path.normpath(file.parent.relative_to(home) / path)


def _version(entry: dict) -> str | None:
    """The MD5, or the ETag for data in a bucket."""
    return entry.get("md5") or entry.get("etag")


def _is_as_recorded(folder: Path, entry: dict) -> bool:
    """Whether a directory has as many files and bytes as DVC recorded; True if it is not here."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    measured = {"nfiles": len(sizes), "size": sum(sizes)}
    return not sizes or all(entry.get(key, value) == value for key, value in measured.items())


def commit(home: Path) -> tuple[str | None, bool]:
    """The commit of a workspace, None outside of a repository, and whether files differ from it."""
    facts = _git(home, [])
    return facts["git_revision"], bool(facts["git_dirty"])


def dataset_versions(home: Path) -> dict[str, str]:
    """The published datasets that dvc.lock knows -> their version; none if it cannot be read."""
    try:
        stages = _read_yaml(home / "dvc.lock").get("stages", {})
    except ValueError:
        return {}
    outs = [out for stage in stages.values() for out in stage.get("outs", [])]
    named = {DatasetLineage(Path(out["path"]).name).path: out for out in outs}
    return {Path(path).name: _version(o) or "" for path, o in named.items() if o["path"] == path}


def _git(home: Path, missing: list[str]) -> dict[str, Any]:
    if workspace.root() is None:  # the user's data folder may lie in a repository of something else
        missing.append("git_revision: not in a workspace; make one: rrf init FOLDER")
        return {"git_revision": None, "git_dirty": None}
    revision = git(home, "rev-parse", "HEAD")
    if revision is None:
        missing.append(f"git_revision: {home} is no git repository with a commit; run `git commit`")
        return {"git_revision": None, "git_dirty": None}
    return {"git_revision": revision, "git_dirty": bool(git(home, "status", "--porcelain"))}


def git(home: Path, *arguments: str) -> str | None:
    """The output of a git command in a folder; None if it fails, or there is no git."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=home, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _file_hash(path: Path, missing: list[str]) -> str | None:
    if not path.is_file():
        missing.append(f"lock_hash: there is no {path.name}")
        return None
    return atomic.sha256(path)


def _validation(path: Path, missing: list[str]) -> dict[str, Any]:
    if not path.is_file():
        missing.append(f"validation: there is no {path}; run `dvc repro`")
        return {"validation": None, "validation_digest": None}
    content = path.read_bytes()
    passed = _read_json(path).get("passed") is True
    return {
        "validation": "passed" if passed else "failed",
        "validation_digest": hashlib.sha256(content).hexdigest(),
    }


def _size(path: Path | RemotePath, missing: list[str]) -> dict[str, Any]:
    if not path.is_file():
        missing.append(f"num_episodes, num_frames: there is no {path}; run `dvc repro`")
        return {"num_episodes": None, "num_frames": None}
    info = _read_json(path)
    return {"num_episodes": info.get("total_episodes"), "num_frames": info.get("total_frames")}


def _card(dataset: str, path: Path | RemotePath, missing: list[str]) -> str | None:
    if not path.is_file():
        missing.append(f"card: there is no {path}; run `dvc repro`")
        return None
    if "/" not in dataset:
        return f"{DatasetLineage(dataset).path}/{path.name}"
    return str(path.resolve() if isinstance(path, Path) else path)


def _read_json(path: Path | RemotePath) -> dict:
    try:
        return atomic.parse_json(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); run `dvc repro`") from error


def _read_yaml(path: Path) -> dict:
    if not path.is_file():
        return {}
    try:
        data = yaml.load(path.read_text(), _LOADER) or {}
    except NOT_YAML as error:
        raise ValueError(
            f"{path} is not YAML ({error}); restore it with `git checkout {path}`"
        ) from error
    if not isinstance(data, dict):
        raise ValueError(f"{path} holds a {type(data).__name__}, not a mapping; mend it")
    return data
