"""Azure Blob Storage, for accounts with a flat namespace. Python accesses it through obstore, Java through Hadoop's ABFS.

Made by `object_store`. The setting `data_location_credentials` names the source of the credentials: ``env:ACCOUNT_KEY`` or
``env:TENANT_ID,CLIENT_ID,CLIENT_SECRET`` (names of environment variables), or ``file:/a/file`` (section ``default``, with ``account_key``,
``sas_token``, or all of ``tenant_id``, ``client_id``, ``client_secret``). Without it, both clients use the workload identity of Kubernetes
(AZURE_FEDERATED_TOKEN_FILE, AZURE_TENANT_ID, AZURE_CLIENT_ID). If there is no such file, they use the identity of the machine
(AZURE_CLIENT_ID selects it). These are the two ways that both clients support. Java gets them with its other settings (`spark_session`).

Invariant: the credentials of both clients name their kind, so that an environment variable that only obstore reads does not make
them differ. Both use the Blob endpoint, which Hadoop's authors recommend for a flat namespace (an account's other one is DFS). Their client
rejects an account with a hierarchical namespace there. Java marks folders by empty files with the folders' names. They are listed with a
slash at the end, so that they are removed together with a folder.
"""

from __future__ import annotations

import base64
import binascii
import configparser
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headgate.errors import PostgresError
from headgate.storage.location.object_store import credentials as named_credentials
from headgate.storage.location.object_store.credentials import NoCredentialsError
from headgate.storage.location.object_store.obstore_requests import ObstoreRequests

if TYPE_CHECKING:
    from upath import UPath

_PLACE = re.compile(r"([a-z0-9](?:-?[a-z0-9]){2,62})@([a-z0-9]{3,24})\.dfs\.core\.windows\.net(/(?!\.)[\w.=-]*[\w=-])+/?", re.ASCII)
"""A container, an account and a prefix. No name in it ends with a dot, because the store strips those."""
_OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2."
_AUTHORITY = "https://login.microsoftonline.com"
_PLAIN_HTTP = "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem"
"""The client of ``abfs://``, which does not require TLS."""
_REDACTED = "(?i)secret|password|token|access[.]?key|credential|account[.]?key"
"""The settings whose values Spark redacts (in event logs, web interface): its own pattern, which misses an account key, extended."""
_HINT = (
    "It names environment variables, env:ACCOUNT_KEY or env:TENANT_ID,CLIENT_ID,CLIENT_SECRET, or a file, file:/path, "
    "with a section [default] that has account_key, or sas_token, or tenant_id, client_id and client_secret."
)
_KINDS = (("account_key",), ("sas_token",), ("tenant_id", "client_id", "client_secret"))
_FORMS = {"sas_token": r"[!-~]*\bsig=[!-~]+", "tenant_id": r"[\w.-]+", "client_id": r"[\w.-]+", "client_secret": r"[!-~]+"}


@dataclass(frozen=True)
class Credentials:
    """The credentials of a node. Each kind has its own fields, and no others."""

    account_key: str = field(default="", repr=False)
    sas_token: str = field(default="", repr=False)
    tenant_id: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    token_file: str = ""

    def of_python(self) -> dict[str, str]:
        if self.account_key:
            return {"credential_type": "access_key", "account_key": self.account_key}
        if self.sas_token:
            return {"credential_type": "sas_token", "sas_key": self.sas_token}
        identity = {"tenant_id": self.tenant_id, "client_id": self.client_id, "authority_host": _AUTHORITY}
        if self.client_secret:
            return identity | {"credential_type": "client_secret", "client_secret": self.client_secret}
        if self.token_file:
            return identity | {"credential_type": "workload_identity", "federated_token_file": self.token_file}
        return {"credential_type": "managed_identity"} | ({"client_id": self.client_id} if self.client_id else {})

    def of_java(self) -> dict[str, str]:
        """Return the settings of Hadoop's client."""
        if self.account_key:
            return {"account.auth.type": "SharedKey", "account.key": self.account_key}
        if self.sas_token:
            return {"account.auth.type": "SAS", "sas.fixed.token": self.sas_token}
        settings = {"account.auth.type": "OAuth"} | ({"account.oauth2.client.id": self.client_id} if self.client_id else {})
        if self.client_secret:
            return settings | {
                "account.oauth.provider.type": f"{_OAUTH}ClientCredsTokenProvider",
                "account.oauth2.client.endpoint": f"{_AUTHORITY}/{self.tenant_id}/oauth2/token",
                "account.oauth2.client.secret": self.client_secret,
            }
        if self.token_file:
            return settings | {
                "account.oauth.provider.type": f"{_OAUTH}WorkloadIdentityTokenProvider",
                "account.oauth2.msi.tenant": self.tenant_id,
                "account.oauth2.token.file": self.token_file,
            }
        return settings | {"account.oauth.provider.type": f"{_OAUTH}MsiTokenProvider"}


