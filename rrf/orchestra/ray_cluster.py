"""A Ray cluster: which nodes and GPUs it has, and where on it an actor starts.

All nodes that a run uses must have the code of the driver. GPUs that a run uses are held in Ray's
own counting, so that Ray gives them to no other job, and an actor sees those of its placement only.
A process whose node is lost starts on the node that has fewest of them.
"""

import collections
import dataclasses
import os
import socket
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rrf.code_digest import source_digest
from rrf.orchestra.placement import NODES, Placement, numbers
from rrf.runners.vla_rl.timeline import Layout

_REACH_TIMEOUT_S = 10.0
_ASK = "/ray.rpc.NodeInfoGcsService/CheckAlive"  # what a head is asked to see whether it answers
_HOST_TIMEOUT_S = 300.0  # a node starts a process that imports rrf
# Of HTTP/2, which Ray's head speaks: what a client says first, and the length of its answer's head.
_HELLO, _FRAME_BYTES = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]), 9
_SETTINGS = 4
_CONFIG = {
    # What is smaller travels with a call and does not go through the object store, whose process
    # then needs an eighth of the time.
    "max_direct_call_object_size": 1 << 24,
    "task_rpc_inlined_bytes_limit": 1 << 26,
    # Workers that Ray starts in advance lack the actors' environment variables and stay idle.
    "prestart_worker_first_driver": False,
}


@dataclasses.dataclass(frozen=True)
class Resource:
    """A node of a cluster, or a GPU of it."""

    node: str  # its id
    host: str  # its address
    cores: int  # of the node
    gpu: int | None = None  # its number on the node

    def __str__(self) -> str:
        gpu = "" if self.gpu is None else f"GPU {self.gpu} of "
        return f"{gpu}{self.host} ({self.cores} cores)"


class Cluster:
    """A Ray cluster, and what its resources are."""

    def __init__(self, address: str | None):
        """
        Args:
            address: HOST:PORT of the head of a running cluster, or auto for the one of this
                machine; None starts one that ends with this process.

        Raises:
            ValueError: If no cluster answers, or one of another version.
        """
        _connect(address)
        self.resources = _resources()  # all nodes, then all GPUs
        self._gpus: dict[Resource, str | None] = {}  # of those in use: the device's id on its node
        self._hosts: list[typing.Any] = []
        self._num_started = collections.Counter[str]()  # by node

    def groups(self, labels: Mapping[str, str | int]) -> dict[str, list[int]]:
        """The resources of each node group; see `rrf.orchestra.placement.parse`.

        Args:
            labels: Label -> numbers of nodes, as A or A-B.

        Raises:
            ValueError: If a label is taken, or a node does not exist.
        """
        nodes, gpus = (
            [n for n, each in enumerate(self.resources) if (each.gpu is not None) is is_gpu]
            for is_gpu in (False, True)
        )
        groups = {"": gpus or nodes, NODES: nodes}
        for label, text in labels.items():
            if label in groups:
                raise ValueError(f"ray.node_groups: the label '{label}' is taken; choose another")
            ranks = numbers(f"ray.node_groups.{label}", text)
            if max(ranks) >= len(nodes):
                there = ", ".join(f"{n}: {self.resources[n]}" for n in nodes)
                raise ValueError(
                    f"ray.node_groups.{label}: no node {max(ranks)}, the cluster has {len(nodes)}: "
                    f"{there}"
                )
            named = {self.resources[nodes[rank]].node for rank in ranks}
            groups[label] = [n for n in gpus if self.resources[n].node in named] or [
                nodes[rank] for rank in ranks
            ]
        return groups

    def reserve(self, resources: Iterable[int]) -> None:
        """Hold resources, by number, until the cluster is left.

        Raises:
            ValueError: If a node has other code than this process, or a GPU is taken.
        """
        self._reserve([self.resources[number] for number in sorted(set(resources))])

    def options(self, resources: Sequence[int]) -> dict[str, typing.Any]:
        """Options of an actor that starts on these resources, or on others if their node is lost.

        Raises:
            ValueError: If they are on several nodes, or if no node is left that has what they have.
        """
        chosen = [self.resources[number] for number in resources]
        if len({each.node for each in chosen}) > 1:
            raise ValueError(
                "the resources of one process are on several nodes: " + ", ".join(map(str, chosen))
            )
        if chosen[0].node not in {node["NodeID"] for node in _alive_nodes()}:
            chosen = self._replacements(chosen)
        self._reserve(chosen)
        self._num_started[chosen[0].node] += 1
        variables = {"OMP_NUM_THREADS": "1"}
        if chosen[0].gpu is not None:
            variables |= {
                "CUDA_VISIBLE_DEVICES": ",".join(str(self._gpus[each]) for each in chosen),
                "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",  # Ray would hide them
            }
        return {**_options_on(chosen[0].node), "runtime_env": {"env_vars": variables}}

    def layout(self, placement: Placement) -> Layout:
        """On which nodes the processes of a placement are."""
        cores = {each.node: each.cores for each in self.resources}
        numbers = {node: number for number, node in enumerate(cores)}
        env, rollout = (
            [numbers[self.resources[process[0]].node] for process in placement.roles[role]]
            for role in ("env", "rollout")
        )
        return Layout(env, rollout, list(cores.values()))

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        ray.shutdown()

    def _replacements(self, lost: Sequence[Resource]) -> list[Resource]:
        """As many resources of the node that has fewest processes of this run."""
        of_node = collections.defaultdict[str, list[Resource]](list)
        for resource in _resources():
            if resource.cores and (resource.gpu is None) == (lost[0].gpu is None):
                of_node[resource.node].append(resource)
        fitting = [node for node, has in of_node.items() if len(has) >= len(lost)]
        if not fitting:
            what = "cores" if lost[0].gpu is None else f"{len(lost)} GPUs"
            there = ", ".join(map(str, _resources()))
            raise ValueError(
                f"the node {lost[0].host} is lost, and no other one has {what} for its processes "
                f"(there is: {there}); start one with: ray start --address="
                f"{ray.get_runtime_context().gcs_address}"
            )
        node = min(fitting, key=lambda each: self._num_started[each])
        held_first = sorted(of_node[node], key=lambda each: each not in self._gpus)
        return held_first[: len(lost)]

    def _reserve(self, resources: Sequence[Resource]) -> None:
        of_node = collections.defaultdict[str, list[Resource]](list)
        for resource in resources:
            if resource not in self._gpus:
                of_node[resource.node].append(resource)
        asked = []
        for node, new in of_node.items():
            num_gpus = sum(each.gpu is not None for each in new)
            host: typing.Any = (
                ray.remote(_Host).options(num_gpus=num_gpus, **_options_on(node)).remote()
            )
            asked.append((host, new, host.facts.remote()))
        own_code = source_digest()
        for host, new, answer in asked:
            node_code, gpus = _facts(answer, new)
            if node_code != own_code:
                raise ValueError(
                    f"the node {new[0].host} has another rrf ({node_code[:12]}) than this process "
                    f"({own_code[:12]}); put the same code there, and start Ray there again"
                )
            self._gpus |= dict.fromkeys(new)
            asked_for = [each for each in new if each.gpu is not None]
            self._gpus |= dict(zip(asked_for, gpus, strict=True))
            if gpus:
                self._hosts.append(host)  # it lives, and holds them, as long as we know it


