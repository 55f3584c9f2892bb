"""The files of infra/kubernetes fit Kubernetes' published schemas and each other. They were applied
to no cluster.
"""

import json
import os
import subprocess
import sys

import pytest
import yaml

from tests.flows.conftest import ROOT

FOLDER = ROOT / "infra/kubernetes"
RELEASE = "1.33"


def documents(name: str) -> list[dict]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


@pytest.fixture(scope="module")
def template() -> dict:
    return json.loads((FOLDER / "job-template.json").read_text())


@pytest.fixture(scope="module")
def job(template) -> dict:
    return template["job_configuration"]["job_manifest"]


def test_they_fit_the_schemas_of_kubernetes(job):
    reason = "needs: uv pip install kubernetes-validate, which brings the published schemas"
    validate = pytest.importorskip("kubernetes_validate", reason=reason)
    for document in [*documents("flows.yaml"), job]:
        validate.validate(document, RELEASE, strict=True)
    wrong = json.loads(json.dumps(job))
    wrong["spec"]["template"]["spec"]["container"] = []
    with pytest.raises(validate.ValidationError):
        validate.validate(wrong, RELEASE, strict=True)


def test_a_run_asks_for_a_card_and_waits_in_the_queue_that_has_cards(job):
    queues = {(one["kind"], one["metadata"]["name"]): one for one in documents("queue.yaml")}
    labels = job["metadata"]["labels"]
    local = queues["LocalQueue", labels["kueue.x-k8s.io/queue-name"]]
    assert local["metadata"]["namespace"] == job["metadata"]["namespace"]
    cluster = queues["ClusterQueue", local["spec"]["clusterQueue"]]
    assert ("WorkloadPriorityClass", labels["kueue.x-k8s.io/priority-class"]) in queues
    (group,) = cluster["spec"]["resourceGroups"]
    (flavor,) = group["flavors"]
    assert ("ResourceFlavor", flavor["name"]) in queues
    assert [each["name"] for each in flavor["resources"]] == group["coveredResources"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert set(container["resources"]["requests"]) == set(group["coveredResources"])
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_what_a_run_names_is_there_and_no_secret_is_in_the_files(job):
    there = {(one["kind"], one["metadata"]["name"]): one for one in documents("flows.yaml")}
    pod = job["spec"]["template"]
    assert ("ServiceAccount", pod["spec"]["serviceAccountName"]) in there
    claims = [
        v["persistentVolumeClaim"]["claimName"]
        for v in pod["spec"]["volumes"]
        if "emptyDir" not in v
    ]
    assert [("PersistentVolumeClaim", claim) in there for claim in claims] == [True]
    policy = there["NetworkPolicy", "rrf-flows"]["spec"]
    assert policy["podSelector"]["matchLabels"] == pod["metadata"]["labels"]
    assert (policy["policyTypes"], policy["ingress"]) == (["Ingress", "Egress"], [])
    (container,) = pod["spec"]["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "rrf-login"}}]
    assert ("Secret", "rrf-login") not in there  # it is made by a command, see docs/production.md
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_who_asks_for_a_run_chooses_nothing_of_its_job(template):
    assert template["variables"] == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    (worker,) = (one for one in documents("flows.yaml") if one["kind"] == "Deployment")
    (container,) = worker["spec"]["template"]["spec"]["containers"]
    # A worker that comes before the pool would make one of Prefect's own template.
    assert "--no-create-pool-if-not-found" in container["command"]


@pytest.mark.slow
def test_prefects_server_takes_the_template(live):
    words = ["work-pool", "create", "kubernetes", "--type", "kubernetes"]
    words += ["--base-job-template", str(FOLDER / "job-template.json")]
    done = subprocess.run(
        [sys.executable, "-m", "prefect", *words],
        cwd=live.root,
        env=live.env | {"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pool = live.request("/work_pools/kubernetes")
    manifest = pool["base_job_template"]["job_configuration"]["job_manifest"]
    assert manifest["spec"]["template"]["spec"]["containers"][0]["name"] == "flow"
