"""A YARN cluster for tests: Hadoop's own mini cluster, with a resource manager and a node manager in one Java process.

The process is ``python -m tests.yarn_cluster FOLDER``, which ends when its stdin is closed. Hadoop's classes are those that Spark contains.
The mini cluster and its other libraries are downloaded from Maven Central when a test first needs them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import until

from headgate.storage.spark.application import jars
from headgate.storage.spark.application.jars import Jar

_BOUNCY_CASTLE = "org.bouncycastle"
JARS = (
    Jar("org.apache.hadoop", "hadoop-client-minicluster", "3.4.2", "ae2406c544825b7734b8aad4f87eff60d9ec422284f0b16c2856032083b63c77"),
    Jar("junit", "junit", "4.13.2", "8e495b634469d64fb8acfa3495a065cbacc8a0fff55ce1e31007be4c16dc57d3"),
    Jar("javax.xml.bind", "jaxb-api", "2.3.1", "88b955a0df57880a26a74708bc34f74dcaf8ebf4e78843a28b50eae945732b06"),
    Jar("com.sun.activation", "javax.activation", "1.2.0", "993302b16cd7056f21e779cc577d175a810bb4900ef73cd8fbf2b50f928ba9ce"),
    Jar("com.sun.xml.bind", "jaxb-impl", "2.3.3", "e5178d0c7948247f75a13c689bf36f4d5d4910a121f712aa3b20ae94377069d8"),
    Jar(_BOUNCY_CASTLE, "bcprov-jdk18on", "1.78.1", "add5915e6acfc6ab5836e1fd8a5e21c6488536a8c1f21f386eeb3bf280b702d7"),
    Jar(_BOUNCY_CASTLE, "bcutil-jdk18on", "1.78.1", "d9fa56f97b0f761ce3bc8d9d74c5d7137a987bf5bd3abfe1003f9bafa45a1d2f"),
    Jar(_BOUNCY_CASTLE, "bcpkix-jdk18on", "1.78.1", "4b48ea084e5232b9d79ebca1887b9de037b124931807cd60710748c2aee08cc9"),
)
SETTINGS = {
    "yarn.resourcemanager.scheduler.class": "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler",
    "yarn.nodemanager.vmem-check-enabled": "false",  # Java reserves more address space than it uses
    "yarn.nodemanager.pmem-check-enabled": "false",  # Python's workers are counted too, and the executors of a test are small
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
    "yarn.scheduler.minimum-allocation-mb": "256",
    "yarn.minicluster.yarn.nodemanager.resource.memory-mb": "4096",
}


class YarnCluster:
    """The process of the cluster. `configuration` is the folder for HADOOP_CONF_DIR."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.configuration = folder, folder / "conf"
        self.configuration.mkdir(parents=True)
        place = jars.own_folder().parent / "yarn"
        if not all((place / jar.file).is_file() for jar in JARS):
            jars.resolve(place, jars=JARS)
        environment = {**os.environ, "SPARK_DIST_CLASSPATH": os.pathsep.join(str(place / jar.file) for jar in JARS)}
        environment["PATH"] = (
            f"{sys.base_prefix}/bin{os.pathsep}{environment['PATH']}"  # as on a machine of a cluster: the interpreter alone
        )
        environment.setdefault("JAVA_HOME", str(Path(shutil.which("java") or "").resolve().parents[1]))  # containers are started with it
        self._log = folder / "cluster.log"
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "tests.yarn_cluster", str(folder)]
            root = Path(__file__).parents[1]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, cwd=root)
        try:
            until(self._is_ready, "the cluster does not start", 120)
        except BaseException:
            self.end()
            raise

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text(errors="replace")
        return (self.configuration / "yarn-site.xml").exists()

    def logs(self) -> str:
        """Return the output of the containers."""
        return "\n".join(file.read_text(errors="replace") for file in self.folder.rglob("stderr"))

    def end(self) -> None:
        """End the cluster and its containers."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)


def run(folder: Path) -> None:
    """Run the cluster until stdin is closed. Its configuration is written when a node manager has joined it."""
    from pyspark.java_gateway import launch_gateway

    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-java-options -Dtest.build.data={folder} pyspark-shell"
    os.chdir(folder)
    gateway = launch_gateway()
    yarn = gateway.jvm.org.apache.hadoop.yarn
    configuration = yarn.conf.YarnConfiguration()
    for name, value in SETTINGS.items():
        configuration.set(name, value)
    cluster = yarn.server.MiniYARNCluster("yarn", 1, 1, 1)
    cluster.init(configuration)
    cluster.start()
    assert cluster.waitForNodeManagersToConnect(60_000)
    written = gateway.jvm.java.io.FileOutputStream(str(folder / "yarn-site.part"))
    cluster.getConfig().writeXml(written)
    written.close()
    (folder / "yarn-site.part").rename(folder / "conf" / "yarn-site.xml")
    sys.stdin.read()
    cluster.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
