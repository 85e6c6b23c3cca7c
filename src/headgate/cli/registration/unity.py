"""Unity Catalog as an `ExternalCatalog`: the open source server and Databricks have the same HTTP interface.

The tables are external Delta tables. The interface cannot alter a table, so `put` removes a table and creates it again. If that fails
between the two, the next round creates it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from headgate.cli.registration.external_catalog import SOURCE, CatalogError, ExternalTable, spark_type

API = "/api/2.1/unity-catalog"
TOKEN_VARIABLE = "HEADGATE_UNITY_TOKEN"  # noqa: S105
"""The environment variable with the bearer token, if the server needs one."""
TIMEOUT_SECONDS = 60.0
_TYPE_NAMES = {"integer": "INT"}
"""The names of Delta's types that the interface spells in another way than in upper case."""


class UnityCatalog:
    """A connection to a catalog at an address such as ``https://host:port/catalog``."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._catalog = parts.path.strip("/")
        if parts.scheme not in ("http", "https") or not parts.hostname or not self._catalog or parts.username is not None:
            raise CatalogError("the address of Unity Catalog must have the form https://host:port/catalog, without a user name")
        connection = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        with _errors():
            self._connection = connection(parts.hostname, parts.port, timeout=TIMEOUT_SECONDS)
        token = os.environ.get(TOKEN_VARIABLE)
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def tables(self, schema: str) -> Mapping[str, Mapping[str, str]]:
        """See `ExternalCatalog`."""
        try:
            tables = list(self._pages("tables", catalog_name=self._catalog, schema_name=schema))
        except _Missing:
            return {}
        return {table["name"]: table.get("properties") or {} for table in tables}

    def schemas(self, source: str) -> Sequence[str]:
        """See `ExternalCatalog`."""
        schemas = self._pages("schemas", catalog_name=self._catalog)
        return [schema["name"] for schema in schemas if (schema.get("properties") or {}).get(SOURCE) == source]

    def create_schema(self, name: str, source: str) -> None:
        """See `ExternalCatalog`."""
        try:
            self._request("GET", f"schemas/{quote(f'{self._catalog}.{name}')}")
        except _Missing:
            self._request("POST", "schemas", {"name": name, "catalog_name": self._catalog, "properties": {SOURCE: source}})

    def put(self, table: ExternalTable, *, exists: bool) -> None:
        """See `ExternalCatalog`."""
        if exists:
            self.remove(table.schema, table.name)
        described = {
            "name": table.name, "catalog_name": self._catalog, "schema_name": table.schema, "table_type": "EXTERNAL",
            "data_source_format": "DELTA", "storage_location": table.location.replace("s3a://", "s3://", 1),
            "columns": [_column(position, field) for position, field in enumerate(table.fields)], "properties": dict(table.parameters),
        }  # fmt: skip
        self._request("POST", "tables", described)

    def remove(self, schema: str, name: str) -> None:
        """See `ExternalCatalog`."""
        with contextlib.suppress(_Missing):
            self._request("DELETE", f"tables/{quote(f'{self._catalog}.{schema}.{name}')}")

    def _pages(self, kind: str, **parameters: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of a kind, page by page."""
        while True:
            answer = self._request("GET", f"{kind}?{urlencode(parameters)}")
            yield from answer.get(kind) or ()
            if not answer.get("next_page_token"):
                return
            parameters["page_token"] = answer["next_page_token"]

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to a request. Raise `_Missing` if the server does not have the object."""
        with _errors():
            self._connection.request(method, f"{API}/{path}", None if body is None else json.dumps(body), self._headers)
            response = self._connection.getresponse()
            text = response.read()
            is_json = response.headers.get_content_type() == "application/json"  # the answer to DELETE is plain text
            answer: dict[str, Any] = json.loads(text) if is_json else {}
        if response.status == http.HTTPStatus.NOT_FOUND:
            raise _Missing(_report(response.status, answer))
        if not http.HTTPStatus.OK <= response.status < http.HTTPStatus.MULTIPLE_CHOICES:
            raise CatalogError(_report(response.status, answer))
        return answer


class _Missing(CatalogError):
    """The server does not have the object, or its catalog or schema."""


def _report(status: int, answer: Mapping[str, Any]) -> str:
    return f"Unity Catalog reports: {answer.get('message') or http.HTTPStatus(status).phrase}"


def _column(position: int, field: Mapping[str, Any]) -> dict[str, Any]:
    """Return a column of Delta's schema as the interface describes it. `type_json` is the field itself."""
    kind = field["type"]
    base = kind.partition("(")[0] if isinstance(kind, str) else kind["type"]
    return {
        "name": field["name"], "type_text": spark_type(kind), "type_name": _TYPE_NAMES.get(base, base.upper()),
        "type_json": json.dumps(field), "position": position, "nullable": field["nullable"],
    }  # fmt: skip


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Raise errors of the connection, and answers that are not JSON, as CatalogError."""
    try:
        yield
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CatalogError(f"could not call Unity Catalog: {error}") from error
