"""GR00T's heads with the weights and inputs of the golden files."""

import json

import numpy as np
import torch

from rrf.networks.dit_configs import DiTCfg
from rrf.networks.vlm.backbone import Features, View
from rrf.networks.vlm.mock_configs import MockBackboneCfg
from rrf.policies.vla.context import Context
from rrf.policies.vla.heads.groot import GrootHead
from rrf.policies.vla.heads.groot_configs import GrootHeadCfg
from tests.golden_files import GOLDEN

FILES = {"n15": "groot_n15_head.npz", "n17": "groot_n17.npz"}


class Case:
    """One golden file: settings, arrays by group, and our head with its weights."""

    def __init__(self, version: str):
        with np.load(GOLDEN / FILES[version], allow_pickle=False) as data:
            arrays = {key: torch.from_numpy(data[key]) for key in data.files if "json" not in key}
            settings = json.loads(str(data["config_json"]))
        self.backbone_settings = settings["weights"]  # N1.7's; the file of N1.5 has the head alone
        self.settings = settings["weights"] if version == "n15" else settings["weights"]["head"]
        self.real_time = settings.get("rtc_options")
        prefix = "" if version == "n15" else "action_head."
        self.weights = _group(arrays, f"weights/{prefix}")
        self.grads = _group(arrays, f"grads/{prefix}")
        self.inputs, self.outputs = _group(arrays, "inputs/"), _group(arrays, "outputs/")
        self.times = _group(arrays, "time_sampling/")
        self.cfg = _cfg(version, self.settings)
        width = self.settings["backbone_embedding_dim"]
        self.backbone = MockBackboneCfg(hidden_size=width).build()
        self.widths = (*self.inputs["action"].shape[1:], self.inputs["state"].shape[2])
        self.head = GrootHead(self.cfg, self.backbone, *self.widths).eval()
        self.head.load_state_dict(self.weights)

    def context(self) -> Context:
        inputs, found = self.inputs, self.inputs | self.outputs
        batch = len(inputs["state"])
        view = View((), torch.ones(batch, 0, dtype=torch.bool), [""] * batch)
        context = Context(self.backbone, view, inputs["state"][:, 0], inputs["embodiment_id"])
        mask = found["backbone_attention_mask"].bool()
        context.features = Features(
            found["backbone_features"], mask, found.get("image_mask", torch.zeros_like(mask))
        )
        return context


def _group(arrays: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {key.removeprefix(prefix): a for key, a in arrays.items() if key.startswith(prefix)}


def _cfg(version: str, settings: dict) -> GrootHeadCfg:
    dit, vl = settings["diffusion_model_cfg"], settings["vl_self_attention_cfg"]
    return GrootHeadCfg(
        version=version,
        dit=DiTCfg(
            num_layers=dit["num_layers"],
            num_heads=dit["num_attention_heads"],
            head_width=dit["attention_head_dim"],
            dropout=dit["dropout"],
        ),
        hidden_features=settings["hidden_size"],
        max_state_dim=settings["max_state_dim"],
        max_action_dim=settings.get("action_dim") or settings["max_action_dim"],
        num_embodiments=settings["max_num_embodiments"],
        num_future_tokens=settings.get("num_target_vision_tokens", 0),
        max_steps=settings["max_seq_len"],
        vl_layers=vl["num_layers"],
        vl_heads=vl["num_attention_heads"],
        vl_dropout=vl["dropout"],
        state_dropout=settings.get("state_dropout_prob", 0.0),
        attend_text_every=settings.get("attend_text_every_n_blocks", 2),
        reads_padding=True,
        num_denoise_steps=settings["num_inference_timesteps"],
        num_time_buckets=settings["num_timestep_buckets"],
        noise_beta=(settings["noise_beta_alpha"], settings["noise_beta_beta"]),
        noise_scale=settings["noise_s"],
    )
