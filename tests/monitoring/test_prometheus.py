"""Prometheus itself reads what is in infra/watch, and scrapes `rrf metrics`."""

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from infra import ports
from rrf import service_guard
from tests.monitoring.test_exporter import WATCH, watched  # noqa: F401 (a fixture)
from tests.registry.conftest import (
    add,  # noqa: F401 (a fixture)
    client,  # noqa: F401 (a fixture of `run_id`)
    empty_store,  # noqa: F401 (a fixture of `home`)
    home,  # noqa: F401 (a fixture)
    run_id,  # noqa: F401 (a fixture of `add`)
)
from tests.waiting import wait_for

NUM_RULES = (WATCH / "alerts.yaml").read_text().count("- alert: ")
SKIP = "not installed (as root: sh infra/stack-packages.sh)"


@pytest.mark.skipif(not shutil.which("promtool"), reason=f"promtool: {SKIP}")
def test_promtool_accepts_rules_and_configuration():
    done = subprocess.run(
        ["promtool", "check", "config", WATCH / "prometheus.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SUCCESS") == 3
    assert f"{NUM_RULES} rules found" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("prometheus"), reason=f"prometheus: {SKIP}")
def test_prometheus_scrapes_the_exporter_and_its_rules_work(watched, tmp_path):  # noqa: F811
    ours, theirs = ports.free(), ports.free()
    password = tmp_path / "password"
    password.write_text(service_guard.login().partition(":")[2])
    config = (WATCH / "prometheus.yaml").read_text()
    for given, here in (
        ("../../.rrf/metrics-password", str(password)),
        ("127.0.0.1:9464", f"127.0.0.1:{ours}"),
        ("alerts.yaml", str(WATCH / "alerts.yaml")),
        ("interval: 30s", "interval: 1s"),
        ("timeout: 25s", "timeout: 1s"),
    ):
        assert given in config
        config = config.replace(given, here)
    (tmp_path / "prometheus.yaml").write_text(config)

    def ask(question: str):
        try:
            address = f"http://127.0.0.1:{theirs}/api/v1/{question}"
            with urllib.request.urlopen(address, timeout=60) as answer:
                return json.loads(answer.read())["data"]
        except urllib.error.URLError:
            return None

    def value_of(metric: str) -> str:
        found = (ask(f"query?query={metric}") or {}).get("result")
        return found[0]["value"][1] if found else ""

    words = ["--config.file", tmp_path / "prometheus.yaml", "--storage.tsdb.path", tmp_path / "db"]
    words += ["--web.listen-address", f"127.0.0.1:{theirs}"]
    programs = (
        [sys.executable, "-m", "rrf", "metrics", "--port", str(ours)],
        ["prometheus", *map(str, words)],
    )
    with (tmp_path / "log").open("wb") as log:
        running = [
            subprocess.Popen(each, env=dict(os.environ), stdout=log, stderr=log)
            for each in programs
        ]
    try:
        wait_for(
            lambda: value_of("up") == "1" and value_of("rrf_champion_version") == "1",
            found=lambda: Path(tmp_path, "log").read_text()[-2000:],
        )
        groups = wait_for(lambda: rules_of(ask("rules")))
        assert {rule["health"] for rule in groups} == {"ok"}
        assert len(groups) == NUM_RULES
    finally:
        for process in running:
            process.terminate()
            process.wait(timeout=60)


def rules_of(answer: dict | None) -> list[dict] | None:
    """The rules, once all of them have been evaluated."""
    rules = [rule for group in (answer or {}).get("groups", ()) for rule in group["rules"]]
    return rules if rules and all(rule["health"] != "unknown" for rule in rules) else None
