"""The numbers of a policy server for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST
ERRORS = {
    "book": "episodes that could not be written down",
    "draining": "requests that came while the server shut down",
    "episode": "announcements of episodes that were refused",
    "idle": "clients that completed no request for too long",
    "internal": "failures of the policy itself",
    "load": "versions that could not be loaded",
    "malformed": "messages that cannot be read",
    "observation": "observations that do not fit the policy",
    "overloaded": "connections beyond the limit",
    "oversized": "messages beyond the limit",
    "revoked": "requests for a policy that is not allowed any more",
    "shadow": "answers that the shadow could not give",
    "silent": "clients that gave no sign of life",
    "slow": "clients that did not take their answer",
    "unauthorized": "connections without the token",
    "unsupported": "requests for what the policy cannot do",
}
"""The kinds of errors that are counted."""
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


class Metrics:
    """Counters of one server."""

    def __init__(self, max_batch: int):
        self._registry = CollectorRegistry()
        registration = {"registry": self._registry, "namespace": "rrf"}
        self.requests = Counter("requests", "Requests answered with actions", **registration)
        self.errors = Counter("errors", "Errors by kind", ["kind"], **registration)
        for kind in ERRORS:
            self.errors.labels(kind)  # shown as 0 from the beginning
        self.outcomes = Counter(
            "episodes", "Announced episodes that ended", ["role", "outcome"], **registration
        )
        self.version = Gauge("version", "The version that acts", ["role"], **registration)
        self.guards = Counter("guards", "Violated guards by kind", ["kind"], **registration)
        self.shadow = Counter("shadow", "Answers of the shadow", ["what"], **registration)
        self.shadow_difference = Gauge(
            "shadow_difference",
            "Mean difference of the shadow's actions, in standard deviations of the champion's "
            "training actions where its checkpoint has them, else in physical units",
            ["dimension"],
            **registration,
        )
        self.drift = Gauge(
            "drift",
            "Logarithm of the evidence that states or images differ from the training's; alarm: "
            "at log(dimensions / 0.01)",
            ["version", "dimension"],
            **registration,
        )
        self.connections = Gauge("connections", "Connected clients", **registration)
        sizes = sorted({1, 2, 4, 8, 16, 32, 64, 128, max_batch})
        self.batch_size = Histogram(
            "batch_size",
            "Requests per batch",
            buckets=[n for n in sizes if n <= max_batch],
            **registration,
        )
        self.queue_s = Histogram(
            "queue_seconds", "Wait of a request for its batch", buckets=_SECONDS, **registration
        )
        self.infer_s = Histogram(
            "inference_seconds", "Inference of a batch", buckets=_SECONDS, **registration
        )

    def error(self, kind: str) -> None:
        """Count an error; `kind` is one of `ERRORS`."""
        assert kind in ERRORS, kind
        self.errors.labels(kind).inc()

    def acts(self, role: str, version: str) -> None:
        """Note which version has a role; "" for none."""
        self.version.labels(role).set(int(version) if version.isdecimal() else 0)

    def text(self) -> str:
        """The numbers in Prometheus' text format."""
        return generate_latest(self._registry).decode()
