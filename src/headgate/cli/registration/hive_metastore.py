"""A Hive metastore as an `ExternalCatalog`: Hive's own client, in a Java of this process.

The client is among the jars of PySpark. Spark and Trino read such a table as an external Delta table: its columns are those of Delta's log.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from py4j.java_gateway import JavaGateway, JavaObject
from py4j.protocol import Py4JError

from headgate.cli.registration.external_catalog import (
    INPUT_FORMAT,
    OUTPUT_FORMAT,
    SERIALIZATION,
    SOURCE,
    CatalogError,
    ExternalTable,
    hive_columns,
    table_parameters,
)

_JAVA = (
    "-Xmx256m",
    "-Dlog4j2.contextSelector=org.apache.logging.log4j.core.selector.BasicContextSelector",  # Hive's default needs a jar that is not here
    "-Dlog4j2.level=ERROR",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.net", "java.util")),
)


class HiveMetastore:
    """A connection to the metastore at a URI such as ``thrift://host:9083``."""

    def __init__(self, uri: str) -> None:
        spark = find_spec("pyspark")
        assert spark is not None
        assert spark.origin is not None
        self._gateway = JavaGateway.launch_gateway(
            classpath=str(Path(spark.origin).parent / "jars" / "*"), javaopts=list(_JAVA), die_on_exit=True
        )
        self._hive = self._gateway.jvm.org.apache.hadoop.hive
        configuration = self._hive.conf.HiveConf()
        for name, value in (("hive.metastore.uris", uri), ("hive.metastore.connect.retries", "1"), ("hive.execution.engine", "mr")):
            configuration.set(name, value)
        try:
            with _errors():
                self._client = self._hive.metastore.HiveMetaStoreClient(configuration)
        except CatalogError:
            self.close()
            raise

    def close(self) -> None:
        """End the connection, and Java."""
        self._gateway.shutdown()

    def tables(self, schema: str) -> Mapping[str, Mapping[str, str]]:
        """See `ExternalCatalog`."""
        with _errors():
            names = self._client.getAllTables(schema)
            return {table.getTableName(): dict(table.getParameters()) for table in self._client.getTableObjectsByName(schema, names)}

    def schemas(self, source: str) -> Sequence[str]:
        """See `ExternalCatalog`."""
        with _errors():
            names = list(self._client.getAllDatabases())
            return [name for name in names if dict(self._client.getDatabase(name).getParameters() or {}).get(SOURCE) == source]

    def create_schema(self, name: str, source: str) -> None:
        """See `ExternalCatalog`."""
        with _errors():
            if name not in list(self._client.getAllDatabases()):
                database = self._hive.metastore.api.Database()
                database.setName(name)
                database.setParameters(self._map({SOURCE: source}))
                self._client.createDatabase(database)

    def put(self, table: ExternalTable, *, exists: bool) -> None:
        """See `ExternalCatalog`."""
        with _errors():
            described = self._form_of(table)
            if exists:
                self._client.alter_table(table.schema, table.name, described)
            else:
                self._client.createTable(described)

    def remove(self, schema: str, name: str) -> None:
        """See `ExternalCatalog`."""
        with _errors():
            self._client.dropTable(schema, name, False, True)  # keep the files, ignore a missing table

    def _form_of(self, table: ExternalTable) -> JavaObject:
        api = self._hive.metastore.api
        form = api.SerDeInfo()
        form.setSerializationLib(SERIALIZATION)
        form.setParameters(self._map({"path": table.location, "serialization.format": "1"}))
        storage = api.StorageDescriptor()
        columns = self._gateway.jvm.java.util.ArrayList()
        for name, kind in hive_columns(table):
            columns.add(api.FieldSchema(name, kind, ""))
        storage.setCols(columns)
        storage.setLocation(table.location)
        storage.setInputFormat(INPUT_FORMAT)
        storage.setOutputFormat(OUTPUT_FORMAT)
        storage.setSerdeInfo(form)
        described = api.Table()
        described.setDbName(table.schema)
        described.setTableName(table.name)
        described.setTableType("EXTERNAL_TABLE")
        described.setSd(storage)
        described.setPartitionKeys(self._gateway.jvm.java.util.ArrayList())
        described.setParameters(self._map(table_parameters(table) | {"DO_NOT_UPDATE_STATS": "true"}))
        return described

    def _map(self, values: Mapping[str, str]) -> JavaObject:
        java_map = self._gateway.jvm.java.util.HashMap()
        for name, value in values.items():
            java_map.put(name, value)
        return java_map


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Raise errors of the metastore, or of the connection to it, as CatalogError."""
    try:
        yield
    except (Py4JError, OSError) as error:
        java = getattr(error, "java_exception", None)
        text = str(error) if java is None else java.toString()
        raise CatalogError(f"the Hive metastore reports: {text.splitlines()[0]}") from error
