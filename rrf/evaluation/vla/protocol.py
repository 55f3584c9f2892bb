"""The protocol for policies that see images and act in chunks, in any simulator of `rrf.envs.ENVS`.

Importing this file imports neither torch nor a simulator; `evaluate` does.
"""

import dataclasses
import typing
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rrf.atomic import digest_of
from rrf.config import TYPE_KEY, configclass, first_error
from rrf.envs import ENVS
from rrf.envs.configs import VecEnvCfg
from rrf.envs.vec_env import InitialState, VecEnv
from rrf.evaluation.candidate import Candidate
from rrf.evaluation.cpu_time import cpu_seconds
from rrf.evaluation.protocols.base import BaseProtocolCfg, OnEpisode, Resources
from rrf.evaluation.results import EpisodeResult, Evaluation
from rrf.evaluation.vla.execution_configs import ExecutionCfg, RecedingHorizonCfg
from rrf.evaluation.vla.fit import misfit_conventions, misfit_dims

VIDEO_SIZE = 192
"""Height and width of an episode's video in pixels."""
_NOT_IN_HASH = ("name", "num_slots", "used_seeds", "type")
_SET_HERE = (
    *("num_envs", "chunk_length", "action_repeat", "max_episode_steps", "image_size", "cameras"),
    "renderer",
)
_FILMED_TOGETHER = 4


