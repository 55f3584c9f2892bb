"""Where the processes of roles run: RLinf's placement grammar.

    env: 0-3                  four processes, one on each of the resources 0 to 3
    env,rollout: all          both roles, one process per resource
    env: 0-1:0-3,3:4          processes 0 to 3 share the resources 0 and 1, process 4 has resource 3

A resource is a GPU of the cluster, or a node where there are no GPUs. In a part
RESOURCES:PROCESSES, the longer of the two must be a multiple of the shorter: several processes then
share a resource, or a process has several.
"""

import dataclasses
import re
import typing
from collections.abc import Mapping, Sequence

Mode = typing.Literal["collocated", "disaggregated", "hybrid"]
_PART = re.compile(r"(all|\d+(?:-\d+)?)(?::(\d+(?:-\d+)?))?")


@dataclasses.dataclass(frozen=True)
class Placement:
    """The resources of every process of every role."""

    roles: dict[str, list[tuple[int, ...]]]  # role -> of process 0, 1, ...: its resources

    @property
    def mode(self) -> Mode:
        """collocated: all roles have the same resources; disaggregated: no two roles share one."""
        used = [{r for process in processes for r in process} for processes in self.roles.values()]
        if all(one == used[0] for one in used):
            return "collocated"
        return "disaggregated" if sum(map(len, used)) == len(set().union(*used)) else "hybrid"

    def used(self) -> set[int]:
        """All resources that have a process."""
        return {r for processes in self.roles.values() for process in processes for r in process}


def parse(
    placement: Mapping[str, str], resources: Sequence[str], roles: Sequence[str]
) -> Placement:
    """Read a placement.

    Args:
        placement: "role,role" -> where; see the module.
        resources: What the resources of the cluster are, for errors.
        roles: The roles that must be placed.

    Raises:
        ValueError: For what is no placement, a role that is missing, unknown or placed twice,
            resources that do not exist, and processes that are not numbered from 0 without gaps.
    """
    found: dict[str, list[tuple[int, ...]]] = {}
    for names, where in placement.items():
        for name in names.replace(" ", "").split(","):
            if name not in roles:
                raise ValueError(f"placement names '{name}', allowed: {', '.join(roles)}")
            if name in found:
                raise ValueError(f"placement names '{name}' twice; give it one place")
            found[name] = _processes(name, str(where), resources)
    if missing := [role for role in roles if role not in found]:
        raise ValueError(f"placement lacks {', '.join(missing)}; add {missing[0]}: all")
    return Placement(found)


def _processes(role: str, where: str, there: Sequence[str]) -> list[tuple[int, ...]]:
    of_process: dict[int, tuple[int, ...]] = {}
    for part in where.replace(" ", "").split(","):
        match = _PART.fullmatch(part)
        if not match:
            raise ValueError(
                f"placement of {role}: '{part}' is not RESOURCES or RESOURCES:PROCESSES, such as "
                "0-3, all, or 0-1:0-3"
            )
        every = match[1] == "all"
        resources = list(range(len(there))) if every else _range(role, match[1])
        if max(resources) >= len(there):
            raise ValueError(
                f"placement of {role}: '{part}' needs resource {max(resources)}, but the cluster "
                f"has {len(there)}: "
                + ", ".join(f"{number}: {what}" for number, what in enumerate(there))
            )
        begin = len(of_process)
        ranks = _range(role, match[2]) if match[2] else range(begin, begin + len(resources))
        for rank, own in zip(ranks, _shared(role, part, resources, len(ranks)), strict=True):
            if rank in of_process:
                raise ValueError(f"placement of {role}: process {rank} is placed twice")
            of_process[rank] = own
    if sorted(of_process) != list(range(len(of_process))):
        raise ValueError(
            f"placement of {role}: processes {', '.join(map(str, sorted(of_process)))} must be "
            "numbered from 0 without gaps"
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


def _range(role: str, text: str) -> list[int]:
    first, _, last = text.partition("-")
    numbers = list(range(int(first), int(last or first) + 1))
    if not numbers:
        raise ValueError(f"placement of {role}: {text} runs backwards; write {last}-{first}")
    return numbers
