"""Where logged episodes of all robots come together: a folder, or a prefix in a bucket.

    STORE/episodes/EPISODE/000000.rrflog, ..., manifest.json

The manifest goes last and is looked at first: an episode without one is not there yet. An episode
that is sent again, from where it was interrupted or by a second process, is the same files again.
Every file is compared after it was written. Another episode under a known id is refused.
"""

import hashlib
import shutil
from pathlib import Path

from rrf import atomic
from rrf.data import episode_log
from rrf.data.files import RemotePath, contents_below, open_dataset_root

_EPISODES = "episodes"


class EpisodeStore:
    """The episodes at one place.

    Args:
        url: A folder, or s3://bucket/prefix.
    """

    def __init__(self, url: str | Path):
        self.url = str(url)
        self._root: Path | RemotePath = open_dataset_root(url) / _EPISODES

    def episodes(self) -> list[str]:
        """The ids of the episodes that are there, sorted."""
        if isinstance(self._root, RemotePath):
            found = contents_below(self._root) if self._root.is_dir() else ()
            names = [name.split("/") for name in found]
            ids = [parts[0] for parts in names if parts[1:] == [atomic.MANIFEST]]
        else:
            ids = [path.parent.name for path in self._root.glob(f"*/{atomic.MANIFEST}")]
        return sorted(filter(episode_log.is_id, ids))

    def manifest(self, episode: str) -> dict | None:
        """The manifest of an episode; None if it is not there.

        Raises:
            ValueError: If it is damaged, or of another episode.
        """
        path = self._root / episode / atomic.MANIFEST
        if not path.is_file():
            return None
        manifest = episode_log.parse_manifest(path.read_bytes(), str(path))
        if manifest["episode"] != episode:
            raise ValueError(f"{path} is the manifest of the episode {manifest['episode']}")
        return manifest

    def put(self, folder: Path) -> bool:
        """Send an episode that is over; what is there of it already is not sent again.

        Returns:
            Whether anything was sent.

        Raises:
            ValueError: If the episode is damaged, or the store has another one of this id.
            OSError: If the store cannot be reached or written; the same call goes on.
        """
        manifest = episode_log.check_episode(folder)
        there = self.manifest(folder.name)
        if there is not None and there["digest"] != manifest["digest"]:
            raise ValueError(
                f"{self.url} has another episode {folder.name} (digest {there['digest'][:12]}, "
                f"here {manifest['digest'][:12]}); somebody changed one of them: compare both"
            )
        place, is_sent = self._root / folder.name, there is None
        for name, digest in manifest["files"].items():
            content = (folder / name).read_bytes()
            if _holds(place / name, content, digest):
                continue
            is_sent = True
            _write(place / name, content)
            if not _holds(place / name, content, digest):
                raise OSError(_not_sent(place / name))
        if there is None:
            content = (folder / atomic.MANIFEST).read_bytes()
            _write(place / atomic.MANIFEST, content)
            if (place / atomic.MANIFEST).read_bytes() != content:
                raise OSError(_not_sent(place / atomic.MANIFEST))
        return is_sent

    def get(self, episode: str, out: Path) -> dict:
        """Bring an episode to `out / episode`, all of it or nothing, and return its manifest.

        Raises:
            ValueError: If it is not what its manifest says.
        """
        manifest = self.manifest(episode)
        if manifest is None:
            raise ValueError(f"{self.url} has no episode {episode}")
        place, beside = self._root / episode, out / f".tmp-{episode}" / episode
        shutil.rmtree(beside, ignore_errors=True)
        try:
            for name in (*manifest["files"], atomic.MANIFEST):
                path = place / name
                if isinstance(path, Path) and path.is_symlink():
                    raise ValueError(f"{path} is a symbolic link, which is not followed")
                atomic.write_bytes(beside / name, path.read_bytes())
            if episode_log.check_episode(beside) != manifest:
                raise ValueError(f"{place} was changed meanwhile; run the same command again")
            beside.rename(out / episode)
        finally:
            shutil.rmtree(beside.parent, ignore_errors=True)
        return manifest


def _write(path: Path | RemotePath, content: bytes) -> None:
    """Write a file; in a bucket, one that is there already stays, and is compared then."""
    if isinstance(path, RemotePath):
        path.create(content)
    else:
        atomic.write_bytes(path, content)


def _not_sent(path: Path | RemotePath) -> str:
    return f"{path} is not what was sent; run the same command again, or see who else writes there"


def _holds(path: Path | RemotePath, content: bytes, digest: str) -> bool:
    """Whether a stored file has this content; where its etag is an MD5, it is not read."""
    if isinstance(path, Path):
        return path.is_file() and atomic.sha256(path) == digest
    if not path.is_file() or path.content().size != len(content):
        return False
    if path.has_md5_etag():
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        return path.content().etag == md5
    return hashlib.sha256(path.read_bytes()).hexdigest() == digest