@configclass
class ProtocolCfg(BaseProtocolCfg):
    """What every policy evaluated under this protocol has to do."""

    policy_kind: typing.ClassVar[str] = "vla"
    options: typing.ClassVar[Collection[str]] = ("slots", "baselines", "device")
    num_videos: typing.ClassVar[int] = 12
    play_options: typing.ClassVar[Mapping[str, typing.Any]] = {
        "protocol": None,
        "task": None,
        "env": None,
        "index": 0,
        "size": VIDEO_SIZE,
        "max_episode_steps": None,
        "renderer": "warp",
    }
    default_video: typing.ClassVar[str | None] = "episode.mp4"

    env: str = "metaworld"
    """Name of the environment in `rrf.envs.ENVS`."""
    env_options: dict[str, typing.Any] = {}
    """Fields that this environment's config has besides those below, e.g. settle_steps of
    libero."""
    tasks: list[str]
    """Tasks, e.g. drawer-open-v3."""
    first_index: int = 0
    """Index of the first initial state, from 0; the episodes use first_index, first_index + 1, ...
    """
    max_episode_steps: int = 40
    """Horizon in action steps; an episode that is not solved by then has failed."""
    execute_steps: int = 2
    """Action steps executed from each predicted chunk before the policy predicts the next one."""
    execution: ExecutionCfg = RecedingHorizonCfg()
    """How chunks are executed and joined (`rrf/evaluation/vla/execution_configs.py`)."""
    action_repeat: int = 5
    """Control steps per action step."""
    image_size: int = 64
    """Side of the square camera image in pixels."""
    cameras: list[str] = ["corner2"]
    """Cameras the policy sees."""
    greedy: bool = True
    """Take the mode of the policy; otherwise sample from it."""
    policy_seed: int = 0
    """Seed of the policy's sampling; each episode has its own random stream."""
    inference_batch: int = 8
    """Observations per call of a greedy policy; smaller batches are padded, because rounding
    depends on the batch size."""
    num_slots: int = 8
    """Number of episodes run side by side; does not change results."""
    used_seeds: dict[str, int] = {
        "demonstrations": 777,
        "reinforcement learning": 42,
        "validation": 2024,
    }
    """Seeds whose initial states were used to train or select policies, by use; this protocol must
    use another seed."""

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError(f"protocol '{self.name}' has no tasks; e.g. tasks: [drawer-open-v3]")
        if len(set(self.tasks)) != len(self.tasks):
            raise ValueError(f"protocol '{self.name}' lists a task twice: {', '.join(self.tasks)}")
        for field in (
            "episodes_per_task",
            "max_episode_steps",
            "execute_steps",
            "inference_batch",
            "num_slots",
        ):
            if getattr(self, field) < 1:
                raise ValueError(
                    f"protocol '{self.name}': {field} is {getattr(self, field)}, not at least 1"
                )
        for field in self.env_options:
            if field in _SET_HERE:
                raise ValueError(
                    f"protocol '{self.name}': env_options has {field}, which is a field of the "
                    "protocol itself or of the machine; leave it out there"
                )
        try:
            self.execution.check(self.execute_steps)
        except ValueError as error:
            raise ValueError(f"protocol '{self.name}': {error}") from error
        last, available = self.first_index + self.episodes_per_task, self._num_initial_states
        if self.first_index < 0 or last > available:
            raise ValueError(
                f"protocol '{self.name}' asks for initial states {self.first_index}..{last - 1}, "
                f"but one seed has only 0..{available - 1}; lower episodes_per_task"
            )
        for use, seed in self.used_seeds.items():
            if seed == self.seed:
                raise ValueError(
                    f"protocol '{self.name}': seed {seed} is the seed of {use}; "
                    "evaluate on held-out initial states, e.g. seed: 4242"
                )

    @property
    def max_episodes_per_task(self) -> int:
        return self._num_initial_states - self.first_index

    def initial_states(self) -> list[InitialState]:
        indices = range(self.first_index, self.first_index + self.episodes_per_task)
        return [InitialState(task, self.seed, index) for task in self.tasks for index in indices]

    @property
    def hash(self) -> str:
        return digest_of({k: v for k, v in self.to_dict().items() if k not in _NOT_IN_HASH})

    @property
    def _num_initial_states(self) -> int:
        return self._env_defaults.num_initial_states

    @property
    def _env_defaults(self) -> VecEnvCfg:
        defaults = ENVS.get(self.env)()
        if not self.env_options:
            return defaults
        try:
            return defaults.override(self.env_options)
        except ValueError as error:
            raise ValueError(
                f"protocol '{self.name}': env_options: {first_error(error)}"
            ) from error

    def with_options(self, **given: typing.Any) -> typing.Self:
        """See `BaseProtocolCfg.with_options`."""
        slots = given.get("slots")
        return self.replace(num_slots=slots) if slots else self

    def is_about(self, config: Mapping) -> bool:
        """Whether this is the default protocol of the policy's simulator, e.g. `metaworld-demo`.

        If the training config names no simulator, the default protocol of every simulator fits.
        """
        return self.name == f"{self.env}-demo" and self.simulator_of(config) in (None, self.env)

    def environment_cfg(self, **changes) -> VecEnvCfg:
        """The config of the simulator for this protocol, with no more slots than episodes."""
        return self._env_defaults.replace(
            **{
                "num_envs": min(self.num_slots, len(self.initial_states())),
                "chunk_length": self.execute_steps,
                "action_repeat": self.action_repeat,
                "max_episode_steps": self.max_episode_steps,
                "image_size": self.image_size,
                "cameras": self.cameras,
            }
            | changes
        )

    def environment(self, workers: int, **changes) -> VecEnv:
        """Build the environment in `workers` worker processes, or in this process if that is 0."""
        from rrf.envs.process.workers import WorkerVecEnv

        cfg = self.environment_cfg(**changes)
        return WorkerVecEnv(cfg, workers) if workers > 0 else cfg.build()

    def evaluate(
        self,
        candidate: Candidate,
        resources: Resources,
        on_episode: OnEpisode | None = None,
        known: Sequence[EpisodeResult] = (),
    ) -> Evaluation:
        """See `BaseProtocolCfg.evaluate`."""
        from rrf.evaluation.vla.evaluate import evaluate
        from rrf.runners.checkpoints.placement import load_policy

        if candidate.policy is None:
            self._check_policy(candidate.config)
        policy = candidate.policy or load_policy(candidate.checkpoint, resources.device)
        cpu = cpu_seconds()
        env = self.environment(resources.workers, renderer=resources.renderer)
        try:
            evaluation = evaluate(
                policy,
                env,
                self,
                on_episode,
                checkpoint_digest=candidate.checkpoint_digest,
                label=candidate.label,
                known=known,
            )
        finally:
            env.close()
        evaluation.timings["cpu_s"] = round(
            cpu_seconds() - cpu, 2
        )  # includes starting the simulators
        return evaluation

    def _check_policy(self, config: Mapping) -> None:
        """Compares cameras, dimensions and conventions with those of a policy's training."""
        policy, env = config["policy"], self.environment_cfg()
        wrong = misfit_dims(policy["state_dim"], policy["action_dim"], env)
        if self.simulator_of(config) == self.env:
            wrong += misfit_conventions(config["env"], env)
        if wrong:
            raise ValueError(
                f"protocol '{self.name}' does not fit the policy: it {'; '.join(wrong)}"
            )
        seen = policy["cameras"]
        if set(seen) <= set(self.cameras):
            return
        raise ValueError(
            f"the policy sees through {', '.join(seen)}, but protocol '{self.name}' shows "
            f"{', '.join(self.cameras) or 'nothing'}; evaluate it by a protocol with "
            f"cameras: [{', '.join(seen)}]"
        )

    def film(
        self,
        candidate: Candidate,
        evaluation: Evaluation,
        limit: int,
        folder: Path,
        resources: Resources,
    ) -> list[dict]:
        """Films episodes that this process has just run, from their recorded actions; see
        `BaseProtocolCfg.film`."""
        from rrf.evaluation.reports.videos import choose_for_video, save_videos

        chosen = choose_for_video([e for e in evaluation.episodes if e.actions is not None], limit)
        if not chosen:
            return []
        return save_videos(folder, chosen, *self.pictures(chosen, VIDEO_SIZE, resources))

    def pictures(
        self, episodes: Sequence[EpisodeResult], size: int, resources: Resources
    ) -> tuple[list, int]:
        """Frames of episodes that this process has just run, and the frames per second.

        The frames of each episode are uint8 [T + 1, size, size, 3].
        """
        from rrf.evaluation.vla.replay import replay

        env = self.environment(
            0,
            num_envs=min(_FILMED_TOGETHER, len(episodes)),
            chunk_length=1,
            image_size=size,
            renderer=resources.renderer,
        )
        try:
            return replay(env, episodes, self.cameras[0]), env.fps
        finally:
            env.close()

    def too_short(self, chunk_length: int) -> str | None:
        """What is wrong with chunks of this length; None if they are long enough."""
        needed = self.execution.required_steps(self.execute_steps)
        if chunk_length >= needed:
            return None
        waits = needed - self.execute_steps
        return (
            f"predicts {chunk_length} steps, but protocol '{self.name}' executes "
            f"{self.execute_steps}{f' and waits for {waits} more' if waits else ''}"
        )

    def baselines(self, candidate: Candidate) -> list[Candidate]:
        """Two baselines: random actions, and the constant mean action of the training data."""
        import numpy as np

        from rrf.data.schema import ACTION
        from rrf.evaluation.vla.baselines import MeanActionPolicy, RandomPolicy
        from rrf.runners.checkpoints.checkpoint import load_norm_stats

        chunk = candidate.config["policy"]["chunk_length"]
        mean = np.asarray(load_norm_stats(candidate.checkpoint)[ACTION]["mean"], np.float32)
        policies = {
            "random": RandomPolicy(chunk, len(mean)),
            "mean-action": MeanActionPolicy(chunk, mean),
        }
        return [
            dataclasses.replace(
                candidate, policy=policy, checkpoint_digest=f"baseline:{name}", label=name
            )
            for name, policy in policies.items()
        ]

    def check_training(self, cfg: typing.Any) -> None:
        """Compares images, cameras, dimensions and chunk length; see
        `BaseProtocolCfg.check_training`."""
        super().check_training(cfg)
        policy, env = cfg.policy, self.environment_cfg()
        wrong = misfit_dims(policy.state_dim, policy.action_dim, env)
        trained = cfg.to_dict()
        if self.simulator_of(trained) == self.env:
            wrong += misfit_conventions(trained["env"], env)
        if short := self.too_short(policy.chunk_length):
            wrong.append(short)
        if misfit := policy.past.misfit(self.execute_steps):
            wrong.append(f"{misfit} (execute_steps)")
        size = tuple(policy.image_size)
        if min(size) and size != (self.image_size,) * 2:  # 0: the dataset's, not known yet
            wrong.append(f"sees images of {policy.image_size}, not {self.image_size} pixels")
        wrong += [f"sees no camera '{c}'" for c in policy.cameras if c not in self.cameras]
        if wrong:
            raise ValueError(
                f"protocol '{self.name}' does not fit the policy that is to be trained: it "
                f"{'; '.join(wrong)}"
            )

    @classmethod
    def play(
        cls,
        candidate: Candidate,
        video: Path | None,
        seed: int,
        options: Mapping[str, typing.Any],
        say: typing.Callable[[str], None],
    ) -> None:
        """Write one episode as a video; see `BaseProtocolCfg.play`."""
        from rrf.evaluation.vla.play import film_first, played_protocol

        protocol = played_protocol(cls, candidate, seed, options)
        resources = Resources(workers=0, renderer=options["renderer"])
        out = video or Path(str(cls.default_video))
        say(film_first(candidate, protocol, out, options["size"], resources))

    @staticmethod
    def simulator_of(config: Mapping) -> str | None:
        """The simulator in `rrf.envs.ENVS` that a training config uses, if any."""
        trained_in = (config.get("env") or {}).get(TYPE_KEY)
        return next(
            (name for name in ENVS if ENVS.get(name)().to_dict()[TYPE_KEY] == trained_in), None
        )
