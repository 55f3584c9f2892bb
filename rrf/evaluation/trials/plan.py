"""A study as it was planned, before its first trial: its arms by their digests, its gate.

`trials/NAME/` of the workspace has the plan, the secret of its order, the record of the trials and,
later, the results. The plan's digest is in the ledger of the model before the first trial is begun,
so whoever changes the plan afterwards has another digest.
"""

import dataclasses
import os
import typing
from pathlib import Path

from rrf import atomic, formats, workspace
from rrf.evaluation.gates.gate import GateCfg
from rrf.evaluation.trials import order
from rrf.evaluation.trials.configs import TrialProtocolCfg

FOLDER = "trials"
PLAN, SECRET, RECORD = "plan.json", "order.secret", "record.jsonl"


@dataclasses.dataclass(frozen=True)
class Arm:
    """A policy of a study."""

    name: str
    reference: str
    """As the study's file names it."""
    digest: str
    """Of its checkpoint."""
    version: str = ""
    """The number of the version of the plan's model; "" for a checkpoint or another model."""
    role: typing.Literal["candidate", "first", "best"] = "candidate"
    """Whether it is judged, or what others are compared with: the first arm, or the best champion
    so far."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """See the module."""

    name: str
    model: str
    """The registered model; "" for none."""
    gate_file: str
    gate: dict[str, typing.Any]
    arms: tuple[Arm, ...]
    """The first one is what the others are compared with; the candidates come last."""
    attempt: int
    """Which attempt the first candidate is, by the ledger, when the plan was made; each further
    candidate is one more."""
    notes: str
    commitment: str
    """SHA-256 of the secret that the order is drawn with."""
    created: str
    """ISO 8601, UTC."""

    @property
    def digest(self) -> str:
        """Hex SHA-256 of all of it."""
        return atomic.digest_of(self._content())

    @property
    def gate_cfg(self) -> GateCfg:
        """The gate that judges."""
        return GateCfg.from_dict(self.gate)

    @property
    def protocol(self) -> TrialProtocolCfg:
        """What is done in each trial, without what belongs to this study."""
        protocol = self.gate_cfg.protocol
        assert isinstance(protocol, TrialProtocolCfg)
        return protocol

    @property
    def candidates(self) -> tuple[Arm, ...]:
        """The arms that are judged."""
        return tuple(arm for arm in self.arms if arm.role == "candidate")

    @property
    def num_blocks(self) -> int:
        """The most blocks."""
        return self.gate_cfg.looks[-1]

    @property
    def num_trials(self) -> int:
        """The most trials that count."""
        return self.num_blocks * len(self.arms) * len(self.protocol.conditions)

    def same_study(self, other: "Plan") -> list[str]:
        """The names of what differs between two plans of one study, besides time and draw."""
        drawn = {"commitment", "created", "attempt"}
        one, another = self._content(), other._content()
        return [name for name in one if name not in drawn and one[name] != another[name]]

    def _content(self) -> dict:
        return {**dataclasses.asdict(self), "arms": [dataclasses.asdict(arm) for arm in self.arms]}

    def save(self, folder: Path, secret: str) -> None:
        """Write the plan and the secret of its order, all or nothing.

        Raises:
            ValueError: If there is something in the folder.
        """
        if not atomic.is_vacant(folder):
            raise ValueError(f"{folder} is there already; give the study another name")
        with atomic.directory(folder) as root:
            file = root / SECRET
            with os.fdopen(
                os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
            ) as stream:
                stream.write(secret + "\n")
            data = formats.TRIAL.mark | self._content()
            atomic.write_json(root / PLAN, data | {"digest": self.digest})

    @classmethod
    def load(cls, folder: Path) -> "Plan":
        """The plan in the folder of a study.

        Raises:
            ValueError: If there is none, or it was changed after it was made.
        """
        file = folder / PLAN
        absent = (
            f"there is no study '{folder.name}' (no {file}); plan it: rrf trial new FILE.yaml; "
            f"planned are: {', '.join(names()) or 'none'}"
        )
        data = formats.TRIAL.read(atomic.read_json(file, absent, "restore it"), file)
        written = data.pop("digest", None)
        try:
            arms = tuple(Arm(**arm) for arm in data["arms"])
            plan = cls(**{**data, "arms": arms})
        except (KeyError, TypeError) as error:
            raise ValueError(f"{file} is no plan of a study ({error}); restore it") from error
        if written != plan.digest or plan.name != folder.name:
            raise ValueError(
                f"{file} was changed after the study was planned; restore it, or plan another study"
            )
        return plan

    def secret(self, folder: Path) -> str:
        """The secret of the order.

        Raises:
            ValueError: If it is not the one that was drawn.
            OSError: If it cannot be read.
        """
        secret = (folder / SECRET).read_text().strip()
        if order.commitment(secret) != self.commitment:
            raise ValueError(
                f"{folder / SECRET} is not the secret that the plan was made with; restore it"
            )
        return secret


def folder_of(name: str) -> Path:
    """The folder of a study. Raises ValueError for what is no name."""
    if not atomic.is_plain_name(name) or "/" in name:
        raise ValueError(f"{name!r} is no name of a study; planned are: {', '.join(names())}")
    return workspace.home() / FOLDER / name


def names() -> list[str]:
    """The studies of this workspace."""
    root = workspace.home() / FOLDER
    return sorted(path.parent.name for path in root.glob(f"*/{PLAN}"))
