"""The jars that Spark needs in addition to its own: Delta Lake, a local file system that forks no process per file, and the object stores'.

The jars of an object store are fetched when data_location first names one, by ``make setup S3=1 GS=1 AZURE=1`` or by
``headgate fetch-jars s3``. `find_jars` is called when Spark is started (`spark_session`), `ensure` before that by the command line,
`resolve` by ``make setup`` (``python -m headgate.storage.spark.application.jars``, with ``s3 gs azure`` for those of these
stores too). Spark's own dependency resolver (Ivy, through ``spark-submit --packages``) fetches them from Maven Central, or from the
repository in ``spark.jars.ivySettings`` of SPARK_CONF_DIR. The files are compared with the digests below.

Only these jars go on the class path. Their other dependencies come with Spark, in versions that must not be mixed with others.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headgate.errors import PostgresError


@dataclass(frozen=True)
class Jar:
    """One jar by its Maven coordinates. `sha256`: the digest of the file; `classifier`: the part of its name after the version."""

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""

    @property
    def coordinate(self) -> str:
        """Return the coordinate in the form of ``spark.jars.packages``."""
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file(self) -> str:
        """Return the file's name in Maven's repositories and in the node's own folder."""
        return f"{self.artifact}-{self.version}{self.classifier and f'-{self.classifier}'}.jar"

    def places(self, folder: Path) -> Iterator[Path]:
        """Yield the jar's possible paths in the node's own folder, in an Ivy cache's jars, and in a Maven repository."""
        yield folder / self.file
        yield folder / f"{self.group}_{self.file}"
        yield folder.joinpath(*self.group.split("."), self.artifact, self.version, self.file)


_POLL = 0.1
DELTA = "4.4.0"
_OF_SPARK = {
    "4.1": (Jar("io.delta", "delta-spark_4.1_2.13", DELTA, "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10"),),
    "4.2": (
        Jar("io.delta", "delta-spark_4.2_2.13", DELTA, "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead"),
        Jar("io.unitycatalog", "unitycatalog-hadoop", "0.6.0", "c47b63c961c87102b9e1d63809a0915ba4c86b7652f57c8d39ca3a05b441a150"),
    ),
}
"""Delta's jars that are made for one version of Spark."""
_LOCKED = "4.1"


def _of_installed_spark() -> tuple[Jar, ...]:
    """Return Delta's jars for the installed version of pyspark, or for the locked one if there are none for it."""
    version = ".".join(importlib.metadata.version("pyspark").split(".")[:2])
    return _OF_SPARK.get(version, _OF_SPARK[_LOCKED])


