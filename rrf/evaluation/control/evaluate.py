"""Run a state-based policy under a protocol, many environments side by side.

A block of environments is built from the protocol's seed and the block's number. Each of them runs
one episode, then the next block is built from scratch. Therefore only the policy and the protocol
decide a result; how many blocks run, and in which order, does not matter.

Legend: N environments of a block.
"""

import contextlib
import datetime
import hashlib
import time
import typing
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch

from rrf.data.dataset.sampling import mixed_seed
from rrf.envs.control_env import ControlEnv, Interface, check_step
from rrf.envs.process.child import ChildError
from rrf.envs.vec_env import InitialState
from rrf.evaluation.control.configs import OF_TASK
from rrf.evaluation.control.metrics import EpisodeMeter, VelocityEnv
from rrf.evaluation.cpu_time import cpu_seconds
from rrf.evaluation.protocols.base import OnEpisode
from rrf.evaluation.results import EpisodeResult, Evaluation
from rrf.policies.control.actor_critic import ControlPolicy

if typing.TYPE_CHECKING:
    from rrf.evaluation.control.configs import ControlProtocolCfg

_ENVIRONMENTS, _ACTIONS = 1, 2  # streams of seeds; training uses other streams
OnStep = Callable[[ControlEnv, int], None]


def evaluate_control(
    policy: ControlPolicy,
    interface: Interface,
    protocol: "ControlProtocolCfg",
    on_episode: OnEpisode | None = None,
    *,
    checkpoint_digest: str = "",
    label: str = "",
    known: Sequence[EpisodeResult] = (),
) -> Evaluation:
    """Run every block of `protocol` that has an episode missing from `known`.

    Args:
        policy: From `rrf.runners.checkpoints.control.load_control_policy`, on the CPU.
        interface: The interface that the policy was trained with, from the same function.
        protocol: The protocol to run.
        on_episode: Called after each episode, in the order in which they end.
        checkpoint_digest: Identifies the policy in the report.
        label: Name of the policy shown to people.
        known: Episodes of the same policy under the same conditions, e.g. from before the protocol
            was extended.

    Raises:
        ValueError: If policy, environment and protocol do not fit each other, or a number is NaN
            or Inf.
    """
    wall, cpu = time.perf_counter(), cpu_seconds()
    states = protocol.initial_states()
    done = {e.initial_state: e for e in known if e.initial_state in set(states)}
    num_new = 0
    for block, wanted in _blocks(protocol).items():
        if all(state in done for state in wanted):
            continue
        for episode in _played(policy, interface, protocol, block):
            if episode.initial_state not in wanted:
                continue
            num_new += episode.initial_state not in done
            done[episode.initial_state] = episode
            if on_episode is not None:
                on_episode(episode, len(done), len(states))
    wall = time.perf_counter() - wall
    timings = {"wall_s": wall, "cpu_s": cpu_seconds() - cpu, "episodes_per_s": num_new / wall}
    return Evaluation(
        protocol=protocol.to_dict(),
        protocol_hash=protocol.hash,
        checkpoint_digest=checkpoint_digest,
        episodes=[done[state] for state in states],
        timings={name: round(value, 4) for name, value in timings.items()},
        policy=label,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def _played(
    policy: ControlPolicy, interface: Interface, protocol: "ControlProtocolCfg", block: int
) -> Iterator[EpisodeResult]:
    """The episodes of a block. It is played once more if its simulator's process dies."""
    ended = set()
    try:
        for episode in run_block(policy, interface, protocol, block):
            ended.add(episode.initial_state)
            yield episode
    except ChildError as error:
        warnings.warn(f"{error}; block {block} is played again", stacklevel=2)
        for episode in run_block(policy, interface, protocol, block):
            if episode.initial_state not in ended:
                yield episode


def run_block(
    policy: ControlPolicy,
    interface: Interface,
    protocol: "ControlProtocolCfg",
    block: int,
    on_step: OnStep | None = None,
) -> Iterator[EpisodeResult]:
    """Run a block and yield its episodes in the order in which they end.

    `on_step` is called before each step with the environments and the number of the step.
    """
    with block_env(protocol, block) as env, _one_thread():
        check_fit(policy, interface, env, protocol)
        command = commands_of(protocol)
        meter = EpisodeMeter(env, protocol, command)
        device = torch.device(env.device)
        policy.actor.to(device)
        generator = torch.Generator(device).manual_seed(
            mixed_seed(protocol.policy_seed, _ACTIONS, block)
        )
        observations = begin(env, command)
        policy.reset()
        for step in range(protocol.max_episode_steps):
            if on_step is not None:
                on_step(env, step)
            actions = policy.act(observations, protocol.greedy, generator)
            observations, rewards, dones, extras = env.step(actions)
            check_step(observations, rewards, dones, env.num_envs, protocol.env.task)
            policy.reset(dones.bool())
            told = {name: extras.get(name) for name in ("success", "completed", "measured")}
            for row in meter.observe(actions, rewards, dones, extras["time_outs"], **told):
                yield _episode(meter, protocol, block, row)
            if not bool(meter.is_running.any()):
                return
        for row in meter.stop():
            yield _episode(meter, protocol, block, row)


@contextlib.contextmanager
def block_env(protocol: "ControlProtocolCfg", block: int) -> Iterator[ControlEnv]:
    """Build the environments of a block from its seed, and close them when the block ends."""
    device = "cuda" if protocol.env.prefers_gpu and torch.cuda.is_available() else "cpu"
    env = protocol.env.build(seed=block_seed(protocol.seed, block), device=device)
    try:
        yield env
    finally:
        env.close()


def probe_block(protocol: "ControlProtocolCfg", num_steps: int) -> str:
    """See `rrf.evaluation.protocols.base.Protocol.probe`."""
    with block_env(protocol, 0) as env, _one_thread():
        generator, contents = torch.Generator().manual_seed(protocol.seed), hashlib.sha256()
        observations = begin(env, commands_of(protocol))
        for _ in range(num_steps):
            if (choices := env.interface.num_choices) is not None:
                drawn = torch.randint(choices, (env.num_envs, 1), generator=generator).float()
            else:
                drawn = torch.rand(env.num_envs, env.num_actions, generator=generator) * 2 - 1
            observations, rewards, dones, _ = env.step(drawn.to(env.device))
            check_step(observations, rewards, dones, env.num_envs, protocol.env.task)
            for value in (*(observations[name] for name in sorted(observations.keys())), rewards):
                contents.update(value.cpu().numpy().tobytes())
    return contents.hexdigest()


def block_seed(seed: int, block: int) -> int:
    """The seed of a block's environments, from that of the protocol."""
    return mixed_seed(seed, _ENVIRONMENTS, block)


def begin(env: ControlEnv, command: torch.Tensor | None):
    """Set the commands, if there are any, and return the policy's first observations."""
    if command is not None:
        assert isinstance(env, VelocityEnv)
        env.set_command(command.to(env.device))
    return env.get_observations()


def commands_of(protocol: "ControlProtocolCfg") -> torch.Tensor | None:
    """The command of each environment of a block, [N, 3]; None for tasks without commands."""
    if not protocol.commands:
        return None
    commands = torch.tensor(list(protocol.commands.values()), dtype=torch.float32)
    return commands.repeat(protocol.block_episodes, 1)


def state_of(protocol: "ControlProtocolCfg", block: int, row: int) -> InitialState:
    """The initial state of the episode that environment `row` of a block runs."""
    index, task = divmod(row, len(protocol.tasks))
    number = block * protocol.block_episodes + index
    return InitialState(protocol.tasks[task], protocol.seed, number)


def place_of(protocol: "ControlProtocolCfg", state: InitialState) -> tuple[int, int]:
    """The block and the environment that run an episode; the inverse of `state_of`."""
    block, index = divmod(state.index, protocol.block_episodes)
    return block, index * len(protocol.tasks) + protocol.tasks.index(state.task)


def check_fit(
    policy: ControlPolicy, interface: Interface, env: ControlEnv, protocol: "ControlProtocolCfg"
) -> None:
    """Raise ValueError if the policy was trained for another interface than the protocol's.

    Observation groups that only the critic used may differ.
    """
    judged = env.interface
    for what, trained, expected in (
        ("actions", interface.num_actions, judged.num_actions),
        ("choices", interface.num_choices, judged.num_choices),
        ("seconds per step", interface.step_dt, judged.step_dt),
        *(
            (
                f"numbers in observation group '{name}'",
                interface.observation_dims[name],
                judged.observation_dims.get(name),
            )
            for name in policy.actor.groups
        ),
    ):
        if trained != expected:
            raise ValueError(
                f"the policy was trained with {_number_or_no(trained)} {what} ({interface.task}), "
                f"but protocol '{protocol.name}' has {_number_or_no(expected)} ({judged.task})"
            )
    if protocol.commands and not isinstance(env, VelocityEnv):
        raise ValueError(
            f"protocol '{protocol.name}' has velocity commands, but {judged.task} does not take "
            "commands; remove `commands`"
        )
    if protocol.max_episode_steps > env.max_episode_length:
        raise ValueError(
            f"protocol '{protocol.name}' asks for {protocol.max_episode_steps} steps, but an "
            f"episode of {judged.task} lasts at most {env.max_episode_length}; lower "
            "max_episode_steps"
        )


def _number_or_no(number: float | None) -> str:
    return "no" if number is None else f"{number:g}"


def _blocks(protocol: "ControlProtocolCfg") -> dict[int, set[InitialState]]:
    """Block -> the initial states of it that the protocol asks for."""
    blocks: dict[int, set[InitialState]] = {}
    for state in protocol.initial_states():
        blocks.setdefault(place_of(protocol, state)[0], set()).add(state)
    return blocks


def _episode(
    meter: EpisodeMeter, protocol: "ControlProtocolCfg", block: int, row: int
) -> EpisodeResult:
    state, metrics = state_of(protocol, block, row), meter.metrics(row)
    for name in protocol.success:
        if name in OF_TASK and name not in metrics:
            raise ValueError(
                f"protocol '{protocol.name}' asks for {name}, but {state.task} says nothing of it; "
                "ask for return or length"
            )
    return EpisodeResult(
        task=state.task,
        seed=state.seed,
        index=state.index,
        success=all(
            name in metrics and limit.holds(metrics[name])
            for name, limit in protocol.success.items()
        ),
        steps=int(metrics["length"]),
        episode_return=metrics["return"],
        metrics=metrics,
        actions=meter.actions(row).numpy(),
    )


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Run torch with one thread: rounding depends on the thread count, and small networks are
    faster with a single thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
