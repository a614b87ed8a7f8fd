"""The compose file of three nodes and the manifest for KubeRay, tested without a container engine or Kubernetes.

Their commands are parsed by the command line itself.
"""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradwire_server.app.settings import Settings
from gradwire_server.cluster.cli import cluster
from gradwire_server.cluster.ray_process import MACHINE
from tools.lock import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docker-compose.cluster.yml"
KUBERAY = ROOT / "examples" / "kubernetes" / "kuberay.yaml"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def parsed(line: list[str]) -> tuple[str, dict[str, Any], dict[str, str]]:
    """The command of `gradwire cluster`, its parameters, and the options of `gradwire serve` after them."""
    assert line[:2] == ["gradwire", "cluster"]
    command = cluster.commands[line[2]]
    given = dict(command.make_context(line[2], line[3:]).params)
    serving = [word.removeprefix("--") for word in given.pop("serve_arguments")]
    known = {name.replace("_", "-") for name in Settings.model_fields}
    options = [word for word in serving if word in known]
    assert options, serving
    return line[2], given, dict.fromkeys(options, "")


def test_compose_file_passes_a_compose_parser() -> None:
    parser = shutil.which("docker-compose")
    if parser is None:
        pytest.skip("needs a compose parser: docker-compose is not on the PATH")
    answer = subprocess.run([parser, "--file", COMPOSE, "config"], capture_output=True, text=True, timeout=200)
    assert answer.returncode == 0, answer.stderr
    assert len(yaml.safe_load(answer.stdout)["services"]) == 3


def test_one_service_starts_the_cluster_and_two_join_it(services: dict[str, Any]) -> None:
    (subnet,) = yaml.safe_load(COMPOSE.read_text())["networks"]["cluster"]["ipam"]["config"]
    hosts = []
    for service in services.values():
        name, given, serving = parsed(service["command"])
        address = service["networks"]["cluster"]["ipv4_address"]
        assert given["host"] == address and ip_address(address) in ip_network(subnet["subnet"])
        assert service["healthcheck"]["test"][-1] == f"{address}:{given['port']}"
        assert given["private_network"] and "insecure-bind" in serving
        assert given["state_dir"].startswith("/var/lib/gradwire/")
        hosts.append(address)
        if name == "start":
            first = f"{address}:{given['ray_port']}"
            continue
        assert (name, given["address"]) == ("join", first)
        assert service["depends_on"] == {"first": {"condition": "service_healthy"}}, "the token is there then"
    assert len(set(hosts)) == 3
    told = re.search(r"GRADWIRE_ADDRESS=(\S+)", COMPOSE.read_text())
    assert told is not None and told[1].split(",") == [f"{host}:50051" for host in hosts]


def test_nodes_share_one_volume_publish_nothing_and_have_few_rights(services: dict[str, Any]) -> None:
    assert len({tuple(service["volumes"]) for service in services.values()}) == 1
    for service in services.values():
        assert service["build"]["args"]["EXTRA"] in EXTRAS
        assert "ports" not in service and "privileged" not in service and "network_mode" not in service
        assert service["cap_drop"] == ["ALL"] and service["read_only"] is True
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["environment"]["GRADWIRE_CLUSTER_FOLDER"].startswith("/var/lib/gradwire/")


# KubeRay.


@pytest.fixture(scope="module")
def kinds() -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(KUBERAY.read_text())}


def templates(kinds: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """The pods of the first machine and of the others, and the command of each."""
    spec = kinds["RayCluster"]["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        (script,) = container["args"]
        checked = subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True, timeout=60)
        assert checked.returncode == 0, checked.stderr
        yield group["template"], shlex.split(script.partition("exec ")[2])


def test_the_operator_leaves_ray_to_the_command_and_makes_its_token(kinds: dict[str, Any]) -> None:
    made = kinds["RayCluster"]
    assert made["apiVersion"] == "ray.io/v1"
    assert made["metadata"]["annotations"] == {"ray.io/overwrite-container-cmd": "true"}
    assert made["spec"]["authOptions"] == {"mode": "token"}
    locked = re.search(r"^ray==(\S+)", (ROOT / "requirements" / "cluster.lock").read_text(), re.MULTILINE)
    assert locked is not None and made["spec"]["rayVersion"] == locked[1]


def test_the_first_pod_starts_the_cluster_and_the_others_join_it(kinds: dict[str, Any]) -> None:
    found = [parsed(line) for _, line in templates(kinds)]
    assert [name for name, _, _ in found] == ["start", "join"]
    for _, given, serving in found:
        assert given["host"] == "$POD_IP" and given["private_network"]
        assert {"tls-cert", "tls-key", "token-file"} <= serving.keys(), "others reach the port"
    assert len({given["state_dir"] for _, given, _ in found}) == 1


def test_pods_share_the_volume_and_have_what_their_commands_name(kinds: dict[str, Any]) -> None:
    claim = kinds["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for template, line in templates(kinds):
        spec = template["spec"]
        (container,) = spec["containers"]
        volumes = {each["name"]: each for each in spec["volumes"]}
        assert volumes["state"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        assert set(mounts.values()) == volumes.keys()
        for word in line:
            if word.startswith(("/run/", "/var/")):
                assert any(word.startswith(mount) for mount in mounts), word
        assert spec["terminationGracePeriodSeconds"] >= 110
        assert {"readinessProbe", "livenessProbe"} <= container.keys()
        assert spec["securityContext"]["runAsNonRoot"] is True


def test_only_the_cluster_s_pods_reach_ray(kinds: dict[str, Any]) -> None:
    policy = kinds["NetworkPolicy"]["spec"]
    labels = policy["podSelector"]["matchLabels"]
    assert all(template["metadata"]["labels"] == labels for template, _ in templates(kinds))
    inside, outside = policy["ingress"]
    assert inside == {"from": [{"podSelector": {"matchLabels": labels}}]}
    assert outside == {"ports": [{"port": 50051}]}


def test_the_autoscaler_knows_what_a_machine_gives(kinds: dict[str, Any]) -> None:
    (group,) = kinds["RayCluster"]["spec"]["workerGroupSpecs"]
    assert kinds["RayCluster"]["spec"]["enableInTreeAutoscaling"] is True
    assert group["minReplicas"] <= group["replicas"] < group["maxReplicas"]
    assert group["rayStartParams"]["resources"] == f'"{{\\"{MACHINE}\\": 1}}"'
