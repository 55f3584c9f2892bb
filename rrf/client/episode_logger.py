"""Logs the episodes of a robot on its own disk, whatever becomes of the network, of the process and
of the disk. `rrf.data.episode_log` is the format, `rrf.client.upload` sends what is finished.

    log = EpisodeLogger("robot-logs", "arm-3")
    with PolicyClient(url, log=log) as client:
        client.begin_episode(task="open the drawer", fps=10)
        ...
            log.step(observation, action)                    # what was executed, in every step
            log.step(observation, action, by=OPERATOR)       # while the operator corrects it
        client.end_episode(SUCCESS)

Compressing and writing is a thread's work. Acting never waits for it and never fails because of it:
when the disk is full, or pictures come faster than they can be written, one line says so, and what
is on disk stays as it is. A killed process loses the few steps that waited for the thread. What is
written is on the disk itself at most `SYNC_S` later, so a power cut loses no more than that.
"""

import contextlib
import os
import queue
import secrets
import sys
import threading
import time
import typing
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from rrf import atomic, formats
from rrf.data import episode_log, log_records
from rrf.data.episode_log import BEGIN, END, EVENT, OPERATOR, POLICY, STEP, Summary

SYNC_S = 0.5
_MAX_WAITING_BYTES = 256 << 20
_LEAVE, _STOP = object(), object()


class EpisodeLogger:
    """The log of one robot.

    Args:
        folder: Where its episodes go, each into a folder of its own.
        robot: Its name.
        say: Called with the line that says why logging stopped; by default written to stderr.
        max_waiting_bytes: How much may wait to be compressed and written.
    """

    def __init__(
        self,
        folder: str | Path,
        robot: str,
        *,
        say: Callable[[str], None] | None = None,
        max_waiting_bytes: int = _MAX_WAITING_BYTES,
    ):
        self.folder, self.robot = Path(folder), robot
        self._say, self._max_bytes = say or _to_stderr, max_waiting_bytes
        self.problem = ""
        """Why the running episode is not logged any further; "" while it is."""
        self.episode: str | None = None
        """The id of the running episode."""
        self.is_corrected = False
        """Whether an operator has acted in the episode that began last."""
        self._said = ""
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        self._waiting, self._lock = 0, threading.Lock()
        self._next, self._began_s = 0, 0.0
        self._latency_s: float | None = None
        self._by = POLICY
        self._thread = threading.Thread(target=self._write, name="episode-log", daemon=True)
        self._thread.start()

    def __enter__(self) -> typing.Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def begin(
        self,
        task: str,
        fps: float,
        *,
        instruction: str | None = None,
        policy: Mapping[str, typing.Any] | None = None,
        start: Mapping[str, typing.Any] | None = None,
        state_names: typing.Sequence[str] | None = None,
        action_names: typing.Sequence[str] | None = None,
        episode: str | None = None,
    ) -> str:
        """Begin an episode; one that still runs ends as unknown.

        Args:
            task: What failures are counted by.
            fps: Control steps per second.
            instruction: What the policy is told; by default the task.
            policy: name, version, digest and url of what acts.
            start: What is known of the start, e.g. {"place": "left"}; plain data.
            state_names: Names of observation.state.
            action_names: Names of the action.
            episode: Its id; a new one by default.

        Returns:
            The id.
        """
        if self.episode is not None:
            self.end(episode_log.UNKNOWN, "another episode began")
        name = episode_log.check_id(episode or new_id(), "begin")
        record = {
            "kind": BEGIN,
            **formats.EPISODE_LOG.mark,
            "episode": name,
            "robot": self.robot,
            "task": task,
            "instruction": task if instruction is None else instruction,
            "fps": float(fps),
            "policy": dict(policy or {}),
            "start": dict(start or {}),
            "state_names": list(state_names or []),
            "action_names": list(action_names or []),
            "clock": _clock(),
        }
        log_records.pack_record(record)  # plain data, or ValueError before anything is begun
        Summary("begin").add(record)
        self.episode, self.problem, self._next = name, "", 0
        self.is_corrected = False
        self._began_s, self._by, self._latency_s = time.monotonic(), POLICY, None
        self._put(record)
        return name

    def answered(self, latency_s: float, by: str = POLICY) -> None:
        """An answer came, whose actions the next steps execute."""
        self._latency_s, self._by = latency_s, by

    def step(
        self,
        observation: Mapping[str, typing.Any],
        action: np.ndarray,
        *,
        by: str | None = None,
        progress: float | None = None,
    ) -> None:
        """A control step: what was seen, and the action that was executed, [A].

        Args:
            observation: Arrays, and texts, which are left out.
            action: As it was executed, after all limits.
            by: Who decided, `OPERATOR` for a correction; by default who gave the last answer.
            progress: How much of the task is done, 0 to 1, where something measures it.
        """
        if self.episode is None:
            raise ValueError("no episode was begun: call begin")
        self.is_corrected |= by == OPERATOR
        if self.problem:
            return
        record = {
            "kind": STEP,
            "index": self._next,
            "t": self._t(),
            "observation": {
                key: np.array(value) for key, value in observation.items() if _is_numbers(value)
            },
            "action": np.array(action, np.float32).reshape(-1),
            "by": by or self._by,
        }
        if self._latency_s is not None:
            record["latency_s"], self._latency_s = float(self._latency_s), None
        if progress is not None and np.isfinite(progress):
            record["progress"] = float(progress)
        self._next += 1
        self._put(record)

    def event(self, what: str, **facts: typing.Any) -> None:
        """Something happened: a guard stopped the robot, the policy was revoked. Outside of an
        episode nothing is kept."""
        if self.episode is not None and not self.problem:
            self._put({"kind": EVENT, "t": self._t(), "what": what, "facts": facts})

    def end(self, outcome: str, how: str = "", score: float | None = None) -> None:
        """The episode is over. Returns at once; the thread closes its files.

        Args:
            outcome: success, failure or unknown.
            how: In a few words.
            score: Partial credit, where there is a rubric.
        """
        if outcome not in episode_log.OUTCOMES:
            raise ValueError(f"the outcome is {outcome!r}, allowed: success, failure or unknown")
        if self.episode is None:
            raise ValueError("no episode was begun: call begin")
        record = {"kind": END, "t": self._t(), "outcome": outcome, "how": how}
        record["score"] = None if score is None else float(score)
        if self.problem:  # steps are missing, so it stays unfinished
            self._queue.put((_LEAVE, 0))
        else:
            self._put(record | {"clock": _clock()})
        self.episode = None

    def flush(self) -> None:
        """Wait until all that was logged is on the disk, or could not be written."""
        done = threading.Event()
        self._queue.put((done, 0))
        done.wait()

    def close(self) -> None:
        """End what runs as unknown, and the thread."""
        if self._thread.is_alive():
            if self.episode is not None:
                self.end(episode_log.UNKNOWN, "the log was closed")
            self._queue.put((_STOP, 0))
            self._thread.join()

    def _t(self) -> float:
        return round(time.monotonic() - self._began_s, 6)

    def _put(self, record: dict) -> None:
        size = sum(value.nbytes for value in record.get("observation", {}).values())
        with self._lock:
            is_full = self._waiting + size > self._max_bytes
            self._waiting += 0 if is_full else size
        if is_full:
            self._stopped("pictures come faster than they can be written", self.episode)
        else:
            self._queue.put((record, size))

    def _stopped(self, why: str, episode: str | None) -> None:
        if episode == self.episode:
            self.problem = why
        if why != self._said:
            self._said = why
            self._say(f"{self.robot}: this episode is logged no further: {why}; the robot goes on")

    def _write(self) -> None:
        """What the thread does."""
        writer: _Writer | None = None
        name = None
        while True:
            try:
                item, size = self._queue.get(timeout=SYNC_S if writer else None)
            except queue.Empty:
                item, size = None, 0
            try:
                if isinstance(item, dict) and item["kind"] == BEGIN:
                    name, writer = item["episode"], _closed(writer)
                    writer = _Writer(self.folder / name)
                if isinstance(item, dict) and writer is not None:
                    writer.write(item)
                    if item["kind"] == END:
                        writer, self._said = _closed(writer, is_over=True), ""
                elif writer is not None:
                    writer.sync()
            except (OSError, ValueError) as error:
                self._stopped(str(error), name)
                writer = _closed(writer)
            with self._lock:
                self._waiting -= size
            if isinstance(item, threading.Event):
                item.set()
            elif item is _LEAVE:
                writer = _closed(writer)
            elif item is _STOP:
                _closed(writer)
                return


