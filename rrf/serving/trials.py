"""Playing a study of trials: the policy server gives each episode to the arm whose trial runs.

A robot's program does what it always does: it begins an episode, asks for actions and ends the
episode. Which policy answers follows from the trial that the operator has started on the page, and
nothing that the robot or the operator is told says which one that is. What the robot reports as the
outcome is kept in the server's book and decides nothing; the operator's answer does.

    operator   Start              record: begin
    robot      begin_episode      record: played, the arm's policy answers from here on
    operator   solved, not, …     record: score
"""

import asyncio
import threading
import typing
from collections.abc import Callable, Mapping, Sequence

from rrf.evaluation.trials.record import ConflictError, Record
from rrf.evaluation.trials.results import is_solved, standing
from rrf.serving.book import Actor, Book, Episode
from rrf.serving.cast import Cast
from rrf.serving.configs import ServingCfg
from rrf.serving.player import Player
from rrf.serving.server import PolicyServer
from rrf.serving.standing import Standing

CODE = "trial"
"""What a robot is told as the role of whoever acts."""


class Session:
    """A study that is played. Several threads may use it.

    Args:
        record: The record, held by this process.
        serves: Whether this process serves the policies, so that a trial without an episode cannot
            be scored.
    """

    def __init__(self, record: Record, serves: bool):
        self._record, self._serves = record, serves
        self.asked: Standing | None = None
        """Whether the arms may act; None where nobody is asked. Once one must not, no trial begins;
        the one that runs is scored, and what was scored stays."""
        self._lock = threading.RLock()
        self._is_over, self._seen = False, ""

    @property
    def is_over(self) -> bool:
        """Whether no further trial is needed."""
        with self._lock:
            if self._seen != self._record.digest:
                self._is_over = standing(self._record).is_over
                self._seen = self._record.digest
            return self._is_over

    @property
    def refused(self) -> str:
        """Why no trial begins any more, since an arm must not act, or ""."""
        return self.asked.revoked if self.asked else ""

    def view(self) -> dict[str, typing.Any]:
        """What the operator sees. Nothing in it says which arm is which, or how the arms stand."""
        with self._lock:
            plan, state = self._record.plan, self._record.state
            protocol, turn = plan.protocol, None if self.is_over else state.turn
            seen: dict[str, typing.Any] = {
                "study": plan.name,
                "criterion": protocol.success_rule,
                "rubric": protocol.rubric,
                "stages": protocol.stages,
                "tags": protocol.failure_tags,
                "max_s": protocol.max_s,
                "serves": self._serves,
                "most": plan.num_trials,
                "valid": sum(trial.is_valid for trial in state.trials),
                "invalid": sum(not trial.is_valid for trial in state.trials),
                "trial": None,
                "last": self._last(),
            }
            if turn is None:
                return seen
            slot = turn.slot
            seen["trial"] = {
                "id": turn.id,
                "code": slot.code,
                "condition": slot.condition,
                "setup": protocol.conditions[slot.condition],
                "begun": state.begun,
                "played": bool(state.episodes),
                "correction": state.is_correction,
            }
            return seen

    def start(self, trial: str, content: Mapping) -> None:
        """The operator starts a trial. Raises ConflictError."""
        with self._lock:
            self._check_running()
            self._record.begin(trial, str(content.get("by") or "")[:80])

    def score(self, trial: str, content: Mapping) -> None:
        """The operator says how a trial ended. Raises like `Record.score`."""
        with self._lock:
            state = self._record.state
            is_now = state.turn is not None and state.turn.id == trial
            if self._serves and is_now and state.begun and not state.episodes:
                raise ConflictError(
                    "the robot has not begun an episode in this trial, so no policy has acted; let "
                    "it begin, or mark the trial as invalid"
                )
            self._record.score(trial, content)

    def invalid(self, trial: str, content: Mapping) -> None:
        """A trial cannot be scored. Raises like `Record.invalid`."""
        with self._lock:
            self._record.invalid(trial, content)

    def undo(self, trial: str, content: Mapping) -> None:
        """Take back the last answer. Raises like `Record.undo`."""
        with self._lock:
            self._record.undo(trial, content)

    def played(self, episode: str) -> str:
        """The arm of the episode that begins. Raises ConflictError if no trial runs."""
        with self._lock:
            self._check_running()
            return self._record.played(episode).slot.arm

    def _check_running(self) -> None:
        if self.is_over:
            raise ConflictError("the study is over; no further trial counts")
        if why := self.refused:
            raise ConflictError(f"{why}; what was scored is kept")

    def _last(self) -> dict[str, str] | None:
        last = self._record.state.last_answer
        if last is None:
            return None
        trial = next(t for t in self._record.state.trials if t.turn.id == last["trial"])
        if not trial.is_valid:
            said = f"invalid: {last['reason']}"
        else:
            said = "solved" if last["success"] else "not solved"
            if last["success"] and not is_solved(trial, self._record.plan.protocol):
                said = "solved with help, which counts as not solved"
        return {"trial": trial.turn.id, "code": trial.turn.slot.code, "said": said}


