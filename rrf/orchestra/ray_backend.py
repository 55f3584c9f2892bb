"""The Ray backend: the roles of the inline backend as actors, on one machine or many.

Environment roles answer like child processes, and rollout roles like a local one. What decides
which episodes are played, and with which randomness, stays in the driver; so the episodes are those
of the inline backend, bit for bit, wherever they are played. An actor that dies or hangs is
replaced, also on another node, and its episodes are played again.

Several rollout roles answer at the same time, each to other environments, while the remaining
environments simulate.
"""

import typing
from collections.abc import Sequence

from rrf.data.schema import Observation
from rrf.envs.configs import VecEnvCfg
from rrf.envs.observations import join
from rrf.orchestra.env_workers import Worker
from rrf.orchestra.game import Game
from rrf.orchestra.inline import Asking, InlineBackend, generators_of
from rrf.orchestra.placement import Placement
from rrf.orchestra.ray_child import RayChild, first_ready
from rrf.orchestra.ray_cluster import Cluster
from rrf.orchestra.ray_rollouts import Call, RayRollouts


class RayProcesses:
    """Environment roles as actors; see `rrf.orchestra.env_workers.Processes`."""

    def __init__(self, cluster: Cluster, placement: Placement):
        self._cluster, self._placed = cluster, placement.roles["env"]

    def start(
        self, number: int, name: str, role: str, arguments: dict, timeout_s: float
    ) -> RayChild:
        """See `Processes.start`."""
        options = self._cluster.options(self._placed[number])
        return RayChild(role, name, arguments, timeout_s, options)

    def ready(self, children: Sequence[RayChild], timeout_s: float) -> list[RayChild]:
        """See `Processes.ready`."""
        ready = first_ready([child.answer for child in children], timeout_s)
        return [child for child in children if child.answer in ready]

    def close(self, children: Sequence[RayChild]) -> None:
        """See `Processes.close`."""
        for child in children:
            child.kill()


class RayBackend(InlineBackend):
    """Plays jobs like `InlineBackend`, on a cluster."""

    in_process: typing.ClassVar[tuple[str, ...]] = ("driver", "weight_sync")
    rollout: RayRollouts

    def __init__(
        self,
        cfg: VecEnvCfg,
        rollout: RayRollouts,
        cluster: Cluster,
        placement: Placement,
        timeout_s: float = 60.0,
    ):
        """
        Args:
            cfg: Config of the vector environment; `num_envs` is the total number of slots.
            rollout: Chooses the actions.
            cluster: Where the roles run.
            placement: Of the role "env"; its processes share the slots.
            timeout_s: Time limit for one chunk; an actor that takes longer counts as hung.
        """
        self._cluster = cluster
        self._acting: list[tuple[Call, list[Asking], Observation]] = []
        processes = RayProcesses(cluster, placement)
        num_workers = len(placement.roles["env"])
        super().__init__(cfg, rollout, num_workers, timeout_s, processes=processes)
        self.timeline = rollout.timeline
        self.layout = cluster.layout(placement)

    def timings(self) -> dict[str, float]:
        """See `InlineBackend.timings`. "inference" is summed over the rollout roles; there is also
        "weight_sync", the wall time for sending weights."""
        return super().timings() | {"weight_sync": self.rollout.sync_s}

    def _wait(self, busy: Sequence[Worker], game: Game) -> list:
        """See `InlineBackend._wait`; meanwhile passes on actions that were chosen."""
        answers = [worker.child.answer for worker in busy]
        calls = [call.answer for call, _, _ in self._acting]
        ready = first_ready([*answers, *calls], 1.0)
        for acting in list(self._acting):
            call, asking, observation = acting
            if call.answer in ready or self.rollout.is_overdue(call):
                self._acting.remove(acting)
                self._advance(asking, observation, self.rollout.result(call), game)
        return [worker.child for worker in busy if worker.child.answer in ready]

    def _answer(self, asking: Sequence[Asking], game: Game) -> None:
        """Let a rollout role choose the next actions of these workers."""
        if asking:
            observation = join([asked.observation for asked in asking])
            call = self.rollout.submit(observation, generators_of(asking, game))
            self._acting.append((call, list(asking), observation))

    def close(self) -> None:
        """End the actors, and a cluster that was started here."""
        super().close()
        self.rollout.close()
        self._cluster.close()
