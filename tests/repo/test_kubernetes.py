"""The manifests of the Kubernetes example are valid for an API server and for Spark. No cluster is needed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from pyspark.sql import SparkSession

from headgate.settings.node import Settings
from headgate.storage.spark.application import spark_session

FOLDER = Path(__file__).parents[2] / "packaging" / "kubernetes"
VERSIONS = ("1.31", "1.37")
"""The oldest release that the example supports, and the newest one whose schema the validator has."""
NODE = list(yaml.safe_load_all((FOLDER / "node.yaml").read_text()))
EXECUTOR = yaml.safe_load((FOLDER / "executor.yaml").read_text())


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [document for document in NODE if document["kind"] == kind]


def pod() -> dict[str, Any]:
    [stateful_set] = of_kind("StatefulSet")
    template: dict[str, Any] = stateful_set["spec"]["template"]
    return template


def container() -> dict[str, Any]:
    node: dict[str, Any]
    [node] = pod()["spec"]["containers"]
    return node


def settings(name: str = "headgate-0", namespace: str = "lake") -> dict[str, str]:
    """Return the settings on the node's command line, with the variables filled in as Kubernetes does."""
    command = [word.replace("$(POD_NAME)", name).replace("$(POD_NAMESPACE)", namespace) for word in container()["args"]]
    assert command[::2] == ["-c"] * (len(command) // 2)
    return dict(word.split("=", 1) for word in command[1::2])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("document", [*NODE, EXECUTOR], ids=lambda each: f"{each['kind']}-{each['metadata'].get('name', 'executor')}")
def test_each_document_is_valid_by_the_schema_of_kubernetes(document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_a_misspelt_field_is_not_valid() -> None:
    [service, _] = of_kind("Service")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**service, "spec": {**service["spec"], "selectors": {}}}, VERSIONS[-1], strict=True)


def test_services_select_the_nodes_pod_and_name_its_ports() -> None:
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    for service in of_kind("Service"):
        assert service["spec"]["selector"].items() <= pod()["metadata"]["labels"].items()
        assert {port["targetPort"]: port["port"] for port in service["spec"]["ports"]}.items() <= ports.items()
    [stateful_set] = of_kind("StatefulSet")
    assert stateful_set["spec"]["selector"]["matchLabels"] == pod()["metadata"]["labels"]
    assert stateful_set["spec"]["serviceName"] in [service["metadata"]["name"] for service in of_kind("Service")]
    [role], [binding], [account] = of_kind("Role"), of_kind("RoleBinding"), of_kind("ServiceAccount")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert pod()["spec"]["serviceAccountName"] == account["metadata"]["name"] == binding["subjects"][0]["name"]


def test_executors_reach_the_driver_by_the_service_of_its_pod() -> None:
    given, ports = settings(), {port["name"]: str(port["containerPort"]) for port in container()["ports"]}
    [stateful_set] = of_kind("StatefulSet")
    pod_name, service, namespace, suffix = given["spark.driver.host"].split(".")
    assert (pod_name, service, namespace, suffix) == ("headgate-0", stateful_set["spec"]["serviceName"], "lake", "svc")
    [headless] = [document for document in of_kind("Service") if document["metadata"]["name"] == service]
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["publishNotReadyAddresses"], "the node needs executors before it is ready"
    assert (given["spark.driver.port"], given["spark.driver.blockManager.port"]) == (ports["driver"], ports["blocks"])


def test_the_commands_of_the_comment_create_what_the_pod_names() -> None:
    text = (FOLDER / "node.yaml").read_text()
    secrets = dict(re.findall(r"create secret generic (\S+) (.*)", text))
    keys = set(re.findall(r"--from-literal=([\w-]+)=", secrets["headgate"]))
    variables = [
        variable["valueFrom"]["secretKeyRef"] for variable in container()["env"] if "secretKeyRef" in variable.get("valueFrom", {})
    ]
    [password, template] = pod()["spec"]["volumes"]
    named = {variable["key"] for variable in variables} | {item["key"] for item in password["secret"]["items"]}
    assert keys == named
    assert {variable["name"] for variable in variables} | {password["secret"]["secretName"]} == set(secrets)
    [(config_map, file)] = re.findall(r"create configmap (\S+) --from-file=(\S+)", text)
    assert template["configMap"]["name"] == config_map
    assert (FOLDER.parents[1] / file).exists()
    [place] = [mount["mountPath"] for mount in container()["volumeMounts"] if mount["name"] == template["name"]]
    assert settings()["spark.kubernetes.executor.podTemplateFile"] == f"{place}/{Path(file).name}"


def test_a_node_accepts_the_settings_and_takes_the_master_for_a_cluster() -> None:
    read = Settings(command_line=settings()).load()
    assert spark_session.is_cluster(read.spark())
    assert read.text("data_location") == "s3a://bucket/prefix"


def test_spark_creates_executors_pods_from_the_template(spark: SparkSession) -> None:
    """Spark's own builder creates the pods, as its scheduler does before it sends them to the API server."""
    jvm: Any = spark._jvm
    configuration = jvm.org.apache.spark.SparkConf(False)
    read = Settings(command_line=settings()).load().spark() | {"spark.kubernetes.executor.podTemplateFile": str(FOLDER / "executor.yaml")}
    for name, value in read.items():
        configuration.set(name, value)
    kubernetes, none = jvm.org.apache.spark.deploy.k8s, jvm.scala.Option.empty()
    of_executor = kubernetes.KubernetesConf.createExecutorConf(configuration, "1", "spark-1", none, 0)
    # not the default profile, which is the one of the running session
    needs = jvm.org.apache.spark.resource.ExecutorResourceRequests()
    needs.memory(read["spark.executor.memory"]).memoryOverhead(read["spark.executor.memoryOverhead"]).cores(
        int(read["spark.executor.cores"])
    )
    profile = jvm.org.apache.spark.resource.ResourceProfileBuilder().require(needs).build()
    client = jvm.io.fabric8.kubernetes.client.KubernetesClientBuilder().build()
    try:
        security = jvm.org.apache.spark.SparkEnv.get().securityManager()
        builder = jvm.org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBuilder()
        pod = builder.buildFromFeatures(of_executor, security, client, profile).pod()
        as_yaml = jvm.io.fabric8.kubernetes.client.utils.Serialization.asYaml
        document, executor = yaml.safe_load(as_yaml(pod.pod())), yaml.safe_load(as_yaml(pod.container()))
    finally:
        client.close()
    document["spec"]["containers"] = [executor]
    kubernetes_validate.validate(document, VERSIONS[-1], strict=True)
    assert executor["image"] == settings()["spark.kubernetes.container.image"]
    assert executor["resources"]["requests"]["cpu"] == settings()["spark.executor.cores"]
    assert executor["resources"]["limits"]["memory"] == "6144Mi", "Java's heap, and what Python's workers need beside it"
    variables = {variable["name"]: variable.get("value") for variable in executor["env"]}
    assert variables["SPARK_DRIVER_URL"] == "spark://CoarseGrainedScheduler@headgate-0.headgate-driver.lake.svc:7078"
    assert variables["SPARK_LOCAL_DIRS"] == "/var/spark"
    [template] = EXECUTOR["spec"]["containers"]
    assert executor["securityContext"] == template["securityContext"]
    assert EXECUTOR["metadata"]["labels"].items() <= document["metadata"]["labels"].items()