class _Writer:
    """The files of one episode, which this process holds."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._held = contextlib.ExitStack()
        self._held.enter_context(atomic.alone(folder, f"{folder} is written by another process"))
        self._summary, self._number, self._synced_s = Summary(str(folder)), -1, 0.0
        self._file: typing.BinaryIO | None = None
        self._size = 0

    def write(self, record: dict) -> None:
        """Append a record; on an error the file ends with the record before."""
        data = log_records.pack_record(record)
        self._summary.add(record)
        if self._file is None or (self._size + len(data) > episode_log.CHUNK_BYTES and self._size):
            self.sync(is_due=True)
            self._open_next()
        assert self._file is not None
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._file.fileno(), rest) :]
        except OSError:
            os.ftruncate(self._file.fileno(), self._size)
            raise
        self._size += len(data)
        self.sync()

    def sync(self, is_due: bool = False) -> None:
        """Bring what was written to the disk itself, now and then."""
        if self._file is not None and (is_due or time.monotonic() - self._synced_s >= SYNC_S):
            os.fsync(self._file.fileno())
            self._synced_s = time.monotonic()

    def close(self, is_over: bool) -> None:
        """Let go of the files; of an episode that is over, write the manifest."""
        try:
            self.sync(is_due=True)
            if is_over:
                episode_log.write_manifest(self._folder, self._summary)
        finally:
            if self._file is not None:
                self._file.close()
            self._held.close()

    def _open_next(self) -> None:
        if self._file is not None:
            self._file.close()
        self._number, self._size = self._number + 1, 0
        path = self._folder / f"{self._number:06d}{episode_log.SUFFIX}"
        self._file = path.open("xb", buffering=0)


def _closed(writer: _Writer | None, is_over: bool = False) -> None:
    """Let go of an episode's files. What cannot be written now is written by `close_left`."""
    if writer is not None:
        with contextlib.suppress(OSError):
            writer.close(is_over)


def new_id() -> str:
    """An id that no other episode has: the time, for people, and a random number."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(6)}"


def _clock() -> dict[str, float]:
    return {"unix_s": time.time(), "monotonic_s": time.monotonic()}


def _is_numbers(value: typing.Any) -> bool:
    return np.asarray(value).dtype.kind in "biuf"


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
