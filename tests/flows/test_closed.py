"""A flow needs no network, and what it is given as a secret stands nowhere in what it writes."""

import os
import secrets
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.flows.conftest import Checkout, balance_gate, balancing, copy_checkout

TOLD = """
targets:
  pager: {kind: webhook, url_variable: RRF_PAGER_URL, secret_variable: RRF_PAGER_SECRET}
  issues: {kind: github, repository: lab/robots, token_variable: GITHUB_TOKEN}
rules:
- {events: [completed, failed, promoted], to: [pager, issues]}
"""
SECRETS = (
    *("RRF_PAGER_SECRET", "GITHUB_TOKEN", "RRF_SERVE_TOKEN"),
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN", "WANDB_API_KEY", "SMTP_PASSWORD"),
)
OUTSIDE = "import socket; socket.create_connection(('192.0.2.1', 443), 30)"  # nobody has it
CLOSED = f"""
set -e
ip link set lo up
if python -c "{OUTSIDE}" 2>/dev/null; then exit 90; fi
python -m infra.services up
"$@"
prefect --no-prompt deployment run train-locomotion --watch -p preset=no-such-preset || true
prefect --no-prompt deployment run promote -p version=77 -p model=balance --watch || true
rrf models lineage balance@champion
rrf doctor || true
python -m infra.services down
"""


def holders(root: Path, words: list[str]) -> dict[str, list[str]]:
    """Which files below hold which of the words; databases as their text, too."""
    found: dict[str, list[str]] = {}
    for path in root.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        if content.startswith(b"SQLite format 3\0"):
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
                content += "\n".join(database.iterdump()).encode()
        if held := [word for word in words if word.encode() in content]:
            found[str(path.relative_to(root))] = held
    return found


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root, unshare")
def test_a_champion_is_made_without_a_network_and_no_secret_is_written(tmp_path):
    checkout = Checkout(copy_checkout(tmp_path / "robots"))
    gate = balance_gate(checkout, "easy", least=1)
    (checkout.root / "configs/notify.yaml").write_text(TOLD)
    given = {name: f"canary-{secrets.token_hex(16)}" for name in SECRETS}
    pager = secrets.token_hex(16)
    checkout.env |= given | {"RRF_PAGER_URL": f"http://127.0.0.1:9/{pager}"}
    words = ["prefect", "--no-prompt", *balancing(gate, seed=0)]
    said = checkout.run("unshare", "-n", "bash", "-c", CLOSED, "closed", *words, timeout_s=3600)
    assert "balance version 1: " in said  # the champion's lineage
    login = (checkout.root / ".rrf/login").read_text().strip().partition(":")[2]

    every = [*given.values(), pager, login]
    assert [word for word in every if word in said] == []
    assert holders(checkout.root, every) == {".rrf/login": [login]}
    database = holders(checkout.root, ["no-such-preset"])  # what would have been found
    assert any(name.endswith("prefect.db") for name in database), database
    stored = holders(checkout.root, ["balance version 1"])
    assert any(name.startswith(".rrf/") for name in stored), stored


def test_a_word_is_found_in_files_and_databases(tmp_path):
    with sqlite3.connect(tmp_path / "some.db") as database:
        database.execute("CREATE TABLE runs (parameters TEXT)")
        database.execute("INSERT INTO runs VALUES (?)", ("x" * 9000 + "canary" + "y" * 9000,))
    subprocess.run(["sh", "-c", "echo a canary >log"], cwd=tmp_path, check=True)
    assert holders(tmp_path, ["canary", "parrot"]) == {"some.db": ["canary"], "log": ["canary"]}
