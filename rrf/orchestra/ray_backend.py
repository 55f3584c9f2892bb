"""The Ray backend: environment and rollout roles are actors, the actor role stays in the driver.

Several rollout roles answer at the same time, each to other environments, while the remaining
environments simulate. See `rrf.orchestra.ray_processes`.
"""

from collections.abc import Sequence

from rrf.data.schema import Observation
from rrf.envs.configs import VecEnvCfg
from rrf.envs.observations import join
from rrf.orchestra.inline import Asking, Game, InlineBackend, Worker, generators_of
from rrf.orchestra.placement import Placement
from rrf.orchestra.ray_processes import Call, Cluster, RayProcesses, RayRollouts, first_ready


class RayBackend(InlineBackend):
    """Plays jobs like `InlineBackend`, on a cluster."""

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

    def timings(self) -> dict[str, float]:
        """See `InlineBackend.timings`. "inference" is summed over the rollout roles; there is also
        "weight_sync", the wall time for sending weights."""
        spent = {"inference": self.rollout.inference_s, "weight_sync": self.rollout.sync_s}
        return super().timings() | spent

    def _wait(self, busy: Sequence[Worker], game: Game) -> list:
        """See `InlineBackend._wait`; meanwhile passes on actions that were chosen."""
        answers = [worker.child.answer for worker in busy]
        calls = [call.answer for call, _, _ in self._acting]
        found = first_ready([*answers, *calls], 1.0)
        for acting in list(self._acting):
            call, asking, observation = acting
            if call.answer in found or self.rollout.is_overdue(call):
                self._acting.remove(acting)
                self._advance(asking, observation, self.rollout.result(call), game)
        return [worker.child for worker in busy if worker.child.answer in found]

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