class AzureStorage(ObstoreRequests):
    """Azure Blob Storage; see `Store`."""

    name = "azure"
    title = "Azure Blob Storage"
    scheme = "abfss"
    example = "abfss://container@account.dfs.core.windows.net/prefix"
    _of_tag = ("e_tag",)
    _marks_listed = True

    def is_place(self, place: str) -> bool:
        return _PLACE.fullmatch(place) is not None

    def path(self, uri: str, settings: Mapping[str, str]) -> UPath:
        container, account = _parts(uri)
        endpoint = _emulator(settings)
        config = {
            "container_name": container,
            "account_name": account,
            # ignore environment variables for these two
            "use_emulator": "false",
            "skip_signature": "false",
            "endpoint": f"{endpoint}/{account}" if endpoint else f"https://{account}.blob.core.windows.net",
        }
        return self._path_of(uri, config | credentials(settings).of_python(), endpoint)

    def spark_settings(self, settings: Mapping[str, str], scratch: Path) -> dict[str, str]:
        _, account = _parts(settings["data_location"])
        options = {
            "fs.azure.fns.account.service.type": "BLOB",
            "fs.azure.buffer.dir": str(scratch),
            # the other mode needs OpenSSL, whose jar is not included
            "fs.azure.ssl.channel.mode": "Default_JSSE",
            "fs.azure.io.retry.max.retries": "5",  # the default of 30 takes a quarter of an hour
        }
        if endpoint := _emulator(settings):
            options |= {"fs.azure.abfs.endpoint": urlsplit(endpoint).netloc, "fs.azure.account.hns.enabled": "false"}
            if endpoint.startswith("http://"):
                options |= {"fs.abfss.impl": _PLAIN_HTTP, "fs.azure.always.use.https": "false"}
        for name, value in credentials(settings).of_java().items():
            options[f"fs.azure.{name}.{account}.dfs.core.windows.net"] = value
        return {"spark.redaction.regex": _REDACTED} | {f"spark.hadoop.{name}": value for name, value in options.items()}


def _parts(uri: str) -> tuple[str, str]:
    """Return the container and the account of a location, or of a path below it."""
    container, _, rest = uri.partition("://")[2].partition("@")
    return container, rest.partition(".")[0]


def _emulator(settings: Mapping[str, str]) -> str:
    """Return the address of an emulator, which has the accounts as folders, or an empty string. Raise 22023 for other values."""
    endpoint = settings.get("data_location_endpoint", "").rstrip("/")
    if endpoint and not re.fullmatch(r"https?://[\w.-]+:\d{1,5}", endpoint, re.ASCII):
        raise PostgresError(
            "22023",
            'invalid value for parameter "data_location_endpoint"',
            hint='Of Azure Blob Storage it is the address of an emulator, "http://host:port"; where there is none it is empty.',
        )
    return endpoint


def credentials(settings: Mapping[str, str]) -> Credentials:
    """Return the credentials that the setting names, by default the machine's. Raise 22023 or F0000 if they are not available."""
    source = named_credentials.find(settings, _HINT, names=(1, 3))
    if source is None:
        return _of_machine(os.environ)
    if source.file is not None:
        return named_credentials.read(source.file, _of_file)
    try:
        return _check_credentials(dict(zip(_KINDS[0] if len(source.variables) == 1 else _KINDS[2], source.variables, strict=True)))
    except NoCredentialsError as error:
        raise named_credentials.invalid(f"The variables hold no credentials. {error}") from None


def _of_machine(environment: Mapping[str, str]) -> Credentials:
    """Return the workload identity that Kubernetes has put into the environment, or the machine's own identity."""
    client, file = environment.get("AZURE_CLIENT_ID", ""), environment.get("AZURE_FEDERATED_TOKEN_FILE", "")
    tenant = environment.get("AZURE_TENANT_ID", "")
    return Credentials(client_id=client, tenant_id=tenant, token_file=file) if file and tenant and client else Credentials(client_id=client)


def _of_file(text: str) -> Credentials:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
        return _check_credentials({name: value for name, value in parser["default"].items() if value})
    except (configparser.Error, KeyError):  # their messages contain lines of the file
        raise NoCredentialsError("It has a section [default].") from None


def _check_credentials(fields: dict[str, str]) -> Credentials:
    """Return a source's credentials if they are of one kind and well formed: clients print values that they cannot parse."""
    if tuple(fields) not in _KINDS and set(fields) != set(_KINDS[2]):
        raise NoCredentialsError(f"It has one of: {'; '.join(', '.join(kind) for kind in _KINDS)}.")
    if "sas_token" in fields:
        fields["sas_token"] = fields["sas_token"].removeprefix("?")
    for name, value in fields.items():
        if not (_is_key(value) if name == "account_key" else re.fullmatch(_FORMS[name], value, re.ASCII)):
            raise NoCredentialsError(f"What it has is no {name}.")
    return Credentials(**fields)


def _is_key(value: str) -> bool:
    try:
        return bool(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        return False
