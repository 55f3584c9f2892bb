"""Complete run configs by name. A training file has only a preset's name and dotted overrides."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from rrf import workspace
from rrf.config import closest, did_you_mean, parse_overrides, read_yaml
from rrf.envs.configs import trust_task
from rrf.lookup import Lookup
from rrf.presets.rlinf import recipes
from rrf.presets.rlinf.names import foreign_name, is_config
from rrf.runners.configs import RunnerCfg

_LOCOMOTION = (
    *("go1-flat-ppo", "go1-flat-quick", "go1-rough-ppo", "go1-rough-teacher"),
    *("g1-flat-ppo", "g1-rough-ppo"),
    *("go1-flat-amp", "g1-tracking-mjlab"),
)
_HUMANOID = ("g1-whole-body-ppo", "g1-tracking-ppo")
_MANIPULATION = (
    *("yam-lift-cube-imitation", "yam-lift-cube-ppo", "yam-lift-cube-ppo-shown"),
    "yam-lift-cube-depth",
)
_GYMNASIUM = (
    *("cartpole-ppo", "pendulum-ppo", "inverted-pendulum-ppo"),
    *("halfcheetah-ppo", "hopper-ppo", "walker2d-ppo", "ant-ppo", "humanoid-ppo"),
)
_SMOOTH = ("pendulum-caps", "pendulum-l2c2", "pendulum-lips", "pendulum-lcp", "pendulum-lipsnet")
_BLOCKS = ("pendulum-moe", "pendulum-vae", "pendulum-fft")
_POPULATIONS = ("two-goals-ppo", "two-goals-sapg", "two-goals-epo")
_OFF_POLICY = (
    *("pendulum-sac", "pendulum-dsac", "pendulum-dsact", "inverted-pendulum-sac"),
    *("pendulum-hidden-sac", "pendulum-hidden-sac-seq", "pendulum-hidden-sac-trans"),
    *("halfcheetah-sac", "hopper-sac", "walker2d-sac", "ant-sac", "humanoid-sac"),
    "halfcheetah-dsact",
)
_OFFLINE = (
    *("pendulum-bc", "pendulum-td3-bc", "pendulum-iql", "pendulum-cql"),
    *("pendulum-iql-online", "pendulum-cql-online", "pendulum-cal-ql"),
)
_BELIEF = ("pendulum-belief-flow", "pendulum-gru-d", "pendulum-hold")
_PLANNING = ("pendulum-tdmpc2", "pendulum-tdmpc", "halfcheetah-tdmpc2")
_MODEL_BASED = (
    *("pendulum-mbpo", "inverted-pendulum-mbpo", "halfcheetah-mbpo", "pendulum-model-ppo"),
    *("pendulum-dynamics", "pendulum-dynamics-transformer"),
)
_ROBOTICS = (
    *("fetch-reach-sac-her", "fetch-reach-sac", "fetch-push-sac-her", "fetch-push-sac-her-alone"),
    *("pointmaze-umaze-iql", "pointmaze-umaze-bc"),
)
_DISCRETE = ("cartpole-sac", "acrobot-sac", "lunarlander-sac")
_IMITATION = ("pendulum-gail",)
_STUDENTS = ("pendulum-hidden-distill", "pendulum-hidden-dagger", "go1-rough-student")
_OPENVLA = (
    *("openvla-sft", "openvla-oft-sft", "openvla-oft-tokens-sft"),
    *("openvla-laptop", "openvla-oft-laptop", "openvla-oft-tokens-laptop"),
)
_QWEN = (
    *("qwen2vl-2b-pretrain", "qwen2vl-7b-pretrain", "qwen3vl-2b-pretrain", "qwen3vl-8b-pretrain"),
    *("qwen2vl-laptop", "qwen3vl-laptop"),
)
_PI = ("pi0-sft", "pi05-sft", "pi0-laptop", "pi05-laptop")

_LAPTOP_RL = (
    "metaworld-grpo-oft-laptop",
    "metaworld-grpo-oft-tokens-laptop",
    "metaworld-grpo-pi05-laptop",
    "metaworld-grpo-groot-laptop",
)
_LIBERO = ("compact-vla-libero",)
_MANISKILL = (
    *("compact-vla-maniskill", "maniskill-grpo-compact"),
    *("compact-vla-put-on-plate", "put-on-plate-grpo-compact"),
)
_ISAACLAB = (
    *("isaaclab-cartpole-ppo", "isaaclab-ant-ppo", "isaaclab-reach-franka-ppo"),
    *("isaaclab-go2-flat-ppo", "isaaclab-a1-flat-ppo", "isaaclab-go1-flat-ppo"),
    *("isaaclab-anymal-c-flat-ppo", "compact-vla-isaaclab", "isaaclab-grpo-compact"),
)
_GROOT = ("groot-n15-sft", "groot-n17-sft", "groot-laptop", "groot-laptop-mixture")
_RECORDINGS = ("bridge-sft-laptop", "gr1-sft-laptop", "g1-sft-laptop", "so101-sft-laptop")
_PSI0 = (
    *("psi0-laptop", "psi0-gr1-laptop", "psi0-g1-laptop"),
    *("psi0-g1-table", "psi0-g1-table-grpo", "psi0-g1-table-dagger", "psi0-humanoid"),
)
_LEROBOT = (
    *("lerobot-act", "lerobot-diffusion", "lerobot-smolvla"),
    *("lerobot-act-laptop", "lerobot-diffusion-laptop"),
)
_LEROBOT_TASKS = ("pusht-act", "pusht-diffusion", "aloha-act")


def _functions(module: str, names: Iterable[str]) -> dict[str, str]:
    """Map each preset to the function of the same name, with underscores."""
    return {name: f"rrf.presets.{module}:{name.replace('-', '_')}" for name in names}


PRESETS = Lookup(
    "preset",
    {
        "compact-vla-pretrain": "rrf.presets.compact_vla:pretrain",
        "compact-vla-pretrain-tokens": "rrf.presets.compact_vla:pretrain_tokens",
        "compact-vla-sft": "rrf.presets.compact_vla:sft",
        "compact-vla-robust": "rrf.presets.compact_vla:robust",
        "compact-vla-sft-tokens": "rrf.presets.compact_vla:sft_tokens",
        "compact-state": "rrf.presets.compact_vla:compact_state",
        "compact-vla-pretrain-others": "rrf.presets.vla_rl:pretrain_others",
        "compact-vla-one-demo": "rrf.presets.vla_rl:one_demo_sft",
        "compact-vla-one-demo-tokens": "rrf.presets.vla_rl:one_demo_sft_tokens",
        "compact-vla-one-demo-flow": "rrf.presets.vla_rl:one_demo_sft_flow",
        "compact-vla-two-views": "rrf.presets.vla_rl:two_views_sft",
        "compact-vla-mt50": "rrf.presets.vla_rl:mt50_sft",
        "metaworld-grpo-two-views": "rrf.presets.vla_rl:metaworld_grpo_two_views",
        "metaworld-rloo-compact": "rrf.presets.vla_rl:metaworld_rloo_compact",
        "metaworld-reinforce-compact": "rrf.presets.vla_rl:metaworld_reinforce_compact",
        "metaworld-grpo-compact": "rrf.presets.vla_rl:metaworld_grpo_compact",
        "metaworld-grpo-demo": "rrf.presets.vla_rl:metaworld_grpo_demo",
        "metaworld-grpo-tokens": "rrf.presets.vla_rl:metaworld_grpo_tokens",
        "metaworld-grpo-flow": "rrf.presets.vla_rl:metaworld_grpo_flow",
        "metaworld-grpo-mt50": "rrf.presets.vla_rl:metaworld_grpo_mt50",
        "compact-vla-calvin": "rrf.presets.calvin:calvin_sft",
        "compact-vla-calvin-all": "rrf.presets.calvin:calvin_all_sft",
        "calvin-grpo-compact": "rrf.presets.calvin:calvin_grpo",
        "compact-vla-robosuite": "rrf.presets.robosuite:robosuite_sft",
        "compact-vla-robosuite-robust": "rrf.presets.robosuite:robosuite_robust",
        "robosuite-grpo-compact": "rrf.presets.robosuite:robosuite_grpo",
        "compact-vla-robotwin": "rrf.presets.robotwin:robotwin_sft",
        "robotwin-grpo-compact": "rrf.presets.robotwin:robotwin_grpo",
        "compact-vla-mt50-two-views": "rrf.presets.vla_rl:mt50_two_views_sft",
        "compact-vla-mt50-two-views-robust": "rrf.presets.vla_rl:mt50_two_views_robust",
        "metaworld-grpo-mt50-two-views": "rrf.presets.vla_rl:metaworld_grpo_mt50_two_views",
        "metaworld-ppo-compact": "rrf.presets.vla_rl:metaworld_ppo_compact",
        "metaworld-ppo-async": "rrf.presets.vla_rl:metaworld_ppo_async",
        "metaworld-sac-residual": "rrf.presets.vla_rl:metaworld_sac_residual",
        "compact-vla-undertrained": "rrf.presets.compact_vla:undertrained",
        "metaworld-dagger-compact": "rrf.presets.dagger:metaworld_dagger_compact",
    }
    | _functions("pi", _PI)
    | _functions("locomotion", _LOCOMOTION)
    | _functions("humanoid", _HUMANOID)
    | _functions("manipulation", _MANIPULATION)
    | _functions("gymnasium", _GYMNASIUM)
    | _functions("smooth", _SMOOTH)
    | _functions("blocks", _BLOCKS)
    | _functions("populations", _POPULATIONS)
    | _functions("off_policy", _OFF_POLICY)
    | _functions("offline", _OFFLINE)
    | _functions("belief", _BELIEF)
    | _functions("model_based", _PLANNING)
    | _functions("model_based", _MODEL_BASED)
    | _functions("off_policy", _DISCRETE)
    | _functions("robotics", _ROBOTICS)
    | _functions("imitation", _IMITATION)
    | _functions("students", _STUDENTS)
    | _functions("qwen", _QWEN)
    | _functions("openvla", _OPENVLA)
    | _functions("groot", _GROOT)
    | _functions("laptop_rl", _LAPTOP_RL)
    | _functions("vla_pairs", (*recipes.names(), *recipes.further()))
    | _functions("libero", _LIBERO)
    | _functions("maniskill", _MANISKILL)
    | _functions("isaaclab", _ISAACLAB)
    | _functions("recordings", _RECORDINGS)
    | _functions("psi0", _PSI0)
    | _functions("lerobot", _LEROBOT)
    | _functions("lerobot_tasks", _LEROBOT_TASKS),
    recipes.aliases(),
)
_KEYS = ("preset", "overrides")


def resolve(target: str, overrides: Iterable[str] | Mapping = ()) -> RunnerCfg:
    """The config of a preset or a training file, with `overrides` applied.

    Args:
        target: A name in `PRESETS`, or a YAML file {preset: NAME, overrides: {dotted.path: value}}.
        overrides: Words "path=value", or a mapping from dotted path to value. They take precedence
            over the overrides in the file.

    Raises:
        ValueError: For an unknown preset, key or field (the message names the closest known one),
            or for a value of a wrong type.
    """
    changes = dict(overrides) if isinstance(overrides, Mapping) else parse_overrides(overrides)
    if target.endswith((".yaml", ".yml")) or Path(target).is_file():
        file = workspace.find(target)
        if is_config(file):
            raise ValueError(
                f"{target} is a config of RLinf; make a training file of it: rrf import-config "
                f"{target} --out NAME.yaml"
            )
        data = read_yaml(file)
        for key in data:
            if key not in _KEYS:
                near = did_you_mean(key, _KEYS) if closest(key, _KEYS) else _as_override(data, key)
                raise ValueError(f"{target}: a training file has no key '{key}'{near}")
        if not isinstance(data.get("preset"), str):
            raise ValueError(
                f"{target} does not name a preset; add preset: NAME. Known: {known_presets()}"
            )
        in_file = data.get("overrides") or {}
        if not isinstance(in_file, dict):
            raise ValueError(
                f"{target}: overrides is {in_file!r:.60}, but has a line PATH: VALUE for each"
            )
        changes = in_file | changes
        target = data["preset"]
    if target not in PRESETS and (reason := recipes.refusal(target)):
        raise ValueError(reason)
    cfg = PRESETS.get(target)()
    if "task" in changes and isinstance(getattr(cfg, "tasks", None), list):
        changes["tasks"] = [changes.pop("task")]
    try:
        cfg = cfg.override(changes)
    except ValueError as error:
        if note := foreign_name(changes, cfg.to_dict()):
            raise ValueError(note) from error
        if str(error).startswith("no config field"):
            raise ValueError(f"{error}; all fields: rrf show {target}") from error
        raise
    trust_task(getattr(cfg, "env", None))
    return cfg


def known_presets() -> str:
    """The presets in the words of an error."""
    pairs = {*recipes.names(), *recipes.further()}
    own = ", ".join(name for name in PRESETS if name not in pairs)
    return f"{own}, and SIMULATOR-ALGORITHM-MODEL (rrf presets libero10)"


def _as_override(data: Mapping, key: str) -> str:
    """The end of an error about a key of a training file that may be a field of the config."""
    preset = data.get("preset")
    if not isinstance(preset, str) or preset not in PRESETS:
        return did_you_mean(key, _KEYS)
    cfg = PRESETS.get(preset)()
    if key not in cfg.to_dict():
        try:
            cfg.override({key: data[key]})
        except ValueError as error:
            return f"; fields of the config stand below `overrides`: {error}"
    return "; it is a field of the config: write it below `overrides`"