class _Host:
    """Says what a node has, and holds GPUs."""

    def facts(self) -> tuple[str, list[str]]:
        """The digest of rrf's code, and the ids of the GPUs."""
        gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        return source_digest(), gpus


def _facts(answer: typing.Any, resources: Sequence[Resource]) -> tuple[str, list[str]]:
    """What a `_Host` says."""
    host, wanted = resources[0].host, ", ".join(map(str, resources))
    try:
        return ray.get(answer, timeout=_HOST_TIMEOUT_S)
    except ray.exceptions.GetTimeoutError as error:
        raise ValueError(
            f"no process for {wanted} started within {_HOST_TIMEOUT_S:.0f} s; look with `ray "
            "status` whether another job has it"
        ) from error
    except ray.exceptions.RayError as error:
        raise ValueError(
            f"the node {host} cannot run rrf: {str(error).strip().splitlines()[-1]}; start Ray "
            "there with a Python that has the rrf of this process"
        ) from error


def _options_on(node: str) -> dict[str, typing.Any]:
    """Options of an actor on a node; placement decides, not Ray's count of free cores."""
    return {
        "num_cpus": 0,
        "enable_task_events": False,  # for Ray's own records of calls, of which there are thousands
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
    }


def _alive_nodes() -> list[dict]:
    """The nodes, the head first."""
    return sorted(
        (node for node in ray.nodes() if node["Alive"]),
        key=lambda node: (not node["Resources"].get("node:__internal_head__"), node["NodeID"]),
    )


def _resources() -> list[Resource]:
    """All nodes, then the GPUs of all nodes."""
    nodes = [
        Resource(n["NodeID"], n["NodeManagerAddress"], int(n["Resources"].get("CPU", 0)))
        for n in _alive_nodes()
    ]
    counts = [int(node["Resources"].get("GPU", 0)) for node in _alive_nodes()]
    return nodes + [
        dataclasses.replace(node, gpu=gpu)
        for node, count in zip(nodes, counts, strict=True)
        for gpu in range(count)
    ]


