"""The golden data of OpenVLA-OFT with tokens, written as its projects write a checkpoint, and what
our policy makes of the same weights and inputs."""

import functools
import json
import typing
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from rrf.algorithms.vla.configs import GRPOCfg
from rrf.data.schema import Observation
from rrf.envs.observations import digest, rows_of
from rrf.envs.vec_env import InitialState
from rrf.networks.vlm.configs import ImageRuleCfg
from rrf.policies.vla.heads.oft_configs import OFTTokenHeadCfg
from rrf.policies.vla.published.folders import with_tokenizer
from rrf.policies.vla.published.formats import FORMATS
from rrf.policies.vla.vlm import VLMPolicy
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.storage.trajectories import Job, PlayedEpisode
from tests.golden_files import GOLDEN, golden
from tests.networks.vlm.prismatic.test_prismatic import original_cfg

FILE = "openvla_oft_tokens.npz"
PROJECTS = ("rlinf", "official", "simplevla")
_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
_CAMERAS = ["front", "wrist"]
_MARKS = {"<s>": 1, "</s>": 2, "<PAD>": 32000}


@functools.cache
def weights() -> tuple[dict, dict[str, torch.Tensor]]:
    """The sizes of the golden OpenVLA, and its weights with the words that these inputs need."""
    with np.load(GOLDEN / "openvla.npz", allow_pickle=False) as data:
        sizes = json.loads(str(data["config_json"]))["weights"]
        tensors = {
            key.removeprefix("weights/"): torch.from_numpy(data[key].astype(np.float32))
            for key in data.files
            if key.startswith("weights/")
        }
    with np.load(GOLDEN / FILE, allow_pickle=False) as data:
        ids, rows = torch.from_numpy(data["embeddings/ids"]), data["embeddings/rows"]
    name = "language_model.model.embed_tokens.weight"
    tensors[name] = tensors[name].index_copy(0, ids, torch.from_numpy(rows))
    return sizes, tensors


def write_folder(project: str, folder: Path) -> Path:
    """A checkpoint as the project writes it."""
    folder.mkdir()
    config, arrays = golden(FILE, project)
    tensors = dict(weights()[1])
    tensors |= {name: t for name, t in arrays.items() if name.startswith("proprio_projector.")}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config["config"]))
    words = {f"w{number}": number for number in range(400, 406)}
    model = {"type": "WordLevel", "vocab": _MARKS | words, "unk_token": "<PAD>"}
    tokenizer = {"version": "1.0", "added_tokens": [], "model": model}
    tokenizer |= {"pre_tokenizer": {"type": "Whitespace"}}
    tokenizer |= dict.fromkeys(("normalizer", "post_processor", "decoder", "truncation", "padding"))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def tiny(project: str) -> VLMPolicyCfg:
    """A policy of the golden sizes, before it is fitted to a folder."""
    backbone = original_cfg(*weights())
    return VLMPolicyCfg(
        cameras=_CAMERAS[: 2 if project == "official" else 1],
        image_size=(42, 42),
        chunk_length=8,
        backbone=backbone.replace(
            featurizer=backbone.featurizer.replace(**_IMAGENET), prompt_suffix_ids=[29871]
        ),
        head=OFTTokenHeadCfg(temperature=1.6),
        state_normalization="quantile",
        action_normalization="quantile",
    )


def imported(project: str, folder: Path) -> VLMPolicy:
    """The policy that an import makes of a project's folder; its images are not cut, as those that
    the golden data were computed with."""
    layout = FORMATS["openvla"]
    cfg = with_tokenizer(layout.fitted(folder, tiny(project), None), folder)
    image = ImageRuleCfg(size=(42, 42), fit="stretch", filter="bicubic")
    policy = cfg.replace(backbone=cfg.backbone.replace(image=image)).build(
        layout.norm_stats(folder, cfg, None)
    )
    layout.fill(policy, folder)
    return policy.eval()


def observation(project: str) -> Observation:
    config, arrays = golden(FILE, project)
    images = arrays["images"].numpy()
    seen = {"front": images}
    if images.ndim == 5:
        seen = {camera: images[:, number] for number, camera in enumerate(_CAMERAS)}
    state = arrays["state"].numpy() if "state" in arrays else np.zeros((len(images), 4), np.float32)
    return Observation(seen, state, [_text(ids) for ids in config["prompts"]])


