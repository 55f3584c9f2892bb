"""The Prefect flow run that a command belongs to, so that what it records can name it.

Nothing here imports Prefect: a flow tells the commands that it starts by environment variables
(`flows.commands`), and runs and versions that are made meanwhile carry them as tags.
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
    """Where Prefect's web UI shows it; empty without a server."""

    @classmethod
    def from_environment(cls) -> "FlowRun | None":
        """The flow run that started this process; None if a person did."""
        return cls._from(_VARIABLES, os.environ)

    @classmethod
    def from_tags(cls, tags: Mapping[str, str]) -> "FlowRun | None":
        """The flow run that the tags of an MLflow run or version name, if they do."""
        return cls._from(_TAGS, tags)

    @classmethod
    def _from(cls, keys: Mapping[str, str], values: Mapping[str, str]) -> "FlowRun | None":
        found = {field: values.get(key, "") for field, key in keys.items()}
        return cls(**found) if found["id"] else None

    def environment(self) -> dict[str, str]:
        """Variables that tell a child process of this flow run."""
        return {key: getattr(self, field) for field, key in _VARIABLES.items()}

    def tags(self) -> dict[str, str]:
        """Tags of an MLflow run or version that was made in this flow run. All of them, so that
        none of an earlier flow run stays.
        """
        return {key: getattr(self, field) for field, key in _TAGS.items()}

    def __str__(self) -> str:
        """A link in markdown, or name and id where there is no address."""
        name = self.name or self.id
        return f"[{name}]({self.url})" if self.url else f"{name} (`{self.id}`)"


def flow_run_tags() -> dict[str, str]:
    """The tags that name the flow run which started this process; none if a person did."""
    flow_run = FlowRun.from_environment()
    return flow_run.tags() if flow_run else {}
