"""AWS Glue's data catalog as an `ExternalCatalog`, through botocore.

Credentials and region are those of AWS's default chain (environment, profile, machine). ``AWS_ENDPOINT_URL_GLUE`` names another server.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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


class Glue:
    """A connection to the data catalog of an account, or of the default one."""

    def __init__(self, account: str | None) -> None:
        try:
            import botocore.session
        except ImportError as error:
            raise CatalogError('AWS Glue needs the package "botocore"') from error
        self._account = {} if account is None else {"CatalogId": account}
        with _errors():
            self._client = botocore.session.get_session().create_client("glue")

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def _pages(self, operation: str, key: str, **request: str) -> list[dict[str, Any]]:
        return [item for page in self._client.get_paginator(operation).paginate(**request, **self._account) for item in page[key]]

    def tables(self, schema: str) -> Mapping[str, Mapping[str, str]]:
        """See `ExternalCatalog`."""
        with _errors():
            try:
                entries = self._pages("get_tables", "TableList", DatabaseName=schema)
            except self._client.exceptions.EntityNotFoundException:
                return {}
            return {table["Name"]: table.get("Parameters", {}) for table in entries}

    def schemas(self, source: str) -> Sequence[str]:
        """See `ExternalCatalog`."""
        with _errors():
            entries = self._pages("get_databases", "DatabaseList")
            return [database["Name"] for database in entries if database.get("Parameters", {}).get(SOURCE) == source]

    def create_schema(self, name: str, source: str) -> None:
        """See `ExternalCatalog`."""
        with _errors(), contextlib.suppress(self._client.exceptions.AlreadyExistsException):
            self._client.create_database(DatabaseInput={"Name": name, "Parameters": {SOURCE: source}}, **self._account)

    def put(self, table: ExternalTable, *, exists: bool) -> None:
        """See `ExternalCatalog`."""
        location = table.location.replace("s3a://", "s3://", 1)
        storage = {
            "Columns": [{"Name": name, "Type": kind} for name, kind in hive_columns(table)], "Location": location,
            "InputFormat": INPUT_FORMAT, "OutputFormat": OUTPUT_FORMAT,
            "SerdeInfo": {"SerializationLibrary": SERIALIZATION, "Parameters": {"path": location}},
        }  # fmt: skip
        described = {
            "Name": table.name, "TableType": "EXTERNAL_TABLE", "StorageDescriptor": storage, "Parameters": table_parameters(table)
        }  # fmt: skip
        with _errors():
            write = self._client.update_table if exists else self._client.create_table
            write(DatabaseName=table.schema, TableInput=described, **self._account)

    def remove(self, schema: str, name: str) -> None:
        """See `ExternalCatalog`."""
        with _errors(), contextlib.suppress(self._client.exceptions.EntityNotFoundException):
            self._client.delete_table(DatabaseName=schema, Name=name, **self._account)


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Raise errors of the service, or of the connection to it, as CatalogError."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise CatalogError(f"AWS Glue reports: {error}") from error
