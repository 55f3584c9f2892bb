"""The record of a study: what people did and saw, a line for each, written before it is confirmed.

`record.jsonl` only grows. A line holds its number, the hash of the line before it and its own, so a
line that is changed or left out is noticed. An answer that was wrong is undone by a further line.
A line that a kill or a power cut has left half written was never confirmed, and is cut off.

    begin     the operator starts a trial: the robot may move
    played    the policy server gives an episode to the trial's arm
    score     how the trial ended
    invalid   it cannot be scored, with the reason; it is played again at the end of its block
    undo      takes back the last answer
    look      somebody looks at results before the study is over

One process at a time may write (`alone`); the state follows from the lines alone (`State`).
"""

import contextlib
import dataclasses
import datetime
import json
import os
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rrf import atomic, formats
from rrf.evaluation.trials import order
from rrf.evaluation.trials.order import Slot
from rrf.evaluation.trials.plan import RECORD, Plan

EVENTS = ("begin", "played", "score", "invalid", "undo", "look")
_MOST_TEXT, _MOST_INTERVENTIONS, _MOST_TAGS = 2_000, 1_000, 20


class ConflictError(ValueError):
    """What is said is about a trial that is not the one of the moment."""


@dataclasses.dataclass(frozen=True)
class Turn:
    """One playing of a slot; a slot whose trial was invalid is played again."""

    slot: Slot
    attempt: int
    """From 1."""

    @property
    def id(self) -> str:
        """What clients call it, e.g. 7 or 7.2."""
        return f"{self.slot.number}" + (f".{self.attempt}" if self.attempt > 1 else "")


@dataclasses.dataclass(frozen=True)
class Trial:
    """A turn that was answered."""

    turn: Turn
    answer: Mapping[str, typing.Any]
    """The line, `score` or `invalid`."""
    begun: str
    ended: str
    """When it was answered for the first time, ISO 8601."""
    episodes: tuple[str, ...]
    """The episodes that the policy server gave to the arm."""

    @property
    def is_valid(self) -> bool:
        """Whether it counts."""
        return self.answer["event"] == "score"

    @property
    def duration_s(self) -> float:
        """From its start to its answer, by the clock of the server."""
        begin, end = map(datetime.datetime.fromisoformat, (self.begun, self.ended))
        return max(0.0, (end - begin).total_seconds())


class State:
    """What the lines of a record say.

    Raises:
        ValueError: For lines that contradict the plan.
    """

    def __init__(self, plan: Plan, secret: str, lines: Sequence[Mapping]):
        self.plan, self.lines = plan, list(lines)
        self._secret, self._conditions = secret, list(plan.protocol.conditions)
        begun: dict[str, str] = {}
        episodes: dict[str, list[str]] = {}
        answers: dict[str, Mapping] = {}
        ended: dict[str, str] = {}
        self.last_answer: Mapping | None = None
        """The last answer that can be undone."""
        self.looks: list[Mapping] = []
        for line in lines:
            event, trial = line["event"], line.get("trial", "")
            if event == "begin":
                begun.setdefault(trial, line["time"])
            elif event == "played":
                episodes.setdefault(trial, []).append(line["episode"])
            elif event == "undo":
                answers.pop(trial)
                self.last_answer = None
            elif event == "look":
                self.looks.append(line)
            else:
                answers[trial] = self.last_answer = line
                ended.setdefault(trial, line["time"])
        self.trials: list[Trial] = []
        """The answered turns, in the order of the plan."""
        self.num_blocks = 0
        """The complete blocks."""
        self.turn: Turn | None = None
        """The turn of the moment; None after the last block."""
        self._walk(begun, ended, episodes, answers)
        self.is_correction = self.turn is not None and self.turn.id in ended
        """Whether the turn of the moment was answered before, and that was undone."""
        self.begun = begun.get(self.turn.id) if self.turn else None
        """When the turn of the moment began; None before that."""
        self.episodes = tuple(episodes.get(self.turn.id, ())) if self.turn else ()

    def _walk(
        self,
        begun: Mapping[str, str],
        ended: Mapping[str, str],
        episodes: Mapping[str, list[str]],
        answers: Mapping[str, Mapping],
    ) -> None:
        arms = [arm.name for arm in self.plan.arms]
        for block in range(self.plan.num_blocks):
            waiting = [
                Turn(slot, 1) for slot in order.slots(self._secret, block, self._conditions, arms)
            ]
            while waiting:
                turn = waiting.pop(0)
                answer = answers.get(turn.id)
                if answer is None:
                    self.turn = turn
                    return
                played = tuple(episodes.get(turn.id, ()))
                end = ended[turn.id]
                trial = Trial(turn, answer, begun.get(turn.id, end), end, played)
                self.trials.append(trial)
                if not trial.is_valid:
                    waiting.append(Turn(turn.slot, turn.attempt + 1))
            self.num_blocks = block + 1


