"""Episodes of a robot on disk. A finished one is never lost, whatever happens to the process.

    datasets/raw/NAME.parts/episode-000012/   an episode as soon as it is finished
    datasets/raw/NAME/                        LeRobot v3: all episodes, written when recording ends
    .rrf/robots/ROBOT.jsonl                   what happened: episodes, stops, resumptions

Recording goes on where it ended: episodes of an earlier process are counted, and go first.
"""

import concurrent.futures
import json
import shutil
import time
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from rrf import atomic, workspace
from rrf.data.conversion.checks_cfg import ChecksCfg
from rrf.data.conversion.dataset_cfg import DatasetCfg, SourceCfg, check_dataset_name
from rrf.data.conversion.encoded import EncodedEpisode, encode_episode
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.conversion.parts import read_facts, read_part, write_part
from rrf.data.conversion.stored_dataset import StoredDataset
from rrf.data.conversion.vector_cfg import VectorCfg
from rrf.data.dataset import parquet
from rrf.data.encoding import Encoding
from rrf.data.images import encode_png
from rrf.data.schema import ACTION, STATE, SUCCESS, EncodedImages, Episode, Schema
from rrf.envs.robots.configs import RobotCfg

_JPEG_QUALITY = 95
_MAX_WAITING = 150  # pictures that wait to be compressed


class EventLog:
    """What happens to a robot, one JSON object per line."""

    def __init__(self, robot: str):
        self.path = workspace.state() / "robots" / f"{robot}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and not self.path.read_bytes().endswith(b"\n"):
            with self.path.open("a") as file:  # a process was killed while it wrote a line
                file.write("\n")

    def __call__(self, event: str, **facts: typing.Any) -> None:
        line = json.dumps({"time": round(time.time(), 3), "event": event, **facts})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def next_attempt(self, recording: str, first: int = 0, number: int | None = None) -> int:
        """The number of the next episode of a recording.

        Args:
            recording: Its name.
            first: The lowest number.
            number: How many numbers there are from `first` on; others are of other seeds.
        """
        if not self.path.exists():
            return first
        attempts = [first - 1]
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                facts = atomic.parse_json(line)
            except ValueError:  # half a line
                continue
            attempt = facts.get("attempt")
            if facts.get("recording") != recording or not isinstance(attempt, int):
                continue
            if first <= attempt and (number is None or attempt < first + number):
                attempts.append(attempt)
        return max(attempts) + 1