JARS = (
    *_of_installed_spark(),
    Jar("io.delta", "delta-storage", DELTA, "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
    Jar("io.delta", "delta-kernel-api", DELTA, "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11"),
    Jar("io.delta", "delta-kernel-defaults", DELTA, "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b"),
    Jar("io.delta", "delta-kernel-unitycatalog", DELTA, "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa"),
    Jar("io.unitycatalog", "unitycatalog-client", "0.6.0", "48257499a86b801a3e2372cec55ac226ca1c1c7eabe5c118e7302f29a1fdbc19"),
    Jar("com.globalmentor", "hadoop-bare-naked-local-fs", "0.1.0", "e0cc30fb0531eb0b59468dc0abf5b257533d2365b5e9f45e795edd707aa78c62"),
)
_AWS_GROUP = "software.amazon.awssdk"
AWS = "2.29.52"
S3_JARS = (
    Jar("org.apache.hadoop", "hadoop-aws", "3.4.2", "d2d24e6b715b5656b9d238bf13b6682a07e2004dd36aad74a73aeb854319f4d9"),
    Jar("org.reactivestreams", "reactive-streams", "1.0.4", "f75ca597789b3dac58f61857b9ac2e1034a68fa672db35055a8fb4509e325f28"),
    Jar(_AWS_GROUP, "annotations", AWS, "8cd8bd8afd7eca5a367f69fd87427f6d9f3e7d359962122da24d71f1963f00cd"),
    Jar(_AWS_GROUP, "apache-client", AWS, "c96494be30ecac6f0ab7a35fdd91a4c77ca8a5daf62f3d9d84644ef0f0524dc6"),
    Jar(_AWS_GROUP, "arns", AWS, "f5a4d1d9b4e4fc63c9bda49bcf1c59d23fd876b276c6b43aaca12969337303a6"),
    Jar(_AWS_GROUP, "auth", AWS, "4d8143b6198dc7a530c2ccdd813129c132b96736086c0d4fea85480b9bdbc5fe"),
    Jar(_AWS_GROUP, "aws-core", AWS, "eb560c064fbaac7e2e7f4a77ac343d3083bea0d7f6e2c69ba022d3f3e859be90"),
    Jar(_AWS_GROUP, "aws-json-protocol", AWS, "0b174a591bac933b72b701c2fc73f73ba5dde790bf7d61ce922d4ba098f62072"),
    Jar(_AWS_GROUP, "aws-query-protocol", AWS, "1b117672963ee5059c45f2aadb110f191b578d108d8f08d7c7a59e6c0b098a8e"),
    Jar(_AWS_GROUP, "aws-xml-protocol", AWS, "daf87b429373ad586d165003b5b1d4fe498c6472eb65ec9a9e2aa7d56f3917dd"),
    Jar(_AWS_GROUP, "checksums", AWS, "bca99ff25c9b917d6be03e5dce78ad5328e7dca485e96024fa8476e4192a800a"),
    Jar(_AWS_GROUP, "checksums-spi", AWS, "21193b9b648843dcaff493f0dd80abab9ee6871b203b9218120554698d8f7b8a"),
    Jar(_AWS_GROUP, "crt-core", AWS, "4e1f33de21b688695fec91b977ddfa99e9d376edcbad06a62b0c138c60b37de4"),
    Jar(_AWS_GROUP, "endpoints-spi", AWS, "e54f246c668d70b55cffe0c8fad18d4465e74e22db75139918bd30610093d1e6"),
    Jar(_AWS_GROUP, "http-auth", AWS, "d8aa3bd376aaec7196396e65fe8755f1fdd169e51357f8128ecdc7d23a687450"),
    Jar(_AWS_GROUP, "http-auth-aws", AWS, "7ae124e81ac0c2860bb61fdde34a388dbe823fef8509dd46a6bec805ada90308"),
    Jar(_AWS_GROUP, "http-auth-aws-eventstream", AWS, "565a4aacce955c5ffaed551f6faaaa958e9e92b2f8514c8482f664edb2bab576"),
    Jar(_AWS_GROUP, "http-auth-spi", AWS, "7a2168c5a7baa856d7ae9f9c4f7522d2db9f1361108c38f5b6ece66f249e6a2d"),
    Jar(_AWS_GROUP, "http-client-spi", AWS, "8ea61ce3b527779fbfe119e0775c4b7cfdf274a979b1e50596a634685a5b6542"),
    Jar(_AWS_GROUP, "identity-spi", AWS, "85104635abf9e5c044aaf7f8951b63efc2ef82051b5ee303571ee2e1fd8b46d0"),
    Jar(_AWS_GROUP, "json-utils", AWS, "2652cdb3668311bcff6e643c8612b9fea266423ae1ce33743c84dd7f77904311"),
    Jar(_AWS_GROUP, "kms", AWS, "b16a020118d30d5ff47680c14c97990d8a7c8c203961764f9bbe1c8f402ec7b7"),
    Jar(_AWS_GROUP, "metrics-spi", AWS, "1db2e3da338148ee40a716e1733c9a5b99e9e6daa4db3aa8bd7e718adafa2510"),
    Jar(_AWS_GROUP, "profiles", AWS, "fef84619d101838ba45f48d0caddb09a85d9ed8bf869095bd7d2064796856cf7"),
    Jar(_AWS_GROUP, "protocol-core", AWS, "7b32e41a3743b422d2edec1670f60b4c1e512fcd5ab7a53fef20742d6b9104d1"),
    Jar(_AWS_GROUP, "regions", AWS, "5ee0e26277c679ffa70d83923b0d5f77a53066ecde8610f28be1856947d60eaf"),
    Jar(_AWS_GROUP, "retries", AWS, "ca3752ba31399721980c6398992921ff5aa164e084b4c14484333df58c76a353"),
    Jar(_AWS_GROUP, "retries-spi", AWS, "a4218ea742fc9e07a620629d7a258bfd92b8ea3ef75f1b99193d0898ca3efe99"),
    Jar(_AWS_GROUP, "s3", AWS, "abaedea7e68063e9c4ab090f80d14b9884c57b50953bfe6e5acaa23025609efa"),
    Jar(_AWS_GROUP, "s3-transfer-manager", AWS, "0c9e654637247187a7e2494eb7a8799477a772a7d554cd3ae787cd3e3bae3c55"),
    Jar(_AWS_GROUP, "sdk-core", AWS, "ea8e9856569f85075a8a806d0481c4bd848c98b24fd6d706fc0b5883fc4604dc"),
    Jar(_AWS_GROUP, "sts", AWS, "6495d0457f4e4c3724d8c9c5fe4f6f98c9530a22f92449c4cca5fd03622e4edb"),
    Jar(_AWS_GROUP, "third-party-jackson-core", AWS, "eaece3eb60beb8ec09d8a4f48d5bff4110010b03cc23688bdcf2af2eb075cac6"),
    Jar(_AWS_GROUP, "utils", AWS, "f150a38f2fec14ced2de6459bfe804f647c88baa573b218646ef89b436a29d42"),
    Jar("software.amazon.eventstream", "eventstream", "1.0.1", "0c37d8e696117f02c302191b8110b0d0eb20fa412fce34c3a269ec73c16ce822"),
)
"""The additional jars for S3: Hadoop's S3A and the modules of the AWS SDK that it calls, as the whole SDK has 600 MB."""
_CONNECTOR_DIGEST = "dfb5832738686436e597026a8e4bab01aa22e75ebfb15d37d096981f6599d73c"
GS_JARS = (Jar("com.google.cloud.bigdataoss", "gcs-connector", "4.0.4", _CONNECTOR_DIGEST, "shaded"),)
"""The jars for Google Cloud Storage: its Hadoop connector, with its libraries under relocated names."""
AZURE_JARS = (Jar("org.apache.hadoop", "hadoop-azure", "3.4.2", "f02ab756037abaecc45ea1869144ad3a69e25ccd84062bc37805837ca254e21c"),)
"""The jars for Azure: Hadoop's client. Of its declared dependencies, only its older client WASB calls those that Spark lacks."""
STORE_JARS = {"s3": S3_JARS, "gs": GS_JARS, "azure": AZURE_JARS}
"""The jars by the name of the object store (`object_store.Store`)."""
# Dependencies that the jars declare and that Spark already has (Ivy's patterns of group:artifact).
_WITH_SPARK = (
    "com.fasterxml.*:*",
    "com.google.*:*",
    "jakarta.*:*",
    "org.antlr:*",
    "org.apache.*:*",
    "org.openapitools:*",
    "org.roaringbitmap:*",
    "org.slf4j:*",
)
# Excluded for Hadoop's clients: their jars are listed completely above.
_ALONE = (
    "com.microsoft.azure:*",
    "commons-*:*",
    "io.netty:*",
    "org.apache.hadoop.thirdparty:*",
    "org.apache.httpcomponents:*",
    "org.eclipse.jetty:*",
    "org.slf4j:*",
    "org.wildfly.openssl:*",
    "software.amazon.s3.*:*",
    "software.amazon.awssdk:bundle",
    "software.amazon.awssdk:netty-nio-client",
)


def own_folder() -> Path:
    """Return the folder for fetched jars: in the Python installation, or in the user's cache if that is not writable."""
    prefix = Path(sys.prefix)
    if os.access(prefix, os.W_OK):
        return prefix / "share" / "headgate" / "jars"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headgate" / "jars"


def _folders() -> list[Path]:
    """Return the folders to search. If HEADGATE_JARS is set, it is the only one."""
    folder = os.environ.get("HEADGATE_JARS")
    if folder:
        return [Path(folder)]
    home = Path.home()
    return [Path(sys.prefix) / "share" / "headgate" / "jars", own_folder(), home / ".ivy2.5.2" / "jars", home / ".m2" / "repository"]


def find_jars(jars: Sequence[Jar] = JARS) -> list[Path]:
    """Return the paths of all jars, in the order of the class path. Raise 58P01 for the first that is missing."""
    paths = []
    folders = _folders()
    for jar in jars:
        path = next((place for folder in folders for place in jar.places(folder) if place.is_file()), None)
        if path is None:
            jars_folder = os.environ.get("HEADGATE_JARS")
            raise PostgresError(
                "58P01",
                f'could not find "{jar.file}"',
                detail=f"Looked in {', '.join(str(folder) for folder in dict.fromkeys(folders))}.",
                hint=f"HEADGATE_JARS is set to {jars_folder}; unset it, or put the jar there."
                if jars_folder
                else 'Run "make setup" or "python -m headgate.storage.spark.application.jars" with access to Maven Central, '
                "or set HEADGATE_JARS to a folder that has the jars.",
            )
        paths.append(path)
    return paths


def ensure(jars: Sequence[Jar] = JARS) -> list[Path]:
    """Return the paths of all jars, fetching missing ones. A folder named by HEADGATE_JARS is never written to."""
    try:
        return find_jars(jars)
    except PostgresError:
        if os.environ.get("HEADGATE_JARS"):
            raise
        resolve(jars=jars)
        return find_jars(jars)


def resolve(target: Path | None = None, tell: Callable[[int, int], None] = lambda _done, _all: None, jars: Sequence[Jar] = JARS) -> None:
    """Fetch jars (by default those of a node) into `target` (`own_folder`). Raise 58000 with the resolver's last output on failure.

    `tell` is called every 0.1 s with the number of fetched jars and their total.
    """
    target = target or own_folder()
    with tempfile.TemporaryDirectory(prefix="headgate-jars-") as scratch:
        folder = Path(scratch)
        program = folder / "nothing.py"
        program.write_text("")
        command = [
            str(_spark_home() / "bin" / "spark-submit"),
            "--master",
            "local[1]",
            "--conf",
            f"spark.jars.ivy={folder / 'ivy'}",
            "--packages",
            ",".join(jar.coordinate for jar in jars),
            *(_with_classifier(folder, jars) or ("--exclude-packages", ",".join(_exclusions(jars)))),
            str(program),
        ]
        # its own home folder: Ivy fails on a partly filled ~/.m2 instead of asking Maven Central
        options = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Duser.home={folder}"
        environment = {**os.environ, "SPARK_SUBMIT_OPTS": options, "PYSPARK_DRIVER_PYTHON": sys.executable}
        output_file = folder / "said"
        with (
            output_file.open("w") as output,
            subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=folder) as process,
        ):
            while process.poll() is None:
                tell(sum(1 for _ in (folder / "ivy").glob("cache/**/*.jar")), len(jars))
                time.sleep(_POLL)
        if process.returncode:
            last = "\n".join([line for line in output_file.read_text(errors="replace").splitlines() if line.strip()][-15:])
            raise PostgresError(
                "58000",
                f'could not fetch "{jars[0].file}" from Maven Central',
                detail=last,
                hint="Check the network, or set HEADGATE_JARS to a folder that has the jars.",
            )
        _take(folder / "ivy" / "jars", target, jars)


