"""The Prefect flow run that a command belongs to, so that its records can name the flow run.

Nothing here imports Prefect. A flow sets environment variables for the commands that it starts
(`flows.commands`), and the MLflow runs and versions that these commands create get matching tags.
"""

import dataclasses
import os
from collections.abc import Mapping

_VARIABLES = {"id": "RRF_FLOW_RUN_ID", "name": "RRF_FLOW_RUN_NAME", "url": "RRF_FLOW_RUN_URL"}
_TAGS = {field: f"prefect.flow_run_{field}" for field in _VARIABLES}


@dataclasses.dataclass(frozen=True)
class FlowRun:
    """A flow run of Prefect."""

    id: str
    name: str = ""
    url: str = ""
    """The address of its page in Prefect's web UI; empty without a server, and for a server of this
    machine, whose port may change: `rrf open ID` finds that."""

    @classmethod
    def from_environment(cls) -> "FlowRun | None":
        """The flow run that started this process; None if a person did."""
        return cls._from(_VARIABLES, os.environ)

    @classmethod
    def from_tags(cls, tags: Mapping[str, str]) -> "FlowRun | None":
        """The flow run named by the tags of an MLflow run or version; None if they name none."""
        return cls._from(_TAGS, tags)

    @classmethod
    def _from(cls, keys: Mapping[str, str], values: Mapping[str, str]) -> "FlowRun | None":
        fields = {field: values.get(key, "") for field, key in keys.items()}
        return cls(**fields) if fields["id"] else None

    def environment(self) -> dict[str, str]:
        """Environment variables that name this flow run to a child process."""
        return {key: getattr(self, field) for field, key in _VARIABLES.items()}

    def tags(self) -> dict[str, str]:
        """Tags for an MLflow run or version that is created or changed in this flow run.

        All tags are returned, even empty ones, so that none of an earlier flow run remains.
        """
        return {key: getattr(self, field) for field, key in _TAGS.items()}

    def __str__(self) -> str:
        """A markdown link, or the name and the command that finds the page."""
        name = self.name or self.id
        return f"[{name}]({self.url})" if self.url else f"{name} (`rrf open {self.id}`)"


def flow_run_tags() -> dict[str, str]:
    """The tags that name the flow run which started this process; none if a person did."""
    flow_run = FlowRun.from_environment()
    return flow_run.tags() if flow_run else {}
