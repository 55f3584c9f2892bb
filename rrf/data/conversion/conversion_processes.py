"""Processes that convert recordings side by side.

Each has its own interpreter and reader. They end with the process that started them, even if that
is killed, and stop after the episode at hand when one of them fails.
"""

import ctypes
import dataclasses
import functools
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.sharedctypes import SynchronizedArray
from pathlib import Path

from rrf.data.conversion.dataset_cfg import DatasetCfg
from rrf.data.conversion.recordings import Counters, RecordingConverter
from rrf.data.raw import Recording
from rrf.lookup import load_plugins

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.2


class ConversionProcesses:
    """A pool of processes for one dataset.

    Args:
        cfg: The dataset.
        raw: Where its recordings lie.
        num_workers: How many processes.
        report: Called a few times a second while a recording is waited for.
    """

    def __init__(
        self,
        cfg: DatasetCfg,
        raw: Path,
        num_workers: int,
        report: Callable[[Counters, str], None],
    ):
        context = multiprocessing.get_context("spawn")
        self._report = report
        self._counters = context.Array("q", 2)  # episodes, frames
        self._is_stopped = context.RawValue("b", 0)
        self._futures: dict[str, Future] = {}
        self._executor = ProcessPoolExecutor(
            num_workers,
            mp_context=context,
            initializer=_begin,
            initargs=(cfg.to_dict(), str(raw), os.getpid(), self._counters, self._is_stopped),
        )

    def __enter__(self) -> "ConversionProcesses":
        return self

    def __exit__(self, *error) -> None:
        self._is_stopped.value = 1
        self._executor.shutdown(cancel_futures=True)

    @property
    def counters(self) -> Counters:
        """What has been compressed so far."""
        return Counters(*self._counters.get_obj())

    def start(self, work: Iterable[tuple[Recording, Path]]) -> None:
        """Begin to convert recordings into parts."""
        for recording, part in work:
            plain = dataclasses.asdict(recording)
            self._futures[recording.name] = self._executor.submit(_convert, plain, str(part))

    def finish(self, recording: Recording, part: Path) -> None:
        """Wait for a recording that was started.

        Raises:
            ChildProcessError: If a process died.
            ValueError: What converting it raised, or making the reader.
        """
        future = self._futures.pop(recording.name)
        try:
            while not wait([future], timeout=_POLL_S).done:
                self._report(self.counters, recording.name)
            future.result()
        except BrokenProcessPool as error:
            raise ChildProcessError(
                f"a process converting {recording.name} (or another recording) was killed, perhaps "
                "for lack of memory; finished recordings are kept, so run the same again, with "
                "fewer --workers"
            ) from error
        assert part.is_dir()


class _Worker:
    """What a process holds."""

    cfg: dict
    raw: Path
    counters: SynchronizedArray
    is_stopped: ctypes.c_byte


def _begin(
    cfg: dict, raw: str, parent: int, counters: SynchronizedArray, is_stopped: ctypes.c_byte
) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it died before the kernel knew of our wish
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    _Worker.cfg, _Worker.raw = cfg, Path(raw)
    _Worker.counters, _Worker.is_stopped = counters, is_stopped


@functools.cache
def _converter() -> RecordingConverter:
    """Made with the first recording: what `_begin` raised would not reach the parent process."""
    load_plugins()
    dataset = DatasetCfg.from_dict(_Worker.cfg)
    return RecordingConverter(dataset, dataset.reader(_Worker.raw))


def _convert(recording: dict, part: str) -> None:
    def on_episode(frames: int) -> None:
        if _Worker.is_stopped.value:
            raise InterruptedError("the conversion was stopped")
        with _Worker.counters.get_lock():
            _Worker.counters[0] += 1
            _Worker.counters[1] += frames

    paths = tuple(Path(path) for path in recording["paths"])
    part_of_recording = Recording(recording["name"], paths, recording["num_episodes"])
    _converter().convert(part_of_recording, Path(part), on_episode)
