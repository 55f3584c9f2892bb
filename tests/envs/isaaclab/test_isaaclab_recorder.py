"""What Isaac Lab's own recorder writes is read as it happened."""

import numpy as np
import pytest
import torch

from rrf.data.formats.isaac_lab import IsaacLabSource
from rrf.envs.isaaclab.configs import IsaacLabEnvCfg


@pytest.mark.slow
def test_a_file_of_its_recorder_has_what_was_seen_and_done(isaaclab, tmp_path):
    file = tmp_path / "demo.hdf5"
    cfg = IsaacLabEnvCfg(
        task="Isaac-Cartpole-Camera", num_envs=2, overrides={"episode_length_s": 0.2}
    ).with_recorder(file)
    cfg = cfg.replace(image_size=24)
    env = cfg.build(seed=3)
    try:
        assert env.interface.observation_dims["policy"] == 4, "images are recorded, not sent"
        seen, done, dones, extras = [], [], torch.zeros(2), {}
        for step in range(12):
            seen.append(env.get_observations()["policy"][1].numpy())
            done.append(0.1 * step)
            _, _, dones, extras = env.step(torch.full((2, 1), 0.1 * step))
        assert dones.all()
        assert extras["time_outs"].all()
    finally:
        env.close()
    with pytest.raises(ValueError, match="is there already"):
        cfg.build()
    source = IsaacLabSource(file, {})
    keys = ("obs/joint_pos_rel", "obs/joint_vel_rel", "actions", "obs/tiled_camera", "success")
    place = "states/articulation/robot/joint_position"
    episodes = [
        episode
        for recording in source.recordings()
        for episode in source.episodes(recording, [*keys, place])
    ]
    assert len(episodes) == 2, "the empty ones of the resets are left out"
    values = episodes[1].arrays
    assert episodes[1].fps == 60
    observed = np.concatenate([values["obs/joint_pos_rel"], values["obs/joint_vel_rel"]], 1)
    np.testing.assert_array_equal(observed, np.stack(seen))
    np.testing.assert_allclose(values["actions"][:, 0], done, rtol=1e-6)
    np.testing.assert_array_equal(values[place], values["obs/joint_pos_rel"])
    assert values["success"].tolist() == [False] * 11 + [True]
    images = episodes[1].images["obs/tiled_camera"]
    assert isinstance(images, np.ndarray)
    assert (images.dtype, images.shape) == (np.uint8, (12, 24, 24, 3))
    assert images.std() > 3
