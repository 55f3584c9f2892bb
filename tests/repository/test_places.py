"""The test of `rrf/a/b/c.py` is `tests/a/b/test_c.py`: whoever looks for it need not search."""

from tests.repository.structure import ROOT

BESIDE_RRF = {
    "benchmarks": "benchmarks/",
    "docs": "docs/",
    "faults": "kills, other faults and attacks, across all folders",
    "flows": "flows/ and infra/",
    "installed": "an installed wheel",
    "learning": "from recordings to a policy that solves its task",
    "repository": "the repository as a whole",
}
"""The other folders that may hold tests, and of what."""


def test_every_folder_of_tests_is_one_of_rrf_or_known_here():
    found = {path.parent.relative_to(ROOT / "tests") for path in ROOT.glob("tests/**/test_*.py")}
    strange = [
        str(folder)
        for folder in sorted(found)
        if str(folder) not in BESIDE_RRF and not (ROOT / "rrf" / folder).is_dir()
    ]
    assert strange == []
    assert set(BESIDE_RRF) <= {str(folder) for folder in found}