def _exclusions(jars: Sequence[Jar]) -> tuple[str, ...]:
    """Return the dependencies that are not fetched with these jars. Ivy would exclude a jar itself, too, if its group is among them."""
    return _ALONE if any(jar.group.startswith("org.apache.") for jar in jars) else _WITH_SPARK


def _with_classifier(folder: Path, jars: Sequence[Jar]) -> list[str]:
    """Return options with which Ivy finds jars with a classifier, which Spark's coordinates cannot name, without dependencies.

    They then come from Maven Central, regardless of SPARK_CONF_DIR. If that cannot be reached, use HEADGATE_JARS.
    """
    classifiers = {jar.classifier for jar in jars} - {""}
    if not classifiers:
        return []
    [classifier] = classifiers
    settings = folder / "ivysettings.xml"
    pattern = f"[organisation]/[module]/[revision]/[artifact]-[revision]-{classifier}.[ext]"
    resolver = f'<ibiblio name="central" m2compatible="true" usepoms="false" pattern="{pattern}"/>'
    settings.write_text(
        f'<ivysettings><settings defaultResolver="central"/><resolvers>{resolver}</resolvers></ivysettings>', encoding="utf-8"
    )
    return ["--conf", f"spark.jars.ivySettings={settings}"]


def _take(fetched: Path, target: Path, jars: Sequence[Jar]) -> None:
    """Check each jar's digest and move it to its folder. Raise 58000 if it is missing or differs."""
    target.mkdir(parents=True, exist_ok=True)
    for jar in jars:
        # Ivy stores a jar with a classifier under the name without it
        fetched_as = replace(jar, classifier="")
        path = next((place for place in fetched_as.places(fetched) if place.is_file()), None)
        if path is None:
            raise PostgresError("58000", f'Maven Central gave no "{jar.file}"')
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest != jar.sha256:
            raise PostgresError("58000", f'"{jar.file}" is not the file that was expected', detail=f"Its SHA-256 digest is {digest}.")
        part = target / f"{jar.file}.part"
        shutil.copyfile(path, part)
        part.replace(target / jar.file)


def _spark_home() -> Path:
    """Return the folder of pyspark, without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PostgresError("58P01", 'could not find the Python package "pyspark"')
    return Path(os.environ.get("SPARK_HOME") or Path(spec.origin).parent)


def main() -> None:
    """Fetch the jars missing from `own_folder`: ``python -m headgate.storage.spark.application.jars [s3] [gs] [azure]``."""
    try:
        for jars in (JARS, *(STORE_JARS[name] for name in sys.argv[1:])):
            if not all((own_folder() / jar.file).is_file() for jar in jars):
                resolve(jars=jars)
    except PostgresError as error:
        sys.exit("\n".join(line for line in (error.message, error.detail, error.hint) if line))


if __name__ == "__main__":
    main()
