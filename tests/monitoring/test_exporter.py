"""The exporter with everything that it reads being real: a Prefect server, a registry with a
champion, its nights and a request for approvals, and a policy server.
"""

import base64
import http.server
import json
import os
import re
import shutil
import signal
import socketserver
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from prefect import flow
from prefect.settings import PREFECT_API_URL
from prometheus_client.parser import text_string_to_metric_families

from infra import services
from rrf import service_guard
from rrf.client.connection import PolicyClient
from rrf.evaluation.intervals import wilson
from rrf.identity import trust
from rrf.identity.trust import ModelTrustCfg
from rrf.mlflow_store import store
from rrf.monitoring.exporter import FRESH_S, Exporter
from rrf.monitoring.flows import Flows
from rrf.monitoring.registry import Registry
from rrf.monitoring.servers import Servers
from rrf.registry import ledger as ledgers
from rrf.registry import listing, night_record, promotion, taints
from tests.flows.conftest import prefect_api, server  # noqa: F401 (fixtures)
from tests.people import no_keys, people  # noqa: F401 (fixtures)
from tests.registry.conftest import (
    NAME,
    add,  # noqa: F401 (a fixture)
    client,  # noqa: F401 (a fixture of `run_id`)
    empty_store,  # noqa: F401 (a fixture of `home`)
    home,  # noqa: F401 (a fixture)
    make_evaluation,
    run_id,  # noqa: F401 (a fixture of `add`)
)
from tests.serving.conftest import Scripted, request, serving  # noqa: F401 (a fixture)

ROOT = Path(__file__).parents[2]
WATCH = ROOT / "infra/watch"
TOKEN = "a token that is long".replace(" ", "-")


@flow
def tick() -> None:
    """Ends well."""


@flow
def tock() -> None:
    raise RuntimeError("a spring broke")


def samples(text: str) -> dict[str, dict[tuple, float]]:
    """Name of a metric -> values by labels."""
    found: dict[str, dict[tuple, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def named_in(expression: str) -> set[str]:
    return set(re.findall(r"\brrf_\w+", expression))


def of_dashboard() -> set[str]:
    """The metrics of all panels and variables."""
    dashboard = json.loads((WATCH / "dashboard.json").read_text())
    expressions = [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())
    ]
    expressions += [each.get("definition", "") for each in dashboard["templating"]["list"]]
    assert len(expressions) > 20
    return set().union(*map(named_in, expressions))


def of_alerts() -> set[str]:
    rules = yaml.safe_load((WATCH / "alerts.yaml").read_text())["groups"][0]["rules"]
    assert all(rule["annotations"]["summary"] for rule in rules)
    return set().union(*(named_in(rule["expr"]) for rule in rules))


def ask(url: str, login: str | None) -> str:
    headers = {}
    if login:
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=120) as page:
        assert page.headers["Content-Type"].startswith("text/plain; version=")
        return page.read().decode()


@pytest.fixture
def watched(home, add, tmp_path):  # noqa: F811
    """A champion with a night, and a version that waits for an approval."""
    add(1)
    promotion.promote(NAME, "1")
    make_evaluation(tmp_path / "night", home / "checkpoints/1", solved=17)
    night_record.record(NAME, "1", tmp_path / "night", "2026-11-02T020000Z", "n1")
    return home


def test_every_metric_of_dashboard_and_alerts_is_exported(
    watched,
    server,  # noqa: F811
    serving,  # noqa: F811
):
    tick()
    with pytest.raises(RuntimeError):
        tock()
    policy = serving(Scripted(), token=TOKEN)
    with PolicyClient(policy.url, token=TOKEN) as robot:
        robot.infer(request(1, 2, 3))
    url = f"http://127.0.0.1:{policy.port}"
    process = subprocess.Popen(
        [sys.executable, "-m", "rrf", "metrics", "--port", "0", "--server", url],
        env=os.environ
        | {"PREFECT_API_URL": PREFECT_API_URL.value(), "RRF_SERVE_TOKEN": TOKEN}
        | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        page = line.partition(",")[0]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", page), line
        for login in (None, "rrf:guess"):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                ask(page, login)
        found = samples(ask(page, service_guard.login()))
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)

    wanted = of_dashboard() | of_alerts()
    assert wanted >= {"rrf_champion_success", "rrf_flow_queue", "rrf_inference_seconds_bucket"}
    assert wanted - set(found) == set()
    page_names = named_in((ROOT / "docs/how-to/metrics.md").read_text())
    families = {re.sub("_(bucket|count|sum)$", "", name) for name in found}
    assert page_names - families == set()
    assert {n for n in families - page_names if not n.endswith("_created")} <= {
        *("rrf_champion_success_low", "rrf_champion_success_high")
    }
    named = (("model", NAME),)
    low, high = wilson(18, 20)
    assert found["rrf_champion_version"][named] == 1
    assert found["rrf_champion_success"][named] == 0.9
    assert found["rrf_champion_success_low"][named] == pytest.approx(low)
    assert found["rrf_champion_success_high"][named] == pytest.approx(high)
    assert found["rrf_ledger_entries"][named] == len(promotion.ledger_of(NAME).entries)
    assert found["rrf_ledger_damaged"][named] == found["rrf_registry_problems"][named] == 0
    since = time.time() - found["rrf_champion_since_timestamp_seconds"][named]
    assert 0 <= since < 600
    night = (("model", NAME), ("protocol", "p"))
    assert found["rrf_night_success"][night] == 0.85
    assert found["rrf_night_timestamp_seconds"][night] == 1793584800  # 2026-11-02 02:00 UTC
    assert found["rrf_flow_runs"][(("flow", "tick"), ("state", "completed"))] == 1
    assert found["rrf_flow_runs"][(("flow", "tock"), ("state", "failed"))] == 1
    ended = found["rrf_flow_last_success_timestamp_seconds"]
    assert time.time() - ended[(("flow", "tick"),)] < 600
    assert (("flow", "tock"),) not in ended
    assert found["rrf_requests_total"][(("server", url),)] == 1


