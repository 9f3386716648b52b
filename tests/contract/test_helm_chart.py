"""The Helm chart: what it renders, and what it refuses, by Helm and by Kubernetes' own schemas."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from connect.config.node.node_config import NodeConfig

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "icefloe"
KUBERNETES = "1.31"
OPERATOR_KINDS = {"ServiceMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator, for which Kubernetes has no schema."""

helm = shutil.which("helm")
pytestmark = pytest.mark.skipif(helm is None, reason="helm is not installed")

GOOD = {
    "image": {"repository": "registry.example.com/icefloe", "tag": "1"},
    "users": {"existingSecret": "users"},
    "tls": {"existingSecret": "tls"},
    "properties": {"bootstrap.servers": "broker:9092"},
}
EVERYTHING = {
    **GOOD,
    "image": {"repository": "registry.example.com/icefloe", "digest": "sha256:" + "0" * 64},
    "imagePullSecrets": [{"name": "pull"}],
    "replicas": 5,
    "env": [{"name": "ICEFLOE_SASL_MECHANISM", "value": "PLAIN"}],
    "envFrom": [{"secretRef": {"name": "more"}}],
    "connectorSecrets": ["store", "catalog"],
    "tls": {"existingSecret": "tls", "truststoreKey": "clients.pem", "clientAuth": "requested"},
    "state": {"persistent": True, "size": "50Gi", "storageClassName": "fast"},
    "service": {"type": "LoadBalancer", "port": 8443, "annotations": {"a": "b"}},
    "serviceAccount": {"create": True, "annotations": {"role": "x"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "lake"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "priorityClassName": "high",
    "networkPolicy": {
        "enabled": True,
        "from": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "extraIngress": [{"ports": [{"port": 7078}]}],
    },
    "metrics": {
        "serviceMonitor": {
            "enabled": True,
            "tokenSecret": {"name": "token", "key": "token"},
            "tlsConfig": {"ca": {"secret": {"name": "ca", "key": "ca.crt"}}},
        },
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    },
}
MESH = {
    **GOOD,
    "tls": {"allowPlaintext": True},
    "podDisruptionBudget": {"enabled": False},
    "serviceAccount": {"create": False},
}


def run(values: dict[str, Any], folder: Path) -> subprocess.CompletedProcess[str]:
    """Render the chart with values."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    assert helm is not None
    command = [helm, "template", "lake", str(CHART), "--kube-version", KUBERNETES, "-f", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rendered(values: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Return the objects that the chart renders with values."""
    done = run(values, folder)
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def one(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Return the only object of a kind."""
    (found,) = (each for each in objects if each["kind"] == kind)
    return found


@pytest.mark.parametrize("values", [GOOD, EVERYTHING, MESH], ids=["good", "everything", "mesh"])
def test_every_object_fits_the_schema_of_kubernetes(values: dict[str, Any], tmp_path: Path) -> None:
    """Each object is valid in its strict form: no unknown field."""
    for found in rendered(values, tmp_path):
        if found["kind"] not in OPERATOR_KINDS:
            kubernetes_validate.validate(found, KUBERNETES, strict=True)


@pytest.mark.parametrize("values", [GOOD, EVERYTHING, MESH], ids=["good", "everything", "mesh"])
def test_the_node_accepts_the_rendered_properties(values: dict[str, Any], tmp_path: Path) -> None:
    """Its own check has no warning."""
    text = one(rendered(values, tmp_path), "ConfigMap")["data"]["node.properties"]
    file = tmp_path / "node.properties"
    file.write_text(text)
    node = NodeConfig.load(file, {})
    assert not node.warnings
    assert node.users_file is not None
    scheme = "https" if "existingSecret" in values["tls"] else "http"
    port = values.get("service", {}).get("port", 8083)
    assert node.listener.url == f"{scheme}://0.0.0.0:{port}"


def test_the_advertised_name_is_that_of_the_pod(tmp_path: Path) -> None:
    """In the headless service, which also resolves unready pods."""
    objects = rendered(GOOD, tmp_path)
    pod = one(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    name = next(e["value"] for e in pod["env"] if e["name"] == "CONNECT_REST_ADVERTISED_HOST_NAME")
    assert name == "$(POD_NAME).lake-nodes.$(POD_NAMESPACE).svc"
    headless = next(
        each
        for each in objects
        if each["kind"] == "Service" and each["metadata"]["name"] == "lake-nodes"
    )
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["publishNotReadyAddresses"]
    assert one(objects, "StatefulSet")["spec"]["serviceName"] == "lake-nodes"


def test_the_pod_runs_without_privileges(tmp_path: Path) -> None:
    """Not as root, no escalation, no capability; no token of the API server with local Spark."""
    spec = one(rendered(GOOD, tmp_path), "StatefulSet")["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["automountServiceAccountToken"] is False
    uid = spec["securityContext"]["runAsUser"]
    assert f"--uid {uid}" in (ROOT / "Dockerfile").read_text()


def test_the_alert_rules_are_those_of_the_repository(tmp_path: Path) -> None:
    """The PrometheusRule has the same groups as the rules file; only one service is scraped."""
    objects = rendered(EVERYTHING, tmp_path)
    rules = yaml.safe_load((ROOT / "compose" / "monitoring" / "alerts.yaml").read_text())
    assert one(objects, "PrometheusRule")["spec"] == rules
    wanted = one(objects, "ServiceMonitor")["spec"]["selector"]["matchLabels"].items()
    services = [each for each in objects if each["kind"] == "Service"]
    assert len([s for s in services if wanted <= s["metadata"]["labels"].items()]) == 1


def test_prometheus_checks_the_name_of_the_service(tmp_path: Path) -> None:
    """It calls pods by their addresses, which no certificate has; the authority can be set."""
    (endpoint,) = one(rendered(EVERYTHING, tmp_path), "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["tlsConfig"] == {
        "ca": {"secret": {"name": "ca", "key": "ca.crt"}},
        "serverName": "lake.default.svc",
    }
    mesh = {**MESH, "metrics": EVERYTHING["metrics"]}
    (endpoint,) = one(rendered(mesh, tmp_path), "ServiceMonitor")["spec"]["endpoints"]
    assert "tlsConfig" not in endpoint


def test_a_network_policy_admits_nodes_and_named_peers(tmp_path: Path) -> None:
    """To the REST port only; other ports need a rule of their own."""
    objects = rendered(EVERYTHING, tmp_path)
    api, executors = one(objects, "NetworkPolicy")["spec"]["ingress"]
    assert api["ports"] == [{"port": "rest"}]
    nodes, named = api["from"]
    pod = one(objects, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert nodes["podSelector"]["matchLabels"].items() <= pod.items()
    assert named == {"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}
    assert executors == {"ports": [{"port": 7078}]}
    assert not [each for each in rendered(GOOD, tmp_path) if each["kind"] == "NetworkPolicy"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({**GOOD, "image": {}}, "build the Dockerfile"),
        ({**GOOD, "users": {}}, "users.existingSecret is required"),
        ({**GOOD, "tls": {}}, "tls.existingSecret is required"),
        ({**GOOD, "properties": {}}, "ICEFLOE_BOOTSTRAP_SERVERS"),
        (
            {**GOOD, "properties": {"bootstrap.servers": "b:1", "listeners": "http://x:1"}},
            "properties.listeners is set by the chart",
        ),
        ({**GOOD, "terminationGracePeriodSeconds": 39}, "longer than icefloe.drain.grace.ms"),
        ({**GOOD, "replica": 3}, "replica"),
        ({**GOOD, "tls": {"existingSecret": "t", "clientAuth": "required"}}, "probes"),
        ({**GOOD, "replicas": 0}, "replicas"),
        ({**GOOD, "image": {"repository": "r", "digest": "latest"}}, "digest"),
    ],
)
def test_values_that_cannot_work_are_refused(
    values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """The error names the value and the remedy."""
    done = run(values, tmp_path)
    assert done.returncode != 0
    assert message in done.stderr


def test_helm_lint_finds_nothing(tmp_path: Path) -> None:
    """Helm's own check passes."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(GOOD))
    assert helm is not None
    command = [helm, "lint", str(CHART), "--kube-version", KUBERNETES, "--strict", "-f", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
