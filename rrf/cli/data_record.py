"""`rrf data collect --policy`: transitions of a state-based policy, for D4RL or Minari."""

from pathlib import Path
from typing import TYPE_CHECKING

from rrf.cli.data_display import progress_bars, say, shown
from rrf.cli.options import Imports, import_modules, words_of

if TYPE_CHECKING:
    from rrf.envs.configs import ControlEnvCfg
    from rrf.runners.control.record import Acts

RANDOM = "random"
_EXAMPLES = {RANDOM: "Hopper-v5", "maze": "PointMaze_UMaze-v3", "push": "FetchPush-v4"}
_SHOWN = {RANDOM: "random actions", "maze": "walks through a maze", "push": "pushes of Fetch"}
_NUM_ENVS = 8


def record_policy(
    policy: str,
    tasks: str,
    out: Path | None,
    num_steps: int,
    seed: int,
    is_greedy: bool,
    is_replay: bool,
    imports: Imports,
) -> None:
    """Record into a file of D4RL, or a folder of Minari; see the options of `rrf data collect`."""
    import torch

    from rrf import workspace
    from rrf.config import locate
    from rrf.data.formats.d4rl_writer import write_d4rl
    from rrf.data.formats.minari_writer import write_minari
    from rrf.envs.configs import ControlEnvCfg
    from rrf.envs.robotics.configs import cfg_of
    from rrf.envs.robotics.tasks import CONTROLLERS
    from rrf.runners.checkpoints import checkpoint
    from rrf.runners.checkpoints.control import load_control_policy, require_same_shapes
    from rrf.runners.checkpoints.deployable import deployable_digest
    from rrf.runners.control.record import action_bounds, observation_parts, record, replayed

    import_modules(imports)
    if num_steps < 1:
        raise ValueError(f"--steps is {num_steps}, allowed: 1 or more")
    named = words_of(tasks)
    if policy in _SHOWN:
        if len(named) != 1:
            example = f"--policy {policy} --tasks {_EXAMPLES[policy]}"
            raise ValueError(f"{_SHOWN[policy]} need one task: {example}")
        path, acting, trained, digest = None, None, None, policy
        cfg: ControlEnvCfg = cfg_of(named[0])
    else:
        if len(named) > 1:
            raise ValueError(f"--tasks names {len(named)} tasks, but a file has one; give one")
        if named and is_replay:
            raise ValueError("a replay is of the task of its training; leave --tasks out")
        path = checkpoint.find(policy)
        acting, trained = load_control_policy(path)
        digest = deployable_digest(path)
        cfg = ControlEnvCfg.from_dict(checkpoint.load_config(path)["env"])
        cfg = cfg.replace(task=named[0]) if named else cfg
        if cfg.has_recorder and not is_replay:
            _record_by_simulator(acting, cfg, out, num_steps, seed, is_greedy)
            return
    env = cfg.replace(num_envs=min(_NUM_ENVS, num_steps)).build(seed=seed, device="cpu")
    out = out or workspace.home() / "datasets" / "raw" / f"{env.interface.task}.hdf5"
    try:
        if trained is not None:
            require_same_shapes(trained, env.interface, policy)
        if env.interface.num_choices is not None:
            raise ValueError(
                f"{env.interface.task} has {env.interface.num_choices} discrete actions; only real "
                "ones can be recorded"
            )
        for controller, name in CONTROLLERS.items():
            if policy == name:
                acting = locate(controller)(env)
        if is_replay:
            if path is None:
                raise ValueError(f"{_SHOWN[policy]} have no replay; leave --replay out")
            columns = replayed(env, path)
        else:
            generator = torch.Generator().manual_seed(seed)
            with progress_bars("recording") as bars:
                columns = record(
                    env, acting, num_steps, generator, is_greedy,
                    lambda count: bars["recording"](count, num_steps, ""),
                )  # fmt: skip
        bounds, parts = action_bounds(env), observation_parts(env)
    finally:
        env.close()
    how = "replay" if is_replay else "greedy" if is_greedy else "sampled"
    facts = {"task": env.interface.task, "policy": digest, "how": how, "seed": str(seed)}
    if out.suffix == ".hdf5":
        write_d4rl(out, columns, facts)
    else:
        write_minari(out, columns, facts, bounds, parts)
    ended = columns["terminals"] | columns["timeouts"]
    say(
        f"{len(ended)} transitions of {int(ended.sum())} episodes, reward per step "
        f"{columns['rewards'].mean():.4g}, in {shown(out)}"
    )


def _record_by_simulator(
    acting: "Acts",
    cfg: "ControlEnvCfg",
    out: Path | None,
    num_steps: int,
    seed: int,
    is_greedy: bool,
) -> None:
    """Let the simulator's own recorder write the episodes."""
    import torch

    from rrf import workspace

    out = out or workspace.home() / "datasets" / "raw" / f"{cfg.task}.hdf5"
    out.parent.mkdir(parents=True, exist_ok=True)
    cfg = cfg.replace(num_envs=_NUM_ENVS).with_recorder(out)
    env = cfg.build(seed=seed, device="cpu")
    generator = torch.Generator().manual_seed(seed)
    num_ended = num_cut = count = 0
    try:
        observations = env.get_observations()
        acting.reset()
        with progress_bars("recording") as bars:
            while count < num_steps:
                actions = acting.act(observations, is_greedy, generator)
                observations, _, dones, extras = env.step(actions)
                acting.reset(dones)
                count += env.num_envs
                num_ended += int(dones.sum())
                num_cut += int(extras["time_outs"].sum())
                bars["recording"](min(count, num_steps), num_steps, "")
    finally:
        env.close()
    say(f"{num_ended} episodes, {num_cut} up to their time limit, in {shown(out)}")
