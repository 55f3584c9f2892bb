"""The G1 at its table as a vector environment, simulated by MuJoCo in this process.

An action is a command at `50 / action_repeat` Hz. In each of its ticks System 0
(`rrf.envs.humanoid.balancer.Balancer`) answers with the targets of all joints but the hands', and
MuJoCo makes four steps of 5 ms.

The state is what the robot measures: the angles and velocities of its 43 joints (`scene.JOINTS`),
the direction of gravity and the angular velocity in the pelvis' frame, its heading since the
beginning of the episode, and the last command. With `objects` also where objects and plates are in
its heading frame, and 0 for what is not there.

Legend: B slots of a call, H steps in a chunk.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import dataclasses
import typing
from collections.abc import Sequence

import mujoco
import numpy as np

from rrf.data.schema import Observation
from rrf.envs.humanoid import body, command, scene, tasks
from rrf.envs.humanoid.configs import CONTROL_HZ, HumanoidCfg
from rrf.envs.humanoid.proprioception import wrapped
from rrf.envs.humanoid.simulated_robot import SimulatedRobot
from rrf.envs.humanoid.success import HOLD_S, is_met
from rrf.envs.slots import Slots
from rrf.envs.vec_env import InitialState, Step, check_actions

if typing.TYPE_CHECKING:
    from rrf.envs.humanoid.balancer import Balancer
    from rrf.envs.humanoid.experts import Expert

_RENDER_BATCH = 8
_MIN_SETTLE_TICKS, _MAX_SETTLE_TICKS, _STILL_TICKS = 25, 100, 10
_STILL_M_S = 0.03  # of the pelvis


@dataclasses.dataclass
class _Episode:
    task: tasks.Task
    state: InitialState
    start: scene.Layout
    data: mujoco.MjData
    command: np.ndarray  # the last one, [36]
    expert: "Expert | None" = None
    num_actions: int = 0
    num_met: int = 0  # actions in a row after which the condition held
    has_fallen: bool = False


class HumanoidVecEnv:
    """See `rrf.envs.vec_env.VecEnv` and `ExpertVecEnv`.

    A fall ends an episode unsolved. `extras["metrics"]["fall"]`, [B], is 1 then.
    """

    def __init__(self, cfg: HumanoidCfg, balancer: "Balancer | None" = None):
        """`balancer`: instead of the one that `cfg.system0` names."""
        self.cfg = cfg
        self.num_envs, self.chunk_length = cfg.num_envs, cfg.chunk_length
        self.action_dim, self.state_dim = cfg.action_dim, cfg.state_dim
        self.max_episode_steps = cfg.max_episode_steps
        self.fps = CONTROL_HZ // cfg.action_repeat
        self.world = scene.World()
        self._balancer = balancer or _balancer(cfg, self.world)
        self._signals = command.indices(cfg.signals or command.NAMES)
        self._num_substeps = round(1 / CONTROL_HZ / self.world.model.opt.timestep)
        self._slots = Slots(cfg.num_envs)
        self._episodes: dict[int, _Episode] = {}
        self._renderer: typing.Any = None

    def reset(
        self, initial_states: Sequence[InitialState], env_ids: Sequence[int] | None = None
    ) -> Observation:
        """See `VecEnv.reset`."""
        slots = self._slots.check_reset(initial_states, env_ids, self.cfg.check_initial_state)
        for slot, state in zip(slots, initial_states, strict=True):
            self._begin(slot, state)
        self._slots.begin(slots)
        return self._observe(slots)

    def step(self, actions: np.ndarray, env_ids: Sequence[int] | None = None) -> Step:
        """See `VecEnv.step`."""
        slots = self._slots.check(env_ids)
        actions = np.asarray(actions)
        check_actions(actions, slots, self.chunk_length, self.action_dim)
        self._slots.check_running(slots)
        rows = [self._run(slot, chunk) for slot, chunk in zip(slots, actions, strict=True)]
        rewards, success, truncated, steps = map(np.array, zip(*rows, strict=True))
        falls = np.array([float(self._episodes[slot].has_fallen) for slot in slots])
        is_drawn = ~(success | truncated) | self.cfg.draws_final
        step = self._slots.finish_step(
            slots,
            self._observe(slots, is_drawn),
            rewards.sum(1).astype(np.float32),
            success,
            truncated,
            steps,
            rewards,
        )
        step.extras["metrics"] = {"fall": falls}
        if (success | truncated).any():
            step.extras["log"]["episode/fell"] = float(falls[success | truncated].mean())
        return step

    def expert_action(self, env_id: int) -> np.ndarray:
        """The scripted expert's answer, float32 [A]; see `rrf.envs.vec_env.ExpertVecEnv`."""
        (slot,) = self._slots.check([env_id])
        self._slots.check_running([slot])
        episode = self._episodes[slot]
        if episode.expert is None:
            from rrf.envs.humanoid.experts import Expert

            episode.expert = Expert(self.world, episode.task, episode.start, 1 / self.fps)
        wanted = episode.expert.command(episode.data)
        return np.clip(wanted, command.LOW, command.HIGH).astype(np.float32)[self._signals]

    def held_actions(self, task: tasks.Task) -> int:
        """Actions in a row after which the condition of a task must hold."""
        return max(1, round(HOLD_S[task.verb] * self.fps))

    def close(self) -> None:
        """See `VecEnv.close`."""
        self._slots.close()
        self._episodes.clear()
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def robot(self, env_id: int) -> "TableRobot":
        """The robot of a running slot, for the runtime of a hierarchy: tick by tick."""
        (slot,) = self._slots.check([env_id])
        self._slots.check_running([slot])
        return TableRobot(self, slot)

    def data(self, env_id: int) -> mujoco.MjData:
        """MuJoCo's state of a slot, to look at."""
        self._slots.check_has_episode(env_id)
        return self._episodes[env_id].data

    def _begin(self, slot: int, state: InitialState) -> None:
        """Begin the episode that an initial state stands for."""
        task = tasks.TASKS[state.task]
        start = scene.layout(task, state)
        old = self._episodes.get(slot)
        data = old.data if old else mujoco.MjData(self.world.model)
        self.world.begin(data, start)
        self._balancer.reset(np.array([slot]), data.qpos[None], data.qvel[None])
        episode = _Episode(task, state, start, data, self.world.resting.copy())
        self._episodes[slot] = episode
        self._settle(slot, episode)

    def _settle(self, slot: int, episode: _Episode) -> None:
        """Let the robot find its balance under the resting command before an episode begins."""
        num_still = 0
        for tick in range(_MAX_SETTLE_TICKS):
            self._tick(slot, episode)
            self.world.park(episode.data, episode.start)
            is_still = np.abs(episode.data.qvel[:2]).max() < _STILL_M_S
            num_still = num_still + 1 if is_still else 0
            if tick + 1 >= _MIN_SETTLE_TICKS and num_still >= _STILL_TICKS:
                break
        mujoco.mj_forward(self.world.model, episode.data)

    def _run(self, slot: int, chunk: np.ndarray) -> tuple[np.ndarray, bool, bool, int]:
        """Execute a chunk until the episode ends: rewards, success, truncated, steps."""
        episode = self._episodes[slot]
        began, is_solved, is_over = episode.num_actions, False, False
        rewards = np.zeros(self.chunk_length, np.float32)
        low, high = command.LOW[self._signals], command.HIGH[self._signals]
        needed = self.held_actions(episode.task)
        for number, action in enumerate(np.clip(chunk, low, high)):
            episode.command = episode.command.copy()
            episode.command[self._signals] = action
            self._act(slot, episode)
            episode.num_actions += 1
            holds = not episode.has_fallen and is_met(
                episode.task, self.world, episode.data, episode.start
            )
            episode.num_met = episode.num_met + 1 if holds else 0
            is_solved = episode.num_met >= needed
            rewards[number] = is_solved
            is_late = episode.num_actions >= self.cfg.horizon(episode.task.name)
            is_over = not is_solved and (is_late or episode.has_fallen)
            if is_solved or is_over:
                break
        return rewards, is_solved, is_over, episode.num_actions - began

    def _act(self, slot: int, episode: _Episode) -> None:
        """Hold the command for `action_repeat` ticks, or until the robot falls."""
        for _ in range(self.cfg.action_repeat):
            self._tick(slot, episode)
            if episode.has_fallen:
                break
        self.world.park(episode.data, episode.start)
        mujoco.mj_forward(self.world.model, episode.data)  # poses and contacts as of now

    def _tick(self, slot: int, episode: _Episode) -> None:
        """Follow the command for 1/50 s."""
        world, data = self.world, episode.data
        robot = np.array([slot])  # one at a time: a batch of others would change the last digits
        data.ctrl[world.hands] = episode.command[command.HANDS]
        data.ctrl[world.body] = self._balancer.targets(
            robot, data.qpos[None], data.qvel[None], episode.command[None]
        )[0]
        mujoco.mj_step(world.model, data, self._num_substeps)
        episode.has_fallen = body.is_lost(data)

    def _observe(self, slots: Sequence[int], is_drawn: np.ndarray | None = None) -> Observation:
        episodes = [self._episodes[slot] for slot in slots]
        state = np.stack([self._state(episode) for episode in episodes]).astype(np.float32)
        words = [episode.task.instruction for episode in episodes]
        rows = np.flatnonzero(is_drawn) if is_drawn is not None else np.arange(len(slots))
        size = self.cfg.image_size
        images = {
            name: np.zeros((len(slots), size, size, 3), np.uint8) for name in self.cfg.cameras
        }
        if images and len(rows):
            drawn = self._draw([episodes[row].data for row in rows])
            for camera, pictures in zip(self.cfg.cameras, drawn, strict=True):
                images[camera][rows] = pictures
        return Observation(images, state, words)

    def _state(self, episode: _Episode) -> np.ndarray:
        world, data = self.world, episode.data
        turned = wrapped(world.heading(data) - episode.start.robot[2])
        parts = [
            data.qpos[world.joints],
            data.qvel[world.dofs],
            scene.gravity(data),
            data.qvel[3:6],
            [turned],
            episode.command,
        ]
        if self.cfg.objects:
            parts.append(world.seen_places(data, episode.start))
        return np.concatenate(parts)

    def _draw(self, datas: list[mujoco.MjData]) -> np.ndarray:
        """uint8 [cameras, B, size, size, 3]."""
        cfg, world = self.cfg, self.world
        if self._renderer is None:  # only now: who wants no images waits for no renderer
            from rrf.envs.rendering.renderers import choose_renderer, make_renderer

            name = choose_renderer(cfg.renderer, cfg.image_size, cfg.device)
            size, batch = (cfg.image_size, cfg.image_size), min(_RENDER_BATCH, self.num_envs)
            self._renderer = make_renderer(
                name, world.spec, world.model, cfg.cameras, size, batch, cfg.device
            )
        return self._renderer.render(datas)


