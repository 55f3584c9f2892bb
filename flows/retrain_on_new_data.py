"""`retrain-on-new-data`: train the champion further when deployed policies have brought enough."""

import os
from typing import Annotated

from prefect import flow, get_run_logger
from prefect.runtime import flow_run
from pydantic import Field

from flows import commands, notify
from flows.gate import champion_of, gate_for
from flows.ingest import DatasetName, describe, reproduce
from flows.ingest_deployment import Store, publish_deployment
from flows.promote import ModelName
from flows.steps import Override, step
from flows.this_run import completed
from flows.train_vla import NEW_MODEL_GATE, check, datasets_behind
from flows.training import BudgetField, TrainFile, conclude, train, within_budget
from rrf import workspace
from rrf.data.transport.episode_store import EpisodeStore
from rrf.registry import promotion, releases, retraining
from rrf.runners.checkpoints.deployable import VLA, described, kind_of

STORE_VARIABLE = "RRF_LOG_STORE"
Quota = Annotated[int, Field(ge=1)]


@step(name="news", task_run_name="what is new for {model}")
def news(model: str, datasets: list[str], store: str | None) -> retraining.News:
    """What has come since the newest version of the model."""
    url = store or os.environ.get(STORE_VARIABLE)
    return retraining.news(model, datasets, EpisodeStore(url) if url else None)


@step(name="fetch", task_run_name="fetch the champion of {model}")
def fetch_champion(model: str) -> str:
    """The champion's checkpoint, from which training goes on.

    Raises:
        ValueError: If there is none, or its trainings take one dataset only.
    """
    champion = champion_of(model)
    if champion is None:
        raise ValueError(
            f"'{model}' has no champion to train further; promote one: rrf models promote {model}"
        )
    out = workspace.state() / "fetched" / f"{model}-{champion.version}"
    commands.rrf("fetch", "models", "fetch", f"{model}/{champion.version}", "--out", out)
    if (kind := kind_of(out)) != VLA:
        raise ValueError(
            f"the champion of '{model}' is {described(kind)}, whose training takes one dataset; "
            "merge the two (rrf data edit NEW --of ONE --of OTHER) and run train-offline on it"
        )
    return workspace.relative(out)


def _run_name() -> str:
    given = flow_run.parameters
    return f"retrain-on-new-data {given['model']}: {given['dataset']} and {given['demonstrations']}"


@flow(
    name="retrain-on-new-data",
    flow_run_name=_run_name,
    **notify.OF_EVERY_FLOW,
)
@within_budget
def retrain_on_new_data(
    model: ModelName = "metaworld-compact",
    dataset: DatasetName = "metaworld-deployed",
    demonstrations: DatasetName = "metaworld-demo",
    sft: TrainFile = "compact-vla-sft",
    store: Store = None,
    min_episodes: Quota = 50,
    min_failures: Quota = 10,
    weight: Annotated[float, Field(gt=0)] = 1.0,
    canary: bool = False,
    overrides: Override | None = None,
    budget: BudgetField = None,
) -> dict:
    """Train the champion further on what deployed policies did, then judge, register, promote.

    It is skipped, and says why, while too little is new. What is new: episodes in the store, or
    another version of one of the datasets in dvc.lock than the newest version of the model was
    trained on.

    Args:
        model: Name of the model in the registry, whose policies see images; its gate judges the
            candidate.
        dataset: Name of the dataset of logged episodes.
        demonstrations: Name of the dataset that the champion learned from.
        sft: Preset or file of the training.
        store: Where robots send their episodes.
        min_episodes: So many new episodes are enough.
        min_failures: So many episodes that the policy has not solved alone are enough.
        weight: How often a frame of the logged episodes is drawn, relative to a demonstrated one.
        canary: Let a candidate that passes act beside the champion, by the rules of
            configs/releases/, instead of promoting it. Nothing is trained while a release runs.
        overrides: Dotted overrides of the training.
        budget: What the training may use with its earlier attempts, e.g. {"gpu_hours": 2}.
    """
    found = news(model, [dataset, demonstrations], store)
    reason = found.reason(min_episodes, min_failures)
    if not reason:
        return _skipped(found.too_little(min_episodes, min_failures))
    if canary and (release := releases.running_in(promotion.ledger_of(model))):
        return _skipped(f"the release of version {release.version} runs, and its outcomes decide")
    get_run_logger().info("%s is trained again: %s", model, reason)
    gate = gate_for(model, None, NEW_MODEL_GATE)
    check(gate, {"retrain": (sft, overrides or {})}, model)
    parent = fetch_champion(model)
    reproduce(demonstrations)
    if found.episodes:
        brought, _ = publish_deployment(dataset, store, demonstrations)
        if not brought["new"] and not found.changed:
            return _skipped(f"{len(brought['refused'])} new episodes were refused")
    else:
        reproduce(dataset)
    given = {
        "init_from": parent,
        "dataset": demonstrations,
        "mixture": {dataset: weight},
        "corrections": {},
    }
    policy = train("retrain", sft, given | (overrides or {}), budget)
    lineage = describe(datasets_behind(policy.checkpoint))
    return conclude(model, {"retrain": policy}, gate, lineage, canary=canary)


def _skipped(why: str) -> dict:
    return completed(f"skipped: {why}", {"skipped": True, "why": why}, name="Skipped")
