"""A run as TensorBoard event files under `<run_dir>/tensorboard/`, written without torch or
TensorFlow.

If the file cannot be written any more, the tracker logs a warning and training continues.
"""

import time
from pathlib import Path

import yaml

from rrf.runners.tracker import Status
from rrf.tracking.base import BaseTracker


class TensorBoardTracker(BaseTracker):
    """Writes metrics as scalars, and description, config, dataset and tags as text.

    Resuming adds another event file.
    """

    service = "TensorBoard"

    def __init__(
        self,
        experiment: str,
        run_name: str,
        run_dir: Path,
        run_id: str | None = None,
        notes: str = "",
    ):
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        super().__init__()
        self._losses = (OSError,)  # also raised for errors of the writer's thread, which has ended
        self._writer = EventFileWriter(str(run_dir / "tensorboard"))
        self._text("run", f"{run_name}\n\n{notes}")

    def log_config(self, cfg: dict) -> None:
        self._text("config", yaml.safe_dump(cfg, sort_keys=False))

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[attr-defined]

        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._add(Summary(value=values), step)

    def log_artifact(self, path: str | Path, folder: str = "") -> None:
        """TensorBoard keeps no files; the artifact stays where it is."""

    def _note(self, title: str, facts: dict) -> None:
        self._text(title, yaml.safe_dump(facts, sort_keys=False))

    def _finish(self, status: Status) -> None:
        self._writer.flush()  # raises errors of the writer's thread; close does not
        self._writer.close()

    def _text(self, name: str, text: str) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata  # type: ignore[attr-defined]
        from tensorboard.compat.proto.tensor_pb2 import TensorProto  # type: ignore[attr-defined]
        from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto  # type: ignore[attr-defined]
        from tensorboard.compat.proto.types_pb2 import DT_STRING  # type: ignore[attr-defined]

        indented = "".join(f"    {line}\n" for line in text.splitlines())  # Markdown: verbatim
        tensor = TensorProto(
            dtype=DT_STRING,
            string_val=[indented.encode()],
            tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
        )
        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        self._add(Summary(value=[Summary.Value(tag=name, metadata=metadata, tensor=tensor)]), 0)

    def _add(self, summary, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[attr-defined]

        event = Event(wall_time=time.time(), step=step, summary=summary)
        self._tell(lambda: self._writer.add_event(event))