class Record:
    """The record of a study in its folder; `hold` it to write.

    Args:
        folder: Of the study.

    Raises:
        ValueError: If it was changed, or does not belong to the plan.
        OSError: Also when it is written, if the disk is full, for instance.
    """

    def __init__(self, folder: Path):
        self.file = folder / RECORD
        self.plan = Plan.load(folder)
        self._secret = self.plan.secret(folder)
        self._lines, self._size = _read(self.file, self.plan)
        self.state = State(self.plan, self._secret, self._lines)

    @property
    def digest(self) -> str:
        """The hash of the last line, which holds those of all before it."""
        return self._lines[-1]["hash"] if self._lines else self.plan.digest

    @property
    def lines(self) -> list[dict]:
        """All lines."""
        return list(self._lines)

    def reload(self) -> None:
        """Read what another process has written."""
        self._lines, self._size = _read(self.file, self.plan)
        self.state = State(self.plan, self._secret, self._lines)

    def begin(self, trial: str, by: str = "") -> None:
        """The operator starts the turn; again changes nothing. Raises ConflictError."""
        turn = self._turn(trial)
        if self.state.begun is None:
            self._append("begin", trial=turn.id, by=_text("by", by, 80))

    def played(self, episode: str) -> Turn:
        """An episode begins at the policy server; returns the turn that it belongs to.

        Raises:
            ConflictError: If no trial runs, or it has had another episode.
        """
        turn = self.state.turn
        if turn is None or self.state.begun is None:
            raise ConflictError(
                "no trial runs; press Start on the operator's page before the robot begins"
            )
        if self.state.is_correction:
            raise ConflictError(
                f"the answer to trial {turn.id} was undone; answer it again before a robot begins"
            )
        if self.state.episodes and episode not in self.state.episodes:
            raise ConflictError(
                f"trial {turn.id} has had its episode; the operator says how it ended, or marks it "
                "as invalid to play it again"
            )
        if not self.state.episodes:
            self._append("played", trial=turn.id, episode=_text("episode", episode, 128))
        return turn

    def score(self, trial: str, content: Mapping[str, typing.Any]) -> None:
        """How the turn of the moment ended. The same answer again (by its `id`) changes nothing.

        Args:
            trial: The turn that it is about.
            content: id, success, interventions, steps, stage, tags, notes, by.

        Raises:
            ConflictError: If it is not the turn of the moment, or not begun.
            ValueError: For content that the protocol does not know.
        """
        facts = self._scored(content)
        self._answer("score", trial, content, facts)

    def invalid(self, trial: str, content: Mapping[str, typing.Any]) -> None:
        """The turn of the moment cannot be scored. Raises like `score`; content: id, reason, by."""
        reason = _text("reason", content.get("reason"), _MOST_TEXT).strip()
        if not reason:
            raise ValueError("an invalid trial needs a reason; it is counted and reported")
        self._answer("invalid", trial, content, {"reason": reason})

    def undo(self, trial: str, content: Mapping[str, typing.Any]) -> None:
        """Take back the last answer, if it is this turn's; content: id, by. Raises like `score`."""
        if self._is_known(content):
            return
        last = self.state.last_answer
        if last is None or last["trial"] != trial:
            raise ConflictError(
                f"trial {trial} is not the one that was answered last, or was undone already"
            )
        self._append(
            "undo", trial=trial, answer=_id(content), by=_text("by", content.get("by"), 80)
        )

    def look(self, by: str = "") -> None:
        """Somebody looks at results before the study is over."""
        self._append("look", trials=len(self.state.trials), by=_text("by", by, 80))

    def _answer(
        self, event: str, trial: str, content: Mapping, facts: Mapping[str, typing.Any]
    ) -> None:
        if self._is_known(content):
            return
        turn = self._turn(trial)
        if self.state.begun is None and event == "score":
            raise ConflictError(f"trial {trial} has not begun; press Start first")
        by = _text("by", content.get("by"), 80)
        self._append(event, trial=turn.id, answer=_id(content), **facts, by=by)

    def _is_known(self, content: Mapping) -> bool:
        answer = _id(content)
        return any(line.get("answer") == answer for line in self._lines)

    def _turn(self, trial: str) -> Turn:
        turn = self.state.turn
        if turn is None:
            raise ConflictError("the study is over: all of its blocks are complete")
        if turn.id != trial:
            raise ConflictError(
                f"trial {trial} is not the one of the moment, which is {turn.id}; somebody "
                "else may have answered it"
            )
        return turn

    def _scored(self, content: Mapping) -> dict[str, typing.Any]:
        protocol = self.plan.protocol
        success, number = content.get("success"), content.get("interventions", 0)
        if type(success) is not bool:
            raise ValueError(f"success is {success!r:.40}, allowed: true or false")
        if type(number) is not int or not 0 <= number <= _MOST_INTERVENTIONS:
            raise ValueError(
                f"interventions is {number!r:.40}, allowed: 0 to {_MOST_INTERVENTIONS}"
            )
        steps, stage = content.get("steps", []), content.get("stage", "")
        if not isinstance(steps, list) or len(steps) != len(set(map(str, steps))):
            raise ValueError("steps is a list of steps of the rubric, each once")
        for step in steps:
            if step not in protocol.rubric:
                raise ValueError(f"the rubric has no step {step!r:.80}")
        if stage and stage not in protocol.stages:
            raise ValueError(f"there is no stage {stage!r:.80}")
        if protocol.stages and success and stage != protocol.stages[-1]:
            raise ValueError(
                f"a solved trial reaches the last stage, '{protocol.stages[-1]}', not '{stage}'"
            )
        tags = content.get("tags", [])
        if not isinstance(tags, list) or len(tags) > _MOST_TAGS:
            raise ValueError(f"tags is a list of at most {_MOST_TAGS} words")
        return {
            "success": success,
            "interventions": number,
            "steps": steps,
            "stage": stage,
            "tags": [_text("a tag", tag, 80) for tag in tags],
            "notes": _text("notes", content.get("notes"), _MOST_TEXT),
        }

    def _append(self, event: str, **facts: typing.Any) -> None:
        """Write a line; returns when it is on the disk."""
        line = {
            **formats.TRIAL.mark,
            "number": len(self._lines) + 1,
            "before": self.digest,
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            "event": event,
            **facts,
        }
        line["hash"] = atomic.digest_of(line)
        state = State(self.plan, self._secret, [*self._lines, line])
        content = (json.dumps(line, ensure_ascii=False) + "\n").encode()
        is_new = not self.file.exists()
        with self.file.open("r+b" if not is_new else "xb") as stream:
            stream.truncate(self._size)  # what a kill has left half written
            stream.seek(self._size)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if is_new:
            descriptor = os.open(self.file.parent, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        self._lines.append(line)
        self._size += len(content)
        self.state = state


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[Record]:
    """The record, which no other process writes meanwhile.

    Raises:
        ValueError: If another process holds it, or like `Record`.
    """
    Plan.load(folder)  # an error that names the studies, before a folder is made
    busy = f"another process writes the record of '{folder.name}' (rrf trial serve?); stop it first"
    with atomic.alone(folder, busy):
        yield Record(folder)


def _read(file: Path, plan: Plan) -> tuple[list[dict], int]:
    """The complete lines of a record, and their length in bytes."""
    content = file.read_bytes() if file.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    before, lines = plan.digest, []
    for number, text in enumerate(whole.splitlines(), start=1):
        where = f"{file}, line {number}"
        try:
            line = atomic.parse_json(text)
            formats.TRIAL.check(line, where)
            hash = line["hash"]
            is_next = (line["number"], line["before"]) == (number, before)
            is_own = atomic.digest_of({k: v for k, v in line.items() if k != "hash"}) == hash
            if not is_next or not is_own or line["event"] not in EVENTS:
                raise ValueError("it does not follow from the lines before it")
        except formats.NewerFormatError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{where}: the record was changed ({error}); restore it from a backup"
            ) from error
        before = hash
        lines.append(line)
    return lines, len(whole)


def _id(content: Mapping) -> str:
    text = _text("id", content.get("id"), 64)
    if len(text) < 8:
        raise ValueError("an answer needs an id of 8 to 64 characters, never used before")
    return text


def _text(what: str, value: typing.Any, most: int) -> str:
    value = "" if value is None else value
    if not isinstance(value, str) or len(value) > most or "\0" in value:
        raise ValueError(f"{what} must be a text of at most {most} characters, not {value!r:.60}")
    return value
