"""Evaluations of flows: a process is started only where something is left to do."""

from flows import evaluate
from rrf.evaluation.candidate import candidate_at
from rrf.evaluation.directory import Evaluator
from rrf.evaluation.protocols.base import Resources
from rrf.evaluation.protocols.files import load_protocol
from tests.registry.conftest import (
    empty_store,  # noqa: F401 (a fixture of `home`)
    home,  # noqa: F401 (a fixture)
    make_checkpoint,
    make_evaluation,
)


def test_an_evaluation_that_is_there_starts_no_process(home):  # noqa: F811
    policy, protocol = make_checkpoint(home / "1"), "configs/protocols/p.yaml"
    evaluator = Evaluator(load_protocol(protocol).here(), Resources())
    folder = evaluator.folder(candidate_at(policy, "1"))
    evaluation = make_evaluation(folder, policy, solved=18)
    cfg = evaluator.protocol
    evaluation.protocol, evaluation.protocol_hash = cfg.to_dict(), cfg.hash
    for path, name, extra, is_there in (
        ("1", protocol, 0, False),  # other code evaluated it
        ("1", protocol, 0, True),
        (str(policy), protocol, 0, True),
        ("1", protocol, 1, False),
        ("1", "configs/protocols/none.yaml", 0, False),
        ("2", protocol, 0, False),
        ("policy@champion", protocol, 0, False),
    ):
        assert (evaluate._evaluated(path, name, extra) == folder) == is_there, (path, name, extra)
        evaluation.source_digest = evaluator.source
        evaluation.save(folder / "evaluation.json")
    report = folder / "report.html"
    report.unlink()
    assert evaluate._evaluated("1", protocol, 0) is None
    report.write_text("a page")
    assert evaluate._evaluated("1", protocol, 0) == folder
    (policy / "model.safetensors").write_bytes(b"other weights")
    assert evaluate._evaluated("1", protocol, 0) is None
