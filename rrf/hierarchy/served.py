"""Systems 2 and 1 on a server (`rrf serve`), asked from the robot.

System 0 and the clock stay at the robot: fifty answers a second over a network would come late, and
a robot must not fall because its network is gone. Each of the two systems has a connection of its
own, so System 1 does not wait for System 2. How old features are is counted at the robot, by its
clock, from when the images were taken.

An answer that is too late to be of use, a server that is not there again within half of
`HierarchyCfg.max_wait_s`, and another policy in its place count as the death of a system: the
runtime stops the robot.
"""

import concurrent.futures
import contextlib
import typing
import uuid

import numpy as np

from rrf.client import (
    PolicyClient,
    PolicyRevokedError,
    RequestRefusedError,
    ServerTimeoutError,
    ServerUnreachableError,
)
from rrf.client.messages import FEATURE_AGE, FEATURES, SYSTEM, SYSTEMS
from rrf.data.schema import IMAGE_PREFIX, STATE
from rrf.hierarchy.configs import HierarchyCfg
from rrf.hierarchy.runtime import SystemDiedError
from rrf.hierarchy.systems import plain
from rrf.policies.vla.psi0_configs import Psi0PolicyCfg
from rrf.runners.checkpoints.deployable import deployable_digest

_Failures = (
    ServerUnreachableError,
    ServerTimeoutError,
    RequestRefusedError,
    PolicyRevokedError,
)


class Served:
    """The policy of Systems 2 and 1 on a server, for one episode.

    Args:
        url: Where it is served, as ws://HOST:PORT or wss://HOST:PORT.
        cfg: Rates and limits. The server must serve what `system1.policy` is, to the digest.
        policy: Its config.
        token: The server's, if it asks for one.
        task: What the robot is to do, for the server's book of episodes.

    Raises:
        ValueError: If another policy is served there, or one whose systems cannot be asked apart.
        ServerUnreachableError: If no server answers there.
        PolicyRevokedError: If the registry does not allow the policy any more.
    """

    def __init__(
        self,
        url: str,
        cfg: HierarchyCfg,
        policy: Psi0PolicyCfg,
        token: str | None = None,
        task: str = "",
    ):
        digest = deployable_digest(cfg.system1.policy)
        if deployable_digest(cfg.system2.policy) != digest:
            raise ValueError(
                f"{url} would answer for Systems 2 and 1, but system2.policy "
                f"{cfg.system2.policy} is not system1.policy {cfg.system1.policy}; join them "
                "(rrf models join), and serve and name what they make"
            )
        self.url, self.digest, episode = url, digest, uuid.uuid4().hex
        chunk_s = policy.chunk_length / cfg.chunk_hz
        useful_s = {2: policy.max_feature_age_s, 1: chunk_s + cfg.max_wait_s}
        self.system2 = _System(2, url, token, digest)
        try:
            self.system1 = _System(1, url, token, digest)
            for system in (self.system2, self.system1):
                system.begin(episode, task, useful_s[system.number], cfg.max_wait_s / 2)
        except BaseException:
            self.close()
            raise

    def end(self, is_solved: bool, reason: str = "") -> None:
        """Say how the episode ended, for the server's book. One that is not there any more counts
        an episode without an outcome as not solved.
        """
        self.system1.end(is_solved, reason)

    def close(self) -> None:
        """Close the connections."""
        for system in (self.system2, getattr(self, "system1", None)):
            if system:
                system.close()


class _System:
    """An `Asked` on a server."""

    def __init__(self, number: int, url: str, token: str | None, digest: str):
        self.number, self._digest = number, digest
        self._client = PolicyClient(url, token)
        self._thread = concurrent.futures.ThreadPoolExecutor(1, f"system{number}")
        self._answer: concurrent.futures.Future | None = None
        systems = self._client.metadata.get(SYSTEMS) or {}
        self._inputs = systems.get(str(number), {}).get("inputs", {})

    def begin(self, episode: str, task: str, useful_s: float, connect_s: float) -> None:
        """Announce the episode. From then on the robot waits no longer than this."""
        if not self._inputs:
            raise ValueError(
                f"{self._client.url} serves {self._client.metadata.get('policy')}, whose Systems 2 "
                "and 1 cannot be asked apart; serve a policy in two parts with this version of rrf"
            )
        self._client.begin_episode(episode, task)
        self._check()
        self._client.timeout_s, self._client.connect_s = useful_s, connect_s

    def _check(self) -> None:
        """Raise ValueError if another policy answers."""
        said = self._client.episode or self._client.metadata
        if (served := said.get("digest")) != self._digest:
            raise ValueError(
                f"{self._client.url} serves {self._client.metadata.get('policy')} (digest "
                f"{str(served)[:12]}), but the robot has {self._digest[:12]}; serve and play the "
                "same version"
            )

    @property
    def is_busy(self) -> bool:
        """See `Asked.is_busy`."""
        return self._answer is not None

    def ask(self, tick: int, *question: typing.Any) -> None:
        """See `Asked.ask`."""
        *features, images, state, instruction = plain(question)
        given = {f"{IMAGE_PREFIX}{name}": rows[0] for name, rows in images.items()}
        given |= {STATE: state[0], "instruction": instruction}
        if features:
            given |= {FEATURES: features[0][0], FEATURE_AGE: float(features[1])}
        message = {SYSTEM: self.number} | {name: given[name] for name in self._inputs}
        self._answer = self._thread.submit(self._request, message)

    def _request(self, message: dict[str, typing.Any]) -> np.ndarray:
        answer = self._client.request(message).actions
        self._check()
        return answer

    def answer(self, tick: int) -> typing.Any:
        """See `Asked.answer`."""
        if self._answer is None or not self._answer.done():
            return None
        answer, self._answer = self._answer, None
        try:
            values = answer.result()
        except (*_Failures, ValueError) as error:
            raise SystemDiedError(f"System {self.number} is gone: {error}") from error
        return values[None] if self.number == 2 else values

    def end(self, is_solved: bool, reason: str) -> None:
        """See `Served.end`."""
        self._thread.shutdown()
        with contextlib.suppress(*_Failures):  # then it is counted as not solved
            self._client.end_episode(is_solved, reason)

    def close(self) -> None:
        """End the connection, after the question that is being asked."""
        self._thread.shutdown(cancel_futures=True)
        self._client.close()
