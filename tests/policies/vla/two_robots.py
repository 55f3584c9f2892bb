"""Two robots that differ in everything, their recordings, and a small policy of both.

arm: cameras front and wrist of 24 x 32 px, 4 dimensions of state and 3 of action, 10 fps.
cart: camera top of 20 x 20 px, 2 dimensions of state and 2 of action, 5 fps.
"""

import json

import numpy as np

from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.dataset.stats import norm_stats
from rrf.data.schema import Episode, Schema, Vector

ARM = Schema(
    fps=10,
    image_size=(24, 32),
    cameras=("front", "wrist"),
    state=Vector(("x", "y", "z", "grip"), "m"),
    action=Vector(("dx", "dy", "grip"), "1"),
    has_reward=False,
    has_success=False,
)
CART = Schema(
    fps=5,
    image_size=(20, 20),
    cameras=("top",),
    state=Vector(("left", "right"), "rad"),
    action=Vector(("left", "right"), "rad/s"),
    has_reward=False,
    has_success=False,
)
CHUNK = 5


def write(root, schema: Schema, num_episodes: int = 8, length: int = 9, scale: float = 1.0):
    """A published dataset whose actions are linear in the state; `scale` is that of its values."""

    def episode(number: int) -> Episode:
        rng = np.random.default_rng([number, len(schema.state.names)])
        dims, size = len(schema.action.names), (length, *schema.image_size, 3)
        state = scale * rng.uniform(-1, 1, (length, len(schema.state.names))).astype(np.float32)
        return Episode(
            images={c: rng.integers(0, 256, size, dtype=np.uint8) for c in schema.cameras},
            state=state,
            action=np.float32(3.0) * state[:, :dims] + np.float32(scale),
            instruction="open the door" if schema is ARM else "close",
            source=f"synthetic:{number}",
        )

    write_dataset(root, schema, (episode(number) for number in range(num_episodes)))
    (root / "norm_stats.json").write_text(json.dumps(norm_stats(root)))
    return root
