"""The runs that one process and two processes both train."""

import signal

from rrf.runners.interruption import SignalWatch

CASES = {
    "replicated": ["num_microbatches=2"],
    "accumulated": ["num_microbatches=4"],
    "sharded": ["num_microbatches=2", "sharding={}"],
    "single_validation_batch": ["num_microbatches=2", "batch_size=128", "max_steps=2"],
    "sharded_single_validation_batch": [
        "num_microbatches=2",
        "batch_size=128",
        "max_steps=2",
        "sharding={}",
    ],
    "parts": ["num_microbatches=2", "lr_factors={image_encoder: 0.1, head: 0.0}"],
}


class StopAtOnce(SignalWatch):
    """A signal watch that has, or has not, received SIGTERM."""

    def __init__(self, is_stopped: bool):
        super().__init__()
        self.received = signal.SIGTERM if is_stopped else None