class Recording:
    """The recordings of one name, this process's alone within a `with` statement.

    Args:
        name: Name of the dataset.
        cfg: The robot.
        schema: What an episode holds.

    Raises:
        ValueError: If there are recordings of that name with other features, or, when it is
            entered, if another process records them.
    """

    def __init__(self, name: str, cfg: RobotCfg, schema: Schema):
        check_dataset_name(name, "the recording")
        if not atomic.is_plain_name(name):
            raise ValueError(f"the name of a recording is '{name}', which is not a plain name")
        self.name, self._cfg, self._schema = name, cfg, schema
        self.out = workspace.home() / "datasets" / "raw" / name
        self._folder = self.out.with_name(f"{name}.parts")
        self._stored = StoredDataset(self.out) if self.out.exists() else None
        if self._stored is not None and self._stored.schema != schema:
            raise ValueError(
                f"{self.out} holds recordings with other features ({_facts(self._stored.schema)}; "
                f"now: {_facts(schema)}); choose another name"
            )
        self._compressor = concurrent.futures.ThreadPoolExecutor(1, "compress-images")
        busy = f"another process records {self.out} at this moment; wait, or choose another name"
        self._lock = atomic.alone(self._folder, busy)
        self.begin()

    def __enter__(self) -> typing.Self:
        self._lock.__enter__()
        for half in self._folder.glob(".tmp-*"):  # of a killed process; the lock is ours
            shutil.rmtree(half, ignore_errors=True)
        for part in self._folder.glob("episode-*"):
            if int(part.name.rpartition("-")[2]) < self._num_stored:  # a process was killed after
                atomic.remove(part)  # it had written the dataset
        for part in self._parts():
            features = read_facts(part)["features"]
            if features != _facts(self._schema):
                self._lock.__exit__(None, None, None)
                raise ValueError(
                    f"{part} was recorded with other features ({features}; now: "
                    f"{_facts(self._schema)}); choose another name, or remove it"
                )
        return self

    def __exit__(self, *exception) -> None:
        self._compressor.shutdown(cancel_futures=True)
        self._lock.__exit__(*exception)

    @property
    def num_episodes(self) -> int:
        """Finished episodes."""
        return self._num_stored + len(self._parts())

    @property
    def _num_stored(self) -> int:
        return len(self._stored.rows) if self._stored else 0

    def begin(self) -> None:
        """Forget the running episode, and begin another one."""
        self._states: list[list[float]] = []
        self._actions: list[list[float]] = []
        self._images: dict[str, list[concurrent.futures.Future[bytes]]] = {
            camera: [] for camera in self._schema.cameras
        }

    def add(self, observation: Mapping[str, typing.Any], action: Mapping[str, float]) -> None:
        """One control step: what was seen, and the action that followed.

        Raises:
            ValueError: If pictures come faster than they can be compressed.
        """
        self._states.append([float(observation[name]) for name in self._schema.state.names])
        self._actions.append([action[name] for name in self._schema.action.names])
        compress = encode_png_image if self._cfg.image_format == "png" else encode_jpeg_image
        for camera, images in self._images.items():
            images.append(self._compressor.submit(compress, np.array(observation[camera])))
        waiting = sum(
            not image.done() for images in self._images.values() for image in images[-200:]
        )
        if waiting > _MAX_WAITING:
            raise ValueError(
                "pictures come faster than they can be compressed; write image_format: jpg, or "
                "take smaller ones"
            )

    def keep(self, success: bool, **facts: typing.Any) -> None:
        """Finish the running episode: write it to disk.

        Args:
            success: Whether the task was solved; stands in the last frame.
            facts: Plain data kept beside it.
        """
        number, length = self.num_episodes, len(self._actions)
        succeeded = np.zeros(length, bool)
        succeeded[-1:] = success
        episode = Episode(
            images={
                camera: EncodedImages([image.result() for image in images], self._cfg.image_format)
                for camera, images in self._images.items()
            },
            state=np.asarray(self._states, np.float32),
            action=np.asarray(self._actions, np.float32),
            instruction=self._cfg.instruction,
            source=f"{self.name}:episode_{number}",
            success=succeeded,
        )
        encoded = encode_episode(episode, self._schema, Encoding())
        part = self._folder / f"episode-{number:06d}"
        facts |= {"success": success, "features": _facts(self._schema)}
        write_part(part, self._schema, [encoded], lambda: facts)
        self.begin()

    def finish(self) -> int:
        """Write the dataset of all finished episodes; the number of its frames, 0 without any."""
        parts = self._parts()
        if not parts:
            return self._stored.info["total_frames"] if self._stored else 0
        frames = write_dataset(
            self.out,
            self._schema,
            self._episodes(parts),
            robot_type=str(self._cfg.robot["type"]),
            provenance={
                "name": self.name,
                "licence": self._cfg.licence,
                "provenance": self._cfg.provenance,
            },
        )
        for part in parts:
            atomic.remove(part)
        self._stored = StoredDataset(self.out)
        return frames

    def dataset_cfg(self) -> DatasetCfg:
        """The config that converts these recordings."""
        vectors = ((STATE, self._schema.state), (ACTION, self._schema.action))
        state, action = (
            VectorCfg(
                keys=[key],
                names=list(vector.names),
                unit=vector.unit,
                low=list(vector.low) if vector.low else None,
                high=list(vector.high) if vector.high else None,
            )
            for key, vector in vectors
        )
        return DatasetCfg(
            name=self.name,
            source=SourceCfg(format="lerobot", path=f"datasets/raw/{self.name}"),
            fps=float(self._schema.fps),
            image_size=list(self._schema.image_size) if self._schema.cameras else None,
            cameras={name: f"observation.images.{name}" for name in self._schema.cameras},
            state=state,
            action=action,
            success=SUCCESS,
            robot_type=str(self._cfg.robot["type"]),
            licence=self._cfg.licence,
            provenance=self._cfg.provenance,
            checks=ChecksCfg(),
        )

    def _parts(self) -> list[Path]:
        return sorted(self._folder.glob("episode-*")) if self._folder.is_dir() else []

    def _episodes(self, parts: list[Path]) -> Iterator[EncodedEpisode]:
        for row in self._stored.rows if self._stored else ():
            yield self._stored_episode(row)
        for part in parts:
            yield from read_part(part, self._schema)

    def _stored_episode(self, row: Mapping) -> EncodedEpisode:
        assert self._stored is not None
        frames = self._stored.frames(row)
        episode = Episode(
            images={camera: self._stored.images(frames, camera) for camera in self._schema.cameras},
            state=parquet.as_matrix(frames[STATE]),
            action=parquet.as_matrix(frames[ACTION]),
            instruction=self._stored.instruction(frames),
            source=f"{self.name}:episode_{row['episode_index']}",
            success=frames[SUCCESS].to_numpy(),
        )
        return encode_episode(episode, self._schema, Encoding())


def write_dataset_cfg(recording: Recording) -> Path | None:
    """Write `configs/datasets/NAME.yaml` of the workspace, unless there is one of that name."""
    if recording.name in workspace.configs("datasets"):
        return None
    path = workspace.home() / "configs" / "datasets" / f"{recording.name}.yaml"
    atomic.write_text(path, recording.dataset_cfg().to_yaml())
    return path


def encode_png_image(image: np.ndarray) -> bytes:
    """The PNG file of a uint8 [H, W, 3] image."""
    return encode_png(image[None])[0]


def encode_jpeg_image(image: np.ndarray) -> bytes:
    """The JPEG file of a uint8 [H, W, 3] image."""
    import cv2

    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    is_done, blob = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    assert is_done
    return blob.tobytes()


def _facts(schema: Schema) -> str:
    height, width = schema.image_size
    return (
        f"{schema.fps:g} steps/s, state {', '.join(schema.state.names)}, cameras "
        f"{', '.join(schema.cameras) or 'none'} of {height}x{width}"
    )