def decoding_errors(project: str, policy: VLMPolicy) -> dict[str, float]:
    """How far our tokens, actions and log-probabilities are from the project's."""
    arrays, seen = golden(FILE, project)[1], observation(project)
    greedy = policy.sample(seen, greedy=True)
    actions = arrays["greedy_actions"].numpy().reshape(greedy.actions.shape)
    evaluation = policy.evaluate(seen, {"tokens": arrays["tokens"]})
    errors = {
        "wrong_tokens": float((greedy.replay["tokens"] != arrays["greedy_tokens"]).sum()),
        "actions": float(np.abs(greedy.actions - actions).max()),
        "log_probs": _furthest(evaluation.log_prob, arrays["logprobs"]),
        "entropy": _furthest(evaluation.entropy, arrays["entropy"]),
    }
    if "sampled_tokens" in arrays:
        again = policy.evaluate(seen, {"tokens": arrays["sampled_tokens"]})
        errors["sampled_log_probs"] = _furthest(again.log_prob, arrays["sampled_logprobs"])
    return errors


def step_errors(policy: VLMPolicy) -> dict[str, float]:
    """How far one GRPO step of ours is from one of RLinf: advantages, loss, gradients relative to
    the largest, and the log-probabilities after AdamW's step."""
    settings, arrays = golden(FILE, "grpo")
    algorithm = GRPOCfg(
        group_size=settings["group_size"],
        clip_low=settings["clip_low"],
        clip_high=settings["clip_high"],
        time_cost=0.0,
        weighting="trajectory",
    ).build(policy)
    episodes = _episodes(settings, arrays)
    size = settings["group_size"]
    groups = [episodes[start : start + size] for start in range(0, len(episodes), size)]
    rows = algorithm.batch(groups, settings["steps"] * policy.chunk_length)
    advantages = torch.cat([arrays["advantages"][: len(e), n, :1] for n, e in enumerate(episodes)])
    optimizer = torch.optim.AdamW(
        policy.parameters(),
        settings["lr"],
        settings["betas"],
        weight_decay=settings["weight_decay"],
    )
    loss, _ = algorithm.loss(rows, 0)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), settings["max_grad_norm"])
    errors = {
        "advantages": _furthest(rows.advantage, advantages),
        "loss": _furthest(loss, arrays["loss"]),
        "grad_norm": _furthest(norm, arrays["grad_norm"]) / arrays["grad_norm"].item(),
    }
    parameters = dict(policy.backbone.named_parameters())
    for name, expected in _group(arrays, "grads.").items():
        grad = parameters[str(policy.backbone.published_name(name))].grad
        assert grad is not None
        errors[f"grad {name}"] = _furthest(grad, expected) / expected.abs().max().item()
    optimizer.step()
    for name, expected in _group(arrays, "params_after.").items():
        found = parameters[str(policy.backbone.published_name(name))]
        errors[f"after {name}"] = _furthest(found, expected)
    with torch.no_grad():
        after = policy.evaluate(rows.observation, rows.replay).log_prob
    expected = torch.cat([_rows(arrays["logprobs_after"], settings, n, len(e))
                          for n, e in enumerate(episodes)])  # fmt: skip
    return errors | {"log_probs_after": _furthest(after, expected)}


def _episodes(settings: dict, arrays: dict[str, torch.Tensor]) -> list[PlayedEpisode]:
    """The golden episodes; a row of the arrays is a decision, those of one time together."""
    episodes = []
    for number in range(settings["episodes"]):
        length = int(arrays["lengths"][number])
        images = _rows(arrays["images"], settings, number, length).numpy()
        text = _text(settings["prompts"][number])
        seen = Observation({"front": images}, np.zeros((length, 4), np.float32), [text] * length)
        episodes.append(
            PlayedEpisode(
                job=Job(number, number // settings["group_size"], InitialState("golden", 0, 0)),
                observation=seen,
                replay={"tokens": _rows(arrays["tokens"], settings, number, length)},
                log_prob=_rows(arrays["old_logprobs"], settings, number, length),
                value=torch.full((length, 1), torch.nan),
                reward=np.zeros(length, np.float32),
                steps=np.full(length, 2),
                success=bool(arrays["success"][number]),
                truncated=not bool(arrays["success"][number]),
                final_value=np.nan,
                policy_version=0,
                reset_digest=digest(rows_of(seen, [0]), 0),
            )
        )
    return episodes


def _rows(values: torch.Tensor, settings: dict, number: int, length: int) -> torch.Tensor:
    """The rows of an episode."""
    return values[number :: settings["episodes"]][:length]


def _group(arrays: dict[str, torch.Tensor], start: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(start): v for name, v in arrays.items() if name.startswith(start)}


def _text(ids: list[int]) -> str:
    return " ".join(f"w{number}" for number in ids)


def _furthest(found: torch.Tensor, expected: torch.Tensor) -> float:
    expected = expected.reshape(found.shape)
    return float((found.detach().double() - expected.double()).abs().max())


def errors(folder: Path) -> dict[str, dict[str, float]]:
    """All comparisons, with folders of the projects written below `folder`."""
    found: dict[str, dict[str, float]] = {}
    policy: typing.Any = None
    for project in reversed(PROJECTS):
        policy = imported(project, write_folder(project, folder / project))
        found[project] = decoding_errors(project, policy)
    return found | {"grpo": step_errors(policy)}