def read(*collectors) -> dict[str, dict[tuple, float]]:
    return samples(Exporter(*collectors).text().decode())


def test_a_damaged_ledger_and_an_edited_tag_are_seen(watched):
    named = (("model", NAME),)
    assert read(Registry())["rrf_champion_flagged"][named] == 0
    taints.add("demo", "", [], "a loose gripper")
    assert read(Registry())["rrf_champion_flagged"][named] == 1
    writer = store.connect()
    writer.set_model_version_tag(NAME, "1", "evaluation.episodes", "10000000000")
    found = read(Registry())
    assert found["rrf_champion_success"][named] == 0.9
    assert "rrf_champion_success_low" not in found  # of as many episodes as somebody wrote
    writer.set_model_version_tag(NAME, "1", "evaluation.success", "0.990000")
    assert read(Registry())["rrf_registry_problems"][named] == 1
    key = ledgers.key_of(2)
    text = listing.connect().get_registered_model(NAME).tags[key]
    writer.set_registered_model_tag(NAME, key, text.replace('"index": 2', '"index": 3'))
    found = read(Registry())
    assert found["rrf_ledger_damaged"][named] == 1
    assert found["rrf_ledger_entries"][named] == 1
    assert "rrf_champion_success" not in found


def test_missing_approvals_are_counted(watched, add, people):  # noqa: F811
    before = listing.ledger_ends(NAME)
    rules = ModelTrustCfg(approvals=1, believed_until=before)
    trust.save(people.replace(models={NAME: rules}))
    add(2)
    with pytest.raises(promotion.NotPromotedError, match="waits for 1 of 1"):
        promotion.promote(NAME, "2")
    found = read(Registry())
    assert found["rrf_approvals_missing"][(("model", NAME),)] == 1
    assert found["rrf_champion_version"][(("model", NAME),)] == 1


def test_what_does_not_answer_has_one_number_and_hides_nothing_else(watched, monkeypatch, caplog):
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    away = "http://127.0.0.1:9"
    exporter = Exporter(Flows(), Registry(), Servers([away]))
    found = samples(exporter.text().decode())
    assert found["rrf_prefect_up"][()] == 0
    assert found["rrf_policy_server_up"][(("server", away),)] == 0
    assert found["rrf_champion_version"]
    assert "rrf_flow_runs" not in found
    shutil.rmtree(watched / ".rrf")
    (watched / ".rrf").write_text("no folder")
    assert read(Registry())["rrf_registry_up"][()] == 0
    assert "no numbers of the registry" in caplog.text


def test_a_policy_server_is_believed_about_its_own_numbers_only():
    said = (
        '# TYPE rrf_requests_total counter\nrrf_requests_total{server="x"} 3\n'
        '# TYPE rrf_champion_success gauge\nrrf_champion_success{model="m"} 1\nup 1\n'
    )

    class Liar(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(said.encode())

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Liar) as liar:
        thread = threading.Thread(target=liar.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{liar.server_port}"
            found = read(Servers([url]))
        finally:
            liar.shutdown()
            thread.join()
    this = (("server", url),)
    assert found == {"rrf_policy_server_up": {this: 1}, "rrf_requests_total": {this: 3}}


def test_what_answers_and_speaks_no_http_is_away(monkeypatch):
    class Other(socketserver.StreamRequestHandler):
        def handle(self):
            self.rfile.readline()
            self.wfile.write(b"\r\n")

    with socketserver.TCPServer(("127.0.0.1", 0), Other) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{other.server_address[1]}"
            monkeypatch.setenv("PREFECT_API_URL", f"{url}/api")
            monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
            assert read(Servers([url])) == {"rrf_policy_server_up": {(("server", url),): 0}}
            assert read(Flows()) == {"rrf_prefect_up": {(): 0}}
            with pytest.raises(OSError, match=f"no MLflow store at {url}: BadStatusLine"):
                store.connect()
            assert not services.is_healthy(url)
        finally:
            other.shutdown()
            thread.join()


def test_who_asks_again_soon_gets_the_same_text():
    class Counting(Registry):
        asked = 0

        def collect(self):
            self.asked += 1
            yield from ()

    now, counting = [0.0], Counting()
    exporter = Exporter(counting, clock=lambda: now[0])
    for now[0] in (0.0, FRESH_S / 2, FRESH_S, FRESH_S * 1.5):
        exporter.text()
    assert counting.asked == 2


@pytest.mark.parametrize("url", ["localhost:8000", "ws://robot:8000", "http://", "http://a:b@c:1"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ValueError, match="give --server http://HOST:PORT"):
        Servers([url])
