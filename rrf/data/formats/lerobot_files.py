"""Which files hold which episode of a LeRobot v2.0, v2.1 or v3.0 directory.

v2.0 and v2.1, one episode per file:
    meta/info.json                                fps, features, path templates
    meta/episodes.jsonl                           {"episode_index", "tasks", "length"} per line
    meta/tasks.jsonl                              {"task_index", "task"} per line
    data/chunk-000/episode_000000.parquet         one row per frame
    videos/chunk-000/<key>/episode_000000.mp4
v3.0, many episodes per file: see `rrf.data.dataset.layout`.

The metadata are not trusted. Episodes without a table on disk are left out and reported. An episode
of v3.0 whose rows lie in another data file than the metadata say is read where they lie. If a path
template leads to no file, the layout above is used instead. A path in the metadata must not lead
out of the directory ("..", or an absolute path). Symbolic links in the directory are followed,
because hub caches and DVC consist of them.
"""

import dataclasses
import functools
import math
import typing
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from rrf import atomic
from rrf.data.dataset import layout, parquet
from rrf.data.dataset.layout import fill, path_inside
from rrf.data.formats import arrow_arrays as arrow
from rrf.data.formats.json_files import read_object
from rrf.data.formats.misnamed_folder import rename_command

VERSIONS = ("v2.0", "v2.1", "v3.0")
EPISODES = "meta/episodes.jsonl"
TASKS = "meta/tasks.jsonl"
DATA_PATH = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
VIDEO_PATH = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
_MAX_FPS = 1e6


@dataclasses.dataclass(frozen=True)
class VideoPlace:
    """Where an episode's frames of one camera are."""

    path: Path
    start_s: float | None = None  # None: the file holds this episode only


class VideoSegment(typing.NamedTuple):
    """What an episode has of a video file that holds several."""

    start_s: float  # as the metadata say
    number: int  # the episode's
    length: int  # its rows, as the metadata say


@dataclasses.dataclass(frozen=True)
class EpisodePlace:
    """Where one episode is."""

    number: int
    data: Path
    length: int  # frames, as the metadata say
    videos: dict[str, VideoPlace]  # the files may be missing
    tasks: tuple[str, ...] = ()  # as the list of episodes names them


@dataclasses.dataclass(frozen=True)
class Index:
    """What the metadata of a directory say, limited to what is on disk."""

    root: Path
    info: dict
    recordings: dict[str, list[EpisodePlace]]  # name -> episodes in one data file
    shared_videos: dict[Path, list[VideoSegment]]  # of v3.0: all episodes that a file holds
    tasks: dict[int, str | None] | None  # None: there is no list of tasks
    warnings: list[str]

    @property
    def features(self) -> dict[str, dict]:
        return self.info["features"]

    @property
    def fps(self) -> float:
        return float(self.info["fps"])

    @property
    def has_shared_files(self) -> bool:
        """Whether a data file holds many episodes."""
        return self.info["codebase_version"] == "v3.0"


def read_index(root: str | Path) -> Index:
    """Read the metadata and find the files.

    Raises:
        ValueError: For metadata that are damaged, of another version, not UTF-8, or lead out of the
            directory, naming file and line; and if no episode is on disk.
    """
    root = Path(root)
    info = read_info(root)
    warnings: list[str] = []
    videos: dict[Path, list[VideoSegment]] = {}
    if info["codebase_version"] == "v3.0":
        recordings, videos = _places_v3(root, info, warnings)
        listed, tasks = layout.EPISODES_PATH, _tasks_v3(root)
    else:
        recordings, listed, tasks = _places_v2(root, info, warnings), EPISODES, _tasks_v2(root)
    if not recordings:
        raise ValueError(f"{root}: {listed} lists no episodes")
    present = {name: places for name, places in recordings.items() if places[0].data.is_file()}
    missing = [name for name in recordings if name not in present]
    if not present:
        path = recordings[missing[0]][0].data
        command = rename_command(root, path)
        hint = f"rename their folder: {command}" if command else "download the dataset again"
        raise ValueError(
            f"{root}: none of the {len(missing)} data files is on disk, the first is {path}; {hint}"
        )
    if missing:
        warnings.append(
            f"{root}: {len(missing)} of {len(recordings)} data files are not on disk and left "
            f"out, the first is {recordings[missing[0]][0].data}"
        )
    return Index(root, info, present, videos, tasks, warnings)