class TrialCast(Cast):
    """Who answers: in an announced episode the arm whose trial runs, otherwise nobody.

    Args:
        players: Arm -> its policy.
        session: The study.

    Raises:
        ValueError: If two arms give one input different types or shapes, or have different actions.
    """

    def __init__(self, players: Mapping[str, Player], session: Session):
        # Whichever arm acts: who is told which one is meant would know which one acts.
        super().__init__(_nobody(players, session), lambda _: session.refused)
        self._arms, self._session = players, session
        for arm, player in players.items():
            player.version = arm  # plans name arms, and two of them may be one checkpoint
            self.players[player.key] = player

    def choose(self, id: str) -> Actor:
        """See `Cast.choose`. Raises ValueError if no trial runs."""
        arm = self._session.played(id)
        return self._arms[arm].acts("champion")

    def told(self, episode: Episode) -> dict[str, str]:
        """Nothing that tells the arms apart."""
        return {"id": episode.id, "version": "", "digest": "", "role": CODE}

    def retire(self, running: Sequence[Episode]) -> None:
        """Nobody is retired while the study is played."""


async def serve_arms(
    players: Mapping[str, Player],
    session: Session,
    cfg: ServingCfg,
    token: str | None,
    book: Book,
    stop: asyncio.Event,
    on_ready: Callable[[str, int], None],
) -> None:
    """Serve the arms of a study to robots until `stop` is set; see `PolicyServer.run`."""
    server = PolicyServer(cfg, TrialCast(players, session), token, book)
    for player in players.values():
        server.start(player)
    await server.run(stop, on_ready, [session.asked.watch()] if session.asked else [])


def _nobody(players: Mapping[str, Player], session: Session) -> Player:
    """Who answers without an episode: nobody. Robots are told what all arms have in common."""
    inputs: dict[str, typing.Any] = {}
    actions = {str(player.metadata["actions"]) for player in players.values()}
    for arm, player in players.items():
        for name, shape in player.metadata["inputs"].items():
            if inputs.setdefault(name, shape) != shape:
                raise ValueError(
                    f"arm '{arm}' takes {name} as {shape}, another arm as {inputs[name]}; a robot "
                    "that is not told which arm acts cannot send both"
                )
    first = next(iter(players.values()))
    widths = {tuple(player.metadata["actions"]["shape"][-1:]) for player in players.values()}
    if len(widths) > 1:
        raise ValueError(f"the arms have different actions: {', '.join(sorted(actions))}")
    nobody = _Nobody(first, {**first.metadata, "inputs": inputs, "digest": "", "policy": "a trial"})
    nobody.metadata["kind"] = ""
    return nobody


class _Nobody(Player):
    """Refuses every observation."""

    def __init__(self, first: Player, metadata: dict[str, typing.Any]):
        super().__init__(first.policy, self._refuse)
        self.metadata, self.digest = metadata, ""

    def _refuse(self, content: typing.Any) -> typing.NoReturn:
        raise ValueError(
            "this server plays trials: begin an episode (client.begin_episode) when the operator "
            "has pressed Start, and send observations until it ends"
        )
