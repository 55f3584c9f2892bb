"""`python -m flows.share`, which `rrf data share` runs: send data to a remote of DVC in an order in
which a kill leaves nothing half.

`dvc push` (3.67) puts the list of a directory's files into the remote before the files. If it is
killed, the next one takes the list for the proof that all files are there, and says that everything
is up to date. Here the files go first, and each is looked for in the remote: what an interrupted
`dvc push` has left is completed, too.
"""

import argparse
import sys
import typing
from collections.abc import Sequence
from pathlib import Path

from rrf import workspace

if typing.TYPE_CHECKING:
    from dvc.repo import Repo


def share(home: Path, targets: Sequence[str] = (), remote: str | None = None) -> int:
    """Send what DVC's cache has, and then what refers to it; returns the number of sent objects.

    Args:
        home: The repository.
        targets: Files, folders or stages, as in the working directory; by default everything.
        remote: Name of the remote; by default DVC's.

    Raises:
        ValueError: If there is no repository, no such target or no such remote.
        OSError: If something could not be sent; the same call goes on where it was.
    """
    from dvc.exceptions import DvcException, UploadError
    from dvc.repo import Repo

    try:
        with Repo(str(home)) as repo:
            with repo.lock:
                sent = _send_files(repo, list(targets), remote)
            return sent + repo.push(list(targets) or None, remote=remote)
    except UploadError as error:
        raise _failed(error.amount) from error
    except DvcException as error:
        cause: BaseException = error
        while isinstance(cause.__cause__, DvcException):
            cause = cause.__cause__
        raise ValueError(f"DVC: {cause}") from error


def _send_files(repo: "Repo", targets: list[str], remote: str | None) -> int:
    """Send the files of directories, without the lists that name them."""
    from dvc.config import RemoteConfigError
    from dvc_data.hashfile.transfer import transfer
    from dvc_data.hashfile.tree import Tree

    cache, sent = repo.cache.local, 0
    for store, objects in repo.used_objs(targets or None, remote=remote, push=True).items():
        folders = [each for each in objects if each.isdir and cache.exists(each.value)]
        files = {file for each in folders for _, _, file in Tree.load(cache, each) if file}
        try:
            place = store or repo.cloud.get_remote_odb(remote, "push")
        except RemoteConfigError:  # of a bucket whose objects have versions, which has no lists
            continue
        done = transfer(cache, place, {file for file in files if cache.exists(file.value)})
        if done.failed:
            raise _failed(len(done.failed))
        sent += len(done.transferred)
    return sent


def _failed(number: int) -> OSError:
    return OSError(f"{number} files could not be sent; the same command goes on where it was")


def main() -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(description=share.__doc__)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--remote")
    words = parser.parse_args()
    try:
        sent = share(workspace.home(), words.targets, words.remote)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(f"{sent} files sent\n" if sent else "everything is in the remote\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