def read_info(root: Path) -> dict:
    """`meta/info.json`, checked as far as the other functions rely on it."""
    path = root / layout.INFO
    if (root / "meta_data/info.json").is_file():
        raise ValueError(f"{root} is LeRobot v1, {_convert_v1()}")
    if not path.is_file():
        raise ValueError(f"no LeRobot dataset at {root}: {layout.INFO} is missing")
    info = read_object(path)
    version = info.get("codebase_version")
    if version not in VERSIONS:
        hint = _convert_v1() if str(version).startswith("v1") else f"{', '.join(VERSIONS)} are read"
        raise ValueError(f"{path}: codebase_version is {version}, {hint}")
    fps: typing.Any = info.get("fps")
    if not _is_number(fps) or not 0 < fps <= _MAX_FPS:
        raise ValueError(f"{path}: fps is {fps!r}, must be a positive number")
    size = info.get("chunks_size", 1000)
    if type(size) is not int or size < 1:
        raise ValueError(f"{path}: chunks_size is {size!r}, must be a positive integer")
    features = info.get("features")
    if not isinstance(features, dict):
        raise ValueError(f"{path}: features must map keys to dtype and shape")
    for key, feature in features.items():
        shape = feature.get("shape") if isinstance(feature, dict) else None
        if not isinstance(shape, list) or any(type(size) is not int for size in shape):
            raise ValueError(f"{path}: feature '{key}' has no shape (a list of integers)")
    return info


def read_lines(path: Path) -> Iterator[tuple[str, dict]]:
    """The objects of a .jsonl file, each with its "file:line" for error messages."""
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        where = f"{path}:{number}"
        if line.strip():
            yield where, _parse_line(line, where)


def _places_v2(root: Path, info: dict, warnings: list[str]) -> dict[str, list[EpisodePlace]]:
    path = root / EPISODES
    if not path.is_file():
        raise ValueError(f"{path} is missing; download the dataset again")
    videos = [key for key, feature in info["features"].items() if feature.get("dtype") == "video"]
    data_at = functools.partial(_find, root, info, "data_path", DATA_PATH, warnings)
    video_at = functools.partial(_find, root, info, "video_path", VIDEO_PATH, warnings)
    places: dict[str, list[EpisodePlace]] = {}
    for where, line in read_lines(path):
        number = _integer(line, "episode_index", where)
        name = f"episode_{number:06d}"
        if name in places:
            raise ValueError(f"{where}: episode {number} is listed twice")
        chunk = number // info.get("chunks_size", 1000)
        values = {"episode_chunk": chunk, "episode_index": number, "chunk_index": chunk}
        places[name] = [
            EpisodePlace(
                number=number,
                data=data_at(values),
                length=_integer(line, "length", where),
                videos={key: VideoPlace(video_at(values | {"video_key": key})) for key in videos},
                tasks=_texts(line.get("tasks")),
            )
        ]
    return dict(sorted(places.items(), key=lambda item: item[1][0].number))


def _find(
    root: Path, info: dict, name: str, standard: str, warnings: list[str], values: dict
) -> Path:
    """The file that a template of info.json names, or else the file at its standard place."""
    where = f"{root / layout.INFO}: {name}"
    declared = path_inside(root, fill(_template(info, name, standard, where), where, values), where)
    if declared.is_file():
        return declared
    usual = path_inside(root, fill(standard, where, values), where)
    if not usual.is_file():
        return declared
    text = f"{where}: {info[name]!r} leads to files that do not exist, {standard!r} is read instead"
    if text not in warnings:
        warnings.append(text)
    return usual


def _tasks_v2(root: Path) -> dict[int, str | None] | None:
    path = root / TASKS
    if not path.is_file():
        return None
    return {
        _integer(line, "task_index", where): _task(line.get("task"), where)
        for where, line in read_lines(path)
    }


def _places_v3(
    root: Path, info: dict, warnings: list[str]
) -> tuple[dict[str, list[EpisodePlace]], dict[Path, list[VideoSegment]]]:
    where, episodes = f"the episode table of {root}", parquet.read_episodes(root)
    data, video = f"{root / layout.INFO}: data_path", f"{root / layout.INFO}: video_path"
    keys = [key for key, feature in info["features"].items() if feature.get("dtype") == "video"]
    places: dict[str, list[EpisodePlace]] = {}
    segments: dict[Path, list[VideoSegment]] = {}
    span = functools.cache(functools.partial(arrow.value_range, column="episode_index"))
    for row in episodes.sort_values("episode_index").to_dict("records"):
        number, length = _integer(row, "episode_index", where), _integer(row, "length", where)
        at = f"{where}: episode {number}"
        values = {name: _integer(row, f"data/{name}", at) for name in ("chunk_index", "file_index")}
        template = _template(info, "data_path", layout.DATA_PATH, data)
        path = path_inside(root, fill(template, data, values), data)
        name = f"chunk-{values['chunk_index']:03d}-file-{values['file_index']:03d}"
        holder = _holder(number, path, root, span)
        if holder != path:
            warnings.append(f"{at} lies in {holder}, not in {path}, as the table says")
            path, name = holder, f"{holder.parent.name}-{holder.stem}"
        videos = {}
        for key in keys:
            prefix = f"videos/{key}"
            chunk_index = row.get(f"{prefix}/chunk_index")
            if chunk_index is None or (isinstance(chunk_index, float) and math.isnan(chunk_index)):
                continue
            template = _template(info, "video_path", layout.VIDEO_PATH, video)
            fields = {
                "video_key": key,
                "chunk_index": _integer(row, f"{prefix}/chunk_index", at),
                "file_index": _integer(row, f"{prefix}/file_index", at),
            }
            start_s = _seconds(row, f"{prefix}/from_timestamp", at)
            file = path_inside(root, fill(template, video, fields), video)
            videos[key] = VideoPlace(file, start_s)
            segments.setdefault(file, []).append(VideoSegment(start_s, number, length))
        place = EpisodePlace(number, path, length, videos, _texts(row.get("tasks")))
        places.setdefault(name, []).append(place)
    for key in keys:
        ordered = [place for listed in places.values() for place in listed if key in place.videos]
        _move_to_next_file(key, ordered, segments, warnings)
    return places, segments


