"""Scenes that take long to load, kept for slots that change their task."""

from __future__ import annotations

import typing


class Scenes:
    """A scene of its own for every slot, and some idle ones that no slot uses at present."""

    def __init__(
        self,
        load: typing.Callable[[str], typing.Any],
        close: typing.Callable[[typing.Any], None],
        max_loaded: int,
    ):
        """
        Args:
            load: Makes the scene of a task.
            close: Frees a scene.
            max_loaded: Scenes in memory; the one that was idle longest makes place for another.
        """
        self._load, self._close, self._max_loaded = load, close, max_loaded
        self._running = {}  # slot -> (task, scene)
        self._idle = []  # (task, scene), least recently used first

    def __getitem__(self, slot: int) -> typing.Any:
        """The scene of a slot."""
        return self._running[slot][1]

    def task(self, slot: int) -> str:
        """The task of a slot's scene."""
        return self._running[slot][0]

    def give(self, slot: int, task: str) -> typing.Any:
        """Give a slot a scene of a task, in place of the one it has."""
        if slot in self._running:
            self._idle.append(self._running.pop(slot))
        scene = self._free(task)
        self._running[slot] = task, scene
        return scene

    def close(self) -> None:
        """Free all scenes."""
        for _, scene in [*self._running.values(), *self._idle]:
            self._close(scene)
        self._running, self._idle = {}, []

    def _free(self, task: str) -> typing.Any:
        for number in reversed(range(len(self._idle))):
            if self._idle[number][0] == task:
                return self._idle.pop(number)[1]
        while self._idle and len(self._running) + len(self._idle) >= self._max_loaded:
            self._close(self._idle.pop(0)[1])
        return self._load(task)