def _connect(address: str | None) -> None:
    """Start a cluster, or join a running one."""
    if address is not None:
        head = _auto_address() if address == "auto" else address
        _check_head(head)
        _check_token(head, is_auto=address == "auto")
    try:
        ray.init(
            address="local" if address is None else address,
            include_dashboard=False if address is None else None,
            _system_config=dict(_CONFIG) if address is None else None,  # Ray adds to it
            log_to_driver=False,
            ignore_reinit_error=True,
            runtime_env={"env_vars": {"OMP_NUM_THREADS": "1", "RAY_DEDUP_LOGS": "0"}},
        )
    except ConnectionError as error:
        raise ValueError(
            f"the Ray cluster at '{address}' cannot be joined: {' '.join(str(error).split())}; "
            "`ray status` says whether it runs, and if it does not: ray start --head"
        ) from error
    except (RuntimeError, ValueError, ray.exceptions.RayError) as error:
        words = " ".join(str(error).split())
        if "Version mismatch" in words:
            raise ValueError(
                f"the Ray cluster at '{address}' is of another version. {words}. Start both with "
                "the same Ray and Python"
            ) from error
        raise ValueError(
            f"the Ray cluster at '{address}' cannot be joined: {words} This machine must be a node "
            f"of it; type: ray start --address={address}"
        ) from error
    except Exception as error:
        if type(error) is not Exception:  # Ray raises this class itself when it is slow to start
            raise
        ray.shutdown()
        where = "Ray" if address is None else f"the Ray cluster at '{address}'"
        raise ValueError(
            f"{where} did not start in time ({' '.join(str(error).split())}). The machine may be "
            "busy: type the same command again, or start Ray before, with: ray start --head, and "
            "give ray.address=auto"
        ) from error


def _auto_address() -> str:
    """The address that `auto` stands for; it may be that of a cluster that has ended.

    Raises:
        ValueError: If there is none.
    """
    try:  # Ray's public functions do not tell it without joining, for which they have no time limit
        from ray._private.services import canonicalize_bootstrap_address_or_die
    except ImportError as error:
        raise ValueError(
            f"Ray {ray.__version__} does not tell where the cluster of this machine is; give its "
            "address with ray.address=HOST:PORT"
        ) from error
    try:
        return canonicalize_bootstrap_address_or_die("auto")
    except ConnectionError as error:
        raise ValueError(
            "no Ray cluster runs on this machine; start one with: ray start --head, or give the "
            "address of another one with ray.address=HOST:PORT"
        ) from error


def _check_head(address: str) -> None:
    """Check that a head of Ray answers, with a time limit that `ray.init` does not have.

    Raises:
        ValueError: If not.
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()) or "/" in host:
        raise ValueError(
            f"ray.address is '{address}', but it must be HOST:PORT of the cluster's head, for "
            "example 10.0.0.1:6379, or auto"
        )
    try:
        with socket.create_connection((host, int(port)), _REACH_TIMEOUT_S) as connection:
            connection.settimeout(_REACH_TIMEOUT_S)
            connection.sendall(_HELLO)
            answer = connection.recv(_FRAME_BYTES, socket.MSG_WAITALL)
    except OSError as error:
        raise ValueError(
            f"no Ray cluster answers at '{address}' ({error}); start one there with: ray start "
            "--head"
        ) from error
    if len(answer) < _FRAME_BYTES or answer[3] != _SETTINGS:
        raise ValueError(
            f"what answers at '{address}' is not the head of a Ray cluster; `ray status` says its "
            "address on the machine that it runs on"
        )


def _check_token(address: str, is_auto: bool) -> None:
    """Check that the head takes the token that Ray sends it from here, if it asks for one; Ray
    itself tries for twenty seconds, with a line for each.

    Ray sends a token where RAY_AUTH_MODE is token, and from 2.59 on, if that is not set, to the
    cluster that `auto` finds.

    Raises:
        ValueError: If not.
    """
    mode = os.environ.get("RAY_AUTH_MODE", "token" if is_auto else "")
    token, place = _token()
    is_sent = mode.lower() == "token"
    if is_sent and not token and "RAY_AUTH_MODE" in os.environ:
        raise ValueError(
            f"RAY_AUTH_MODE is token, but {place} has none; {_copy(place, address)}, or type: "
            "unset RAY_AUTH_MODE"
        )
    if not _asks_for_token(address, token if is_sent else ""):
        return
    if is_sent and token:
        raise ValueError(
            f"the Ray cluster at '{address}' has another token than {place}; "
            f"{_copy(place, address)}"
        )
    missing = "" if token else f"{_copy(place, address)}, and "
    raise ValueError(
        f"the Ray cluster at '{address}' asks for a token, and none is sent from here; {missing}"
        "type: export RAY_AUTH_MODE=token"
    )


def _copy(place: str, address: str) -> str:
    host = address.rpartition(":")[0]
    return f"put what `ray get-auth-token` prints on {host} into {place}"


def _token() -> tuple[str, str]:
    """The token that Ray would send, and where it is, or would be."""
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token, "RAY_AUTH_TOKEN"
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray/auth_token")
    return path.read_text().strip() if path.is_file() else "", str(path)


def _asks_for_token(address: str, token: str) -> bool:
    """Whether the head refuses what comes with this token, or without one if it is empty."""
    try:
        import grpc
    except ImportError:
        return False  # `ray.init` finds out more slowly
    sent = (("authorization", f"Bearer {token}"),) if token else ()
    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary(_ASK)(b"", timeout=_REACH_TIMEOUT_S, metadata=sent)
        except grpc.RpcError as error:
            return getattr(error, "code", lambda: None)() is grpc.StatusCode.UNAUTHENTICATED
    return False
