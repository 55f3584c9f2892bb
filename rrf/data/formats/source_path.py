"""What `source.path` of a dataset may name, and where that lies on this machine.

datasets/raw/NAME           relative to the workspace, or absolute
s3://bucket/prefix          copied to .rrf/s3/bucket%2Fprefix
hf://OWNER/NAME@COMMIT      a dataset of the Hugging Face hub, copied to .rrf/hf/OWNER%2FNAME@COMMIT
"""

import re
from pathlib import Path
from urllib.parse import quote

from rrf import workspace
from rrf.data.files import S3, RemotePath

HUB = "hf://"
_HUB_COMMIT = re.compile(r"hf://([\w.-]+/[\w.-]+)@([0-9a-f]{40})")


def is_remote(path: str) -> bool:
    """Whether recordings lie on another machine."""
    return "://" in path


def local_path(path: str) -> Path:
    """Where recordings lie on this machine, or will when they have been copied.

    Raises ValueError for what only looks like an address.
    """
    if not is_remote(path):
        return workspace.home() / path
    if path.startswith(S3):
        path = RemotePath(path.rstrip("/")).url
    elif path.startswith(HUB):
        hub_commit(path)
    else:
        raise ValueError(
            f"'{path}' is neither a path, s3://bucket/prefix nor {HUB}OWNER/NAME@COMMIT"
        )
    scheme, _, name = path.partition("://")
    return workspace.state() / scheme / quote(name, safe="@")


def hub_commit(url: str) -> tuple[str, str]:
    """The repository and the commit in hf://OWNER/NAME@COMMIT."""
    match = _HUB_COMMIT.fullmatch(url)
    if not match:
        raise ValueError(
            f"'{url}' is not {HUB}OWNER/NAME@COMMIT with the 40 digits of a commit; "
            "`rrf data download OWNER/NAME` prints them"
        )
    return match[1], match[2]
