"""Progress of `make demo`: a line per step with a bar, the time and the last line of output."""

import re
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

_COUNT = re.compile(r"\b(\d+)\s?/\s?(\d+)\b")
_PLAIN_EVERY_S = 10.0
TITLES = {
    "dvc": "Data: recordings, convert, validate",
    "pretrain": "Train: pretraining",
    "sft": "Train: fine-tuning",
    "rl": "Train: in simulation",
    "evaluate": "Evaluate: closed loop",
    "gate": "Gate",
    "registry": "Registry",
    "fetch": "Use: fetch the champion",
    "play": "Use: render it",
}


class Display:
    """A context manager that shows the output of a flow's commands (`flows.progress.listening`).

    On a terminal it redraws bars in place. In a log it prints a line from time to time.
    """

    def __init__(self, console: Console):
        self.console = console
        columns = (
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[line]}"),
        )
        self._bars = Progress(*columns, console=console, disable=not console.is_interactive)
        self._step = ""
        self._bar = TaskID(0)
        self._began = self._printed = 0.0

    def __enter__(self) -> "Display":
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.finish(is_done=error is None)
        self._bars.stop()

    def heading(self, text: str) -> None:
        """Print a title above the steps that follow."""
        self.finish()
        self._bars.console.print(f"\n[bold]{text}[/]")

    def __call__(self, step: str, line: str) -> None:
        """Take an output line of the command for `step`; the first line begins the step."""
        if step != self._step:
            self.finish()
            self._step, self._began = step, time.monotonic()
            self._bar = self._bars.add_task(TITLES.get(step, step), total=None, line="")
            self._plain("begins")
        count = _COUNT.search(line)
        if count and 0 < int(count[2]) >= int(count[1]):
            self._bars.update(self._bar, completed=int(count[1]), total=int(count[2]))
        self._bars.update(self._bar, line=line[: max(20, self.console.width - 66)])
        if line and time.monotonic() - self._printed > _PLAIN_EVERY_S:
            self._plain(line)

    def finish(self, is_done: bool = True) -> None:
        """End the step that is running, if any."""
        if not self._step:
            return
        if is_done:
            total = self._bars.tasks[-1].total or 1
            self._bars.update(self._bar, total=total, completed=total, line="")
        self._bars.stop_task(self._bar)
        end = "done" if is_done else "stopped"
        self._plain(f"{end} after {time.monotonic() - self._began:.0f} s")
        self._step = ""

    def _plain(self, line: str) -> None:
        if not self.console.is_interactive:
            text = f"  {TITLES.get(self._step, self._step)}: {line}"
            self.console.print(text, markup=False, soft_wrap=True)
            self._printed = time.monotonic()