def _move_to_next_file(
    key: str,
    places: list[EpisodePlace],
    segments: dict[Path, list[VideoSegment]],
    warnings: list[str],
) -> None:
    """Where an episode begins before the one in front of it in the same file, as far as the table
    says, it begins the next file: the table names the one before.
    """
    last = VideoPlace(Path(), 0.0)
    for place in sorted(places, key=lambda place: place.number):
        video = place.videos[key]
        is_back = video.path == last.path and (video.start_s or 0.0) < (last.start_s or 0.0)
        following = next_video(video.path) if is_back else None
        if following is not None:
            segment = VideoSegment(video.start_s or 0.0, place.number, place.length)
            segments[video.path].remove(segment)
            segments.setdefault(following, []).append(segment)
            warnings.append(
                f"episode {place.number} of {key} lies in {following}, not in {video.path}, as the "
                "episode table says"
            )
            video = place.videos[key] = VideoPlace(following, video.start_s)
        last = video


def next_video(path: Path) -> Path | None:
    """The video file of the same camera that follows this one."""
    files = sorted(path.parents[1].glob("*/*.mp4"))
    later = [file for file in files if file > path]
    return later[0] if later else None


def _holder(
    number: int, declared: Path, root: Path, span: Callable[[Path], tuple[int, int] | None]
) -> Path:
    """The data file with the rows of an episode: lerobot's converter from v2.1 names the one before
    where a file begins.
    """

    def has_episode(path: Path) -> bool:
        limits = span(path)
        return limits is not None and limits[0] <= number <= limits[1]

    if has_episode(declared):
        return declared
    others = [path for path in sorted(root.glob("data/*/*.parquet")) if has_episode(path)]
    return others[0] if len(others) == 1 else declared


def _tasks_v3(root: Path) -> dict[int, str | None] | None:
    path = root / layout.TASKS
    if not path.is_file():
        return None
    try:
        table = parquet.read_table(path).to_pandas()
    except (UnicodeDecodeError, pa.ArrowException) as error:
        raise ValueError(f"{path} holds text that is not UTF-8 ({error})") from error
    if "task_index" not in table:
        raise ValueError(f"{path} has no column 'task_index'; download the dataset again")
    texts = parquet.task_texts(table)
    numbers = [_integer({"task_index": n}, "task_index", str(path)) for n in table["task_index"]]
    return {n: _task(text, str(path)) for n, text in zip(numbers, texts, strict=True)}


def _task(text, where: str) -> str | None:
    """A task as text. A number becomes text, too, so that validation can complain about it."""
    if text is None or (isinstance(text, float) and math.isnan(text)):
        return None
    if not isinstance(text, str) and not _is_number(text):
        raise ValueError(f"{where}: the task is {text!r}, must be text")
    try:
        str(text).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{where}: the task {text!r} is not valid UTF-8 ({error})") from error
    return str(text)


def _texts(values) -> tuple[str, ...]:
    listed = [] if values is None or isinstance(values, str) else values
    return tuple(text for text in listed if isinstance(text, str) and text.strip())


def _template(info: dict, name: str, standard: str, where: str) -> str:
    template = info.get(name) or standard
    if not isinstance(template, str):
        raise ValueError(f"{where} is {template!r}, must be text")
    return template


def _integer(data: dict, key: str, where: str) -> int:
    value: typing.Any = data.get(key)
    if not _is_number(value) or not 0 <= value < 2**63 or value != int(value):
        raise ValueError(f"{where}: {key} is {value!r}, must be a whole number from 0 upwards")
    return int(value)


def _seconds(data: dict, key: str, where: str) -> float:
    value: typing.Any = data.get(key)
    if not _is_number(value) or not 0 <= value < math.inf:
        raise ValueError(f"{where}: {key} is {value!r}, must be seconds from 0 upwards")
    return float(value)


def _is_number(value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _parse_line(line: bytes, where: str) -> dict:
    try:
        data = atomic.parse_json(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} is not UTF-8 ({error})") from error
    except ValueError as error:
        raise ValueError(f"{where} is not JSON ({error})") from error
    if not isinstance(data, dict):
        raise ValueError(f"{where} must be a JSON object, found {type(data).__name__}")
    return data


def _convert_v1() -> str:
    return (
        "which is not read; convert it to v2.0 first, with "
        "lerobot/common/datasets/v2/convert_dataset_v1_to_v2.py of lerobot 0.1"
    )
