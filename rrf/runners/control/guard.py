"""What a run does when something goes wrong: numbers that are not finite, a return that falls, an
environment that fails.
"""

import json
import typing
import warnings
from pathlib import Path

from tensordict import TensorDict

from rrf import atomic
from rrf.envs.failure import EnvError, NotFiniteError
from rrf.networks import tensor_files
from rrf.runners import process_group
from rrf.runners.checkpoints import checkpoint
from rrf.runners.control.configs import GuardCfg
from rrf.runners.control.loop import ControlRunner, Extra
from rrf.runners.control.resume import RunCheckpoints
from rrf.runners.env_failure import env_failure


class Guard(Extra):
    """Stops a run at a NaN or takes it back to its last checkpoint, and warns of divergence."""

    key = "alarm"

    def __init__(self, cfg: GuardCfg, checkpoints: RunCheckpoints):
        self.cfg, self.checkpoints = cfg, checkpoints
        self.alarm = DivergenceAlarm(cfg)

    def after_iteration(self, runner: ControlRunner, seconds: float) -> None:
        if warning := self.alarm.observe(runner.metrics.get("rollout/return")):
            warnings.warn(warning, stacklevel=2)

    def recover(self, runner: ControlRunner, error: NotFiniteError) -> bool:
        """Write the last step to disk, then return to the last checkpoint.

        Raises:
            ValueError: If the config says to stop, or if there is nothing to return to.
        """
        cfg, last = self.cfg, checkpoint.latest(runner.run_dir)
        dump = self._dump(runner, error)
        dumped = f" The last step is in {dump}." if dump else ""
        if cfg.on_nan == "stop" or last is None or runner.num_rollbacks >= cfg.max_rollbacks:
            kept = f"the last good checkpoint is {last}" if last else "no checkpoint was saved yet"
            advice = f"lower {runner.learning_rates}"
            if cfg.on_nan == "stop" and last:
                advice += (
                    ", or add guard.on_nan=rollback to the same command, which does this and goes "
                    "on from the last checkpoint"
                )
            raise ValueError(
                f"{error}, in iteration {runner.iteration + 1} of {runner.cfg.max_iterations}. "
                f"Training stopped before it was saved; {kept}.{dumped} If the {runner.teacher} is "
                f"correct, {advice}"
            ) from error
        rollbacks = runner.num_rollbacks + 1
        self.checkpoints.load(runner, last)
        runner.algorithm.slow_down(0.5 ** (rollbacks - runner.num_rollbacks))
        runner.num_rollbacks = rollbacks
        runner.new_episodes()
        warnings.warn(
            f"{error}; training returned to {last.name} with half the learning rate (rollback "
            f"{rollbacks} of {cfg.max_rollbacks}).{dumped}",
            stacklevel=2,
        )
        return True

    def failure(self, runner: ControlRunner, error: EnvError, when: str) -> ValueError:
        """See `env_failure`."""
        return env_failure(error, runner.run_dir, when, _of_process())

    def state(self) -> dict:
        return self.alarm.state()

    def load_state(self, state: dict) -> None:
        self.alarm.load_state(state)

    def _dump(self, runner: ControlRunner, error: Exception) -> Path | None:
        """Write the last step of every environment and the simulator's state."""
        step = runner.last_step
        if step is None:
            return None
        tensors: dict[str, typing.Any] = {
            "actions": step.actions,
            "rewards": step.rewards,
            "dones": step.dones,
        }
        for kind in ("observations", "next_observations"):
            observations: TensorDict = getattr(step, kind)
            tensors |= {f"{kind}/{name}": value for name, value in observations.items()}
        state = runner.env.state()
        if state is not None:
            tensors |= {f"env/{name}": value for name, value in state.tensors.items()}
        path = runner.run_dir / f"not_finite_{runner.iteration + 1}{_of_process()}"
        with atomic.directory(path) as root:
            # Cloned, because a state may share memory with a step, which safetensors refuses.
            tensors = {name: value.clone() for name, value in tensors.items()}
            tensor_files.write(root / "last_step.safetensors", tensors)
            facts = {"error": str(error), "iteration": runner.iteration + 1}
            (root / "facts.json").write_text(json.dumps(facts, indent=2) + "\n")
        return path


def _of_process() -> str:
    """The end of names of files that each process of a distributed training writes."""
    return f"_rank_{process_group.rank()}" if process_group.size() > 1 else ""


class DivergenceAlarm:
    """Watches the mean return and warns once per drop."""

    def __init__(self, cfg: GuardCfg):
        self.cfg = cfg
        self._first: float | None = None
        self._best = -float("inf")
        self._num_low = 0

    def observe(self, mean_return: float | None) -> str | None:
        """A warning if the return has been far below its best for too long, else None."""
        if mean_return is None:
            return None
        if self._first is None:
            self._first = self._best = mean_return
        self._best = max(self._best, mean_return)
        rise = self._best - self._first
        is_low = rise > 0 and mean_return < self._best - self.cfg.divergence_drop * rise
        self._num_low = self._num_low + 1 if is_low else 0
        if self._num_low != self.cfg.divergence_iterations:
            return None
        return (
            f"the mean return is {mean_return:.4g} and has been far below its best, "
            f"{self._best:.4g}, for {self._num_low} iterations; the run may have diverged. Try a "
            "lower algorithm.learning_rate, starting from a checkpoint before the drop"
        )

    def state(self) -> dict:
        """Plain data that `load_state` needs."""
        best = None if self._first is None else self._best
        return {"first": self._first, "best": best, "num_low": self._num_low}

    def load_state(self, state: dict) -> None:
        """Restore what `state` returned."""
        self._first, self._num_low = state["first"], state["num_low"]
        self._best = -float("inf") if state["best"] is None else state["best"]
