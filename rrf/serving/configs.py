"""The config of a policy server. No torch here."""

import ipaddress
import typing

from rrf.config import (
    Cfg,
    configclass,
    require_at_least_one,
    require_not_negative,
    require_positive,
)


@configclass
class ServingCfg(Cfg):
    """Where a policy server listens, and what it allows its clients."""

    host: str = "127.0.0.1"
    """Address to listen on. Others than this machine's own need a token, or `insecure`."""
    port: int = 8000
    """Port to listen on. 0 for any free one."""
    insecure: bool = False
    """Serve other machines without a token."""
    certificate: str | None = None
    """File with the certificate, for TLS. null for no TLS."""
    key: str | None = None
    """File with the private key of the certificate."""
    max_batch: int = 8
    """The most requests that the policy answers at once."""
    max_wait_ms: float = 2.0
    """The longest time that a request waits for others to share its batch, in milliseconds."""
    max_connections: int = 64
    """The most clients at a time. Further ones get HTTP 503."""
    max_message_mb: float = 16.0
    """The largest message in MB of 10^6 bytes. A client that sends a larger one is disconnected."""
    idle_s: float = 600.0
    """A client that completes no request for so long is disconnected."""
    ping_s: float = 20.0
    """How often clients are asked for a sign of life, and how long they may take to give it."""
    handshake_s: float = 10.0
    """The longest time that a new connection may take to say what it wants."""
    send_s: float = 10.0
    """A client that does not take its answer for so long is disconnected."""
    drain_s: float = 30.0
    """After SIGTERM, the longest time until all accepted requests are answered."""
    registry_s: float = 5.0
    """How often the registry is asked whether the version that is served is still allowed. Only for
    a version that is served by name."""
    on_revoked: typing.Literal["tell", "refuse"] = "tell"
    """When the version is not allowed any more: answer, and tell clients, which do what their
    config says; or refuse every request."""
    outcome_s: float = 3600.0
    """An episode that was announced, and of which nothing was heard for so long, counts as not
    solved."""
    action_low: list[float] = []
    """The smallest allowed action of each dimension; empty: no limit. What is beyond a limit is
    told with the answer and counts in the episode's outcome (`rrf.serving.guards`)."""
    action_high: list[float] = []
    """The largest allowed action of each dimension."""
    state_low: list[float] = []
    """The smallest allowed observation.state of each dimension: a workspace, or joint limits."""
    state_high: list[float] = []
    """The largest allowed observation.state of each dimension."""
    max_rate_hz: float | None = None
    """The most requests per second of one client. null for no limit."""
    latency_ms: float | None = None
    """The longest time that an answer may take on the server. null for no limit."""
    instruction: str | None = None
    """The instruction of requests that bring none. null to refuse them."""
    protocol: typing.Literal["rrf", "vla-eval"] = "rrf"
    """What clients speak: ours, which is openpi's too; or vla-eval's, whose benchmarks ask for one
    action at a time (`rrf.serving.vla_eval`)."""
    execute_steps: int = 1
    """For vla-eval: how many actions of a chunk are executed before the policy is asked again."""
    resize: bool = False
    """For vla-eval: resize pictures of another size than the policy's, bilinearly."""
    rename: dict[str, str] = {}
    """Keys of requests and the inputs of the policy that they stand for, besides those that
    `rrf.serving.requests` knows: {observation/wrist_image: observation.images.wrist}."""

    def __post_init__(self):
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port is {self.port}, allowed: 0 to 65535")
        require_at_least_one(self, "max_batch", "max_connections", "execute_steps")
        require_positive(
            self,
            "max_message_mb",
            "idle_s",
            "ping_s",
            "handshake_s",
            "send_s",
            "drain_s",
            "registry_s",
            "outcome_s",
            "max_rate_hz",
            "latency_ms",
        )
        require_not_negative(self, "max_wait_ms")
        if (self.certificate is None) != (self.key is None):
            raise ValueError("TLS needs both the certificate and its key")

    @property
    def is_public(self) -> bool:
        """Whether other machines can reach the server. A host name may be anything, so it counts
        as public."""
        if self.host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return True
