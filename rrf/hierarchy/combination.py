"""A combination: the policy of Systems 2 and 1 with the System 0 below it, as one artifact.

It is the checkpoint of the upper policy with the deployable files of System 0 in its folder
`system0/`. Its digest covers both, so that another System 0 below the same upper policy is another
combination: it has to be evaluated, and promoted, as one.

Its lineage names the digests of three artifacts, as `rrf models split` would write the first two,
and the training that the upper policy comes from.
"""

import tempfile
from pathlib import Path

from rrf import atomic
from rrf.envs.humanoid import scene
from rrf.hierarchy.configs import HierarchyCfg, SystemCfg
from rrf.hierarchy.interfaces import check_fits, sent_by, taken_by
from rrf.lineage import Lineage
from rrf.policies.vla.psi0_configs import Psi0PolicyCfg
from rrf.runners.checkpoints import checkpoint, parts
from rrf.runners.checkpoints.control import load_control_policy, load_interface
from rrf.runners.checkpoints.deployable import (
    SYSTEM0,
    copy_deployable,
    deployable_digest,
    load_lineage,
)


def combine(upper: Path, system0: Path, out: Path) -> Path:
    """Write the combination of two checkpoints to `out`, atomically. The System 0 of an upper one
    that is a combination itself is replaced.

    Raises:
        ValueError: If the upper one is not a whole policy in two parts, if what it sends is not
            what System 0 takes, or if a file is missing, changed or unlisted.
    """
    check_fits(sent_by(upper_policy(upper), {}), taken_by(system0, scene.JOINTS))
    load_control_policy(system0)  # its files are whole
    lineage = _lineage_of(upper).replace(system0_checkpoint=deployable_digest(system0))
    facts = {k: v for k, v in atomic.read_manifest(upper).items() if k != "files"}
    with atomic.directory(out) as root:
        copy_deployable(upper, root)
        atomic.remove(root / SYSTEM0)
        (root / SYSTEM0).mkdir()
        copy_deployable(system0, root / SYSTEM0)
        atomic.write_manifest(root, **{**facts, "lineage": lineage.to_dict()})
    return out


def upper_policy(path: Path) -> Psi0PolicyCfg:
    """The config of Systems 2 and 1.

    Raises:
        ValueError: If the checkpoint has not both.
    """
    policy = checkpoint.deployed_cfg(path)
    if not isinstance(policy, Psi0PolicyCfg):
        raise ValueError(
            f"{path} is a {type(policy).__name__}, which has no Systems 2 and 1; train a policy "
            "in two parts (preset psi0-laptop)"
        )
    policy.require_system1()
    policy.require_system2()
    return policy


def _lineage_of(upper: Path) -> Lineage:
    """That of an upper policy with the digests of its parts."""
    lineage = load_lineage(upper)
    if lineage.system1_checkpoint:  # it was joined from them
        return lineage
    with tempfile.TemporaryDirectory() as folder:
        system2, system1 = map(deployable_digest, parts.split(upper, Path(folder) / "parts"))
    return lineage.replace(
        parent_checkpoint=deployable_digest(upper),
        system2_checkpoint=system2,
        system1_checkpoint=system1,
    )


def system0_of(path: Path) -> Path:
    """Where the System 0 of a combination is.

    Raises:
        ValueError: If the checkpoint has none.
    """
    if not (path / SYSTEM0 / atomic.MANIFEST).is_file():
        raise ValueError(
            f"{path} has no System 0; combine it with one: rrf models join {path} --system0 "
            "CHECKPOINT --out DIRECTORY"
        )
    return path / SYSTEM0


def hierarchy_of(path: Path) -> HierarchyCfg:
    """A combination at the rates that its policy is evaluated at: a chunk when the last one is
    over, and System 2 at each `feature_period`-th.

    Raises:
        ValueError: If it is no combination.
    """
    policy, system0 = checkpoint.deployed_cfg(path), system0_of(path)
    assert isinstance(policy, Psi0PolicyCfg)
    system1_hz = policy.control_hz / policy.chunk_length
    return HierarchyCfg(
        system2=SystemCfg(policy=str(path), hz=system1_hz / policy.feature_period),
        system1=SystemCfg(policy=str(path), hz=system1_hz),
        system0=SystemCfg(policy=str(system0), hz=1 / load_interface(system0).step_dt),
        chunk_hz=policy.control_hz,
    )
