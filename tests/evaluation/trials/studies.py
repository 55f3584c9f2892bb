"""Studies for tests: a protocol, a gate, a plan, and an operator who answers as a robot behaves."""

import random

import yaml

from rrf.evaluation.gates.gate import GateCfg
from rrf.evaluation.trials import order
from rrf.evaluation.trials.configs import TrialProtocolCfg
from rrf.evaluation.trials.plan import Arm, Plan, folder_of
from rrf.evaluation.trials.results import standing

SECRET = "5" * 64
PROTOCOL = TrialProtocolCfg(
    name="drawer",
    conditions={"left": "cup on the left", "right": "cup on the right"},
    rubric={"reach": 1, "grasp": 1, "open": 2},
    stages=["near", "held", "done"],
    failure_tags=["slipped"],
)
GATE = GateCfg(
    name="robot",
    protocol=PROTOCOL,
    overall_lower_bound=0.3,
    looks=[40],
    task_margin=1.0,
)


def study(name="s", gate=GATE, arms=("old", "new")) -> "Plan":
    """A study of checkpoints that no registry knows, in its folder."""
    roles = ["candidate"] if len(arms) == 1 else ["first", *["candidate"] * (len(arms) - 1)]
    made = tuple(
        Arm(arm, arm, f"digest of {arm}", role=role) for arm, role in zip(arms, roles, strict=True)
    )
    facts = (name, "", "robot", gate.to_dict(), made, 1, "")
    plan = Plan(*facts, order.commitment(SECRET), "2026-11-29T12:00:00+00:00")
    plan.save(folder_of(name), SECRET)
    return plan


def write_configs(home) -> None:
    """The gate and its protocol as files of a workspace."""
    gate = {k: v for k, v in GATE.to_dict().items() if k not in ("type", "protocol")}
    for kind, name, data in (
        ("gates", "robot", gate | {"protocol": "drawer"}),
        ("protocols", "drawer", PROTOCOL.to_dict()),
    ):
        (home / f"configs/{kind}").mkdir(parents=True, exist_ok=True)
        (home / f"configs/{kind}/{name}.yaml").write_text(yaml.safe_dump(data))


def answer(record, number, success, **more) -> None:
    """Start and score the trial of the moment."""
    turn = record.state.turn
    record.begin(turn.id)
    record.played(f"episode-{number}")
    content = {"id": f"answer-{number:04d}", "success": success, "stage": "done" if success else ""}
    record.score(turn.id, content | more)


def play(record, rates, seed=0, most=10_000) -> None:
    """Answer trials until the study is over: arms solve them with these rates."""
    chance = random.Random(seed)
    for _ in range(most):
        if standing(record).is_over:
            return
        answer(record, len(record.lines), chance.random() < rates[record.state.turn.slot.arm])
