"""Where the processes of roles run: RLinf's placement grammar.

    env: 0-3                  four processes, one on each of the resources 0 to 3
    env,rollout: all          both roles, one process per resource
    env: 0-1:0-3,3:4          processes 0 to 3 share the resources 0 and 1, process 4 has resource 3

A resource is a GPU of the cluster, or a node where there are no GPUs. In a part
RESOURCES:PROCESSES, the longer of the two must be a multiple of the shorter: several processes then
share a resource, or a process has several.

    env: {node_group: node, placement: "1-2:0-7"}     eight processes on the nodes 1 and 2

With a node group, resources are those of its nodes and are counted from 0. The group `node` has all
nodes, without their GPUs.
"""

import dataclasses
import re
import typing
from collections.abc import Mapping, Sequence

Place = str | int | Mapping[str, str | int]
Mode = typing.Literal["collocated", "disaggregated", "hybrid"]
NODES = "node"  # the group of all nodes
_GROUP_KEYS = {"node_group", "placement"}
_PART = re.compile(r"(all|\d+(?:-\d+)?)(?::(\d+(?:-\d+)?))?")


@dataclasses.dataclass(frozen=True)
class Placement:
    """The resources of every process of every role."""

    roles: dict[str, list[tuple[int, ...]]]  # role -> of process 0, 1, ...: its resources

    @property
    def mode(self) -> Mode:
        """collocated: all roles have the same resources; disaggregated: no two roles share one."""
        used = [{r for process in processes for r in process} for processes in self.roles.values()]
        if all(process == used[0] for process in used):
            return "collocated"
        return "disaggregated" if sum(map(len, used)) == len(set().union(*used)) else "hybrid"

    def split(self, role: str, num_stages: int) -> "Placement":
        """The same with `num_stages` processes in the place of each of a role."""
        processes = [process for process in self.roles[role] for _ in range(num_stages)]
        return Placement({**self.roles, role: processes})

    def used(self) -> set[int]:
        """All resources that have a process."""
        return {r for processes in self.roles.values() for process in processes for r in process}


def parse(
    placement: Mapping[str, Place],
    resources: Sequence[str],
    roles: Sequence[str],
    groups: Mapping[str, Sequence[int]] | None = None,
) -> Placement:
    """Read a placement.

    Args:
        placement: "role,role" -> where; see the module.
        resources: What the resources of the cluster are, for errors.
        roles: The roles that must be placed.
        groups: The resources of each node group, and under "" those of a role without one. None
            for no groups.

    Raises:
        ValueError: For what is no placement, a role that is missing, unknown or placed twice,
            groups and resources that do not exist, and processes that are not numbered from 0
            without gaps.
    """
    groups = groups or {"": range(len(resources))}
    placed: dict[str, list[tuple[int, ...]]] = {}
    for names, where in placement.items():
        for name in names.replace(" ", "").split(","):
            if name not in roles:
                raise ValueError(f"placement names '{name}', allowed: {', '.join(roles)}")
            if name in placed:
                raise ValueError(f"placement names '{name}' twice; give it one place")
            group, text = _group(name, where, groups)
            there = [resources[number] for number in group]
            placed[name] = [
                tuple(group[number] for number in process)
                for process in _processes(name, text, there)
            ]
    if missing := [role for role in roles if role not in placed]:
        raise ValueError(f"placement lacks {', '.join(missing)}; add {missing[0]}: all")
    return Placement(placed)


def numbers(name: str, text: str | int) -> list[int]:
    """The numbers of A or A-B.

    Raises:
        ValueError: If it is neither; `name` says what it belongs to.
    """
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", str(text).strip())
    if not match:
        raise ValueError(f"{name}: '{text}' is neither a number nor a range such as 0-3")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ValueError(f"{name}: {text} runs backwards; write {last}-{first}")
    return list(range(first, last + 1))


def _group(
    role: str, where: Place, groups: Mapping[str, Sequence[int]]
) -> tuple[Sequence[int], str]:
    """The resources that a role is placed on, and its placement on them."""
    if not isinstance(where, Mapping):
        return groups[""], str(where)
    if set(where) != _GROUP_KEYS:
        raise ValueError(
            f"placement of {role} has {', '.join(sorted(where)) or 'nothing'}, but a placement in "
            "a node group has node_group and placement"
        )
    label = str(where["node_group"])
    if label not in groups or not label:
        known = ", ".join(sorted(filter(None, groups))) or "none"
        raise ValueError(f"placement of {role}: no node group '{label}', there are: {known}")
    return groups[label], str(where["placement"])


def _processes(role: str, where: str, there: Sequence[str]) -> list[tuple[int, ...]]:
    name = f"placement of {role}"
    of_process: dict[int, tuple[int, ...]] = {}
    for part in where.replace(" ", "").split(","):
        match = _PART.fullmatch(part)
        if not match:
            raise ValueError(
                f"{name}: '{part}' is not RESOURCES or RESOURCES:PROCESSES, such as 0-3, all, or "
                "0-1:0-3"
            )
        resources = list(range(len(there))) if match[1] == "all" else numbers(name, match[1])
        if max(resources) >= len(there):
            raise ValueError(
                f"{name}: '{part}' needs resource {max(resources)}, but the cluster has "
                f"{len(there)}: "
                + ", ".join(f"{number}: {what}" for number, what in enumerate(there))
            )
        begin = len(of_process)
        ranks = numbers(name, match[2]) if match[2] else range(begin, begin + len(resources))
        for rank, share in zip(ranks, _shared(role, part, resources, len(ranks)), strict=True):
            if rank in of_process:
                raise ValueError(f"{name}: process {rank} is placed twice")
            of_process[rank] = share
    if sorted(of_process) != list(range(len(of_process))):
        raise ValueError(
            f"{name}: processes {', '.join(map(str, sorted(of_process)))} must be numbered from 0 "
            "without gaps"
        )
    return [of_process[rank] for rank in range(len(of_process))]


def _shared(
    role: str, part: str, resources: Sequence[int], num_processes: int
) -> list[tuple[int, ...]]:
    """The resources of each process of a part."""
    longer, shorter = max(len(resources), num_processes), min(len(resources), num_processes)
    if longer % shorter:
        raise ValueError(
            f"placement of {role}: '{part}' spreads {num_processes} processes over "
            f"{len(resources)} resources; one number must be a multiple of the other"
        )
    each = longer // shorter
    if num_processes >= len(resources):
        return [(resources[rank // each],) for rank in range(num_processes)]
    return [tuple(resources[rank * each : (rank + 1) * each]) for rank in range(num_processes)]