def _balancer(cfg: HumanoidCfg, world: scene.World) -> "Balancer":
    from rrf.envs.humanoid.balancer import load_balancer

    return load_balancer(cfg.system0_folder(), world.model, cfg.num_envs)


class TableRobot(SimulatedRobot):
    """The robot of a slot, which sees what a policy of its environment sees. The environment does
    not step it meanwhile.
    """

    def __init__(self, env: HumanoidVecEnv, slot: int):
        self._env, self._slot, self._ticks = env, slot, 0
        self._episode = env._episodes[slot]
        super().__init__(env.world.model, self._episode.data, self._see)
        self.resting = self._episode.command.copy()
        self.solved_at: int | None = None
        """The tick at which the task was solved."""

    def _see(self, model: mujoco.MjModel, data: mujoco.MjData) -> Observation:
        return self._env._observe([self._slot])

    def drive(self, joints_29: np.ndarray, hands_14: np.ndarray) -> None:
        """See `Robot.drive`."""
        super().drive(joints_29, hands_14)
        self._ticks += 1
        if self._ticks % self._env.cfg.action_repeat:
            return
        episode, world = self._episode, self._env.world
        world.park(self.data, episode.start)
        mujoco.mj_forward(self.model, self.data)
        holds = not self.has_fallen and is_met(episode.task, world, self.data, episode.start)
        episode.num_met = episode.num_met + 1 if holds else 0
        if self.solved_at is None and episode.num_met >= self._env.held_actions(episode.task):
            self.solved_at = self._ticks

    def told(self, command_36: np.ndarray) -> None:
        """Note the command that it is under, which is a part of what it sees."""
        self._episode.command = command_36
