"""Policies of other projects behind vla-eval's protocol, judged by our protocols and gates.

    rrf eval vla-eval://HOST:PORT --protocol metaworld-demo

A server remembers what it has answered in an episode, so each running episode has a connection of
its own, which is told of its beginning and its end. The server answers an observation with one
action or with a chunk; of a chunk the first `execute_steps` are executed.

Nobody here knows which weights answer: an evaluation is of whatever answered while it ran, it is
never reused, and no version can be registered from it.
"""

import contextlib
import typing
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rrf.client.vla_eval import SCHEME, ModelClient
from rrf.data.dataset.history import NOTHING
from rrf.evaluation.candidate import Candidate
from rrf.evaluation.vla.execution import Acting
from rrf.evaluation.vla.execution_configs import RecedingHorizonCfg
from rrf.lineage import Lineage
from rrf.runners.checkpoints.deployable import VLA

if typing.TYPE_CHECKING:
    from rrf.evaluation.vla.configs import ProtocolCfg

_ANY = 1_000_000


def is_remote(reference: str) -> bool:
    """Whether a user names a model server and no checkpoint."""
    return reference.startswith(SCHEME)


def candidate_of(url: str) -> Candidate:
    """The policy behind a model server as a candidate. Raises like `ModelClient`."""
    client = ModelClient(url)
    client.close()
    name = str(client.server.get("model_server", "a model server"))[:80]
    return Candidate(
        checkpoint=Path(url.replace("://", "-")),
        label=f"{name} at {url}",
        kind=VLA,
        checkpoint_digest=f"{uuid.uuid4().hex} behind {url}",
        config={},
        lineage=Lineage(),
        policy=RemotePolicy(url),
    )


class RemotePolicy:
    """What an evaluation asks of a policy, of one behind a server.

    Args:
        url: vla-eval://HOST:PORT.
    """

    chunk_length = _ANY  # told by the first answer
    action_dim = None
    past = NOTHING

    def __init__(self, url: str):
        self.url = url

    def rule(self, protocol: "ProtocolCfg") -> "RemoteRule":
        """Who acts in its episodes.

        Raises:
            ValueError: If the protocol executes chunks in a way that only our policies can, or
                samples.
        """
        if type(protocol.execution) is not RecedingHorizonCfg or not protocol.greedy:
            raise ValueError(
                f"protocol '{protocol.name}' needs chunks that continue or are averaged, or "
                f"samples; {self.url} only answers observations: leave out 'execution', 'greedy'"
            )
        return RemoteRule(self.url, protocol.execute_steps)


class RemoteRule:
    """Asks a server, with a connection for each running episode.

    Args:
        url: The server.
        execute_steps: Actions per observation.
    """

    def __init__(self, url: str, execute_steps: int):
        self._url, self._execute_steps = url, execute_steps
        self._clients: dict[int, tuple[Acting, ModelClient]] = {}

    def act(self, episodes: Sequence[Acting]) -> np.ndarray:
        """The next actions of all episodes, [B, E, A].

        Raises:
            OSError: If the server is gone.
            ValueError: If it refuses an observation, or answers with fewer actions than are
                executed, or with another number of dimensions than before.
        """
        running = {id(episode) for episode in episodes}
        for key in self._clients.keys() - running:
            self._leave(key)
        chunks = [self._ask(episode) for episode in episodes]
        widths = {chunk.shape[1] for chunk in chunks}
        if len(widths) > 1:
            raise ValueError(f"{self._url} answers with actions of {sorted(widths)} dimensions")
        return np.stack(chunks)

    def close(self) -> None:
        """End all episodes."""
        for key in list(self._clients):
            self._leave(key)

    def _ask(self, episode: Acting) -> np.ndarray:
        seen = episode.observation
        text = seen.instruction[0] if seen.instruction else ""
        if id(episode) not in self._clients:
            client = ModelClient(self._url)
            self._clients[id(episode)] = (episode, client)
            client.start({"name": text})
        client = self._clients[id(episode)][1]
        images = {name: np.asarray(image[0]) for name, image in seen.images.items()}
        state = np.asarray(seen.state[0], np.float32)
        actions = client.act({"images": images, "task_description": text, "state": state})
        if len(actions) < self._execute_steps:
            raise ValueError(
                f"{self._url} answers an observation with {len(actions)} actions, and the protocol "
                f"executes {self._execute_steps} of each answer; it fits protocols with "
                f"execute_steps: {len(actions)}"
            )
        return actions[: self._execute_steps]

    def _leave(self, key: int) -> None:
        _, client = self._clients.pop(key)
        with contextlib.suppress(OSError):
            client.end({})
        client.close()
