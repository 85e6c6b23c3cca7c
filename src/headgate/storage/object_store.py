"""How the object store of a data location is reached: its address, and credentials that stand in no setting.

`data_location` makes paths of it, `spark_session` what Java's file system takes. The setting `data_location_credentials` names where the
credentials are, ``env:ACCESS_KEY,SECRET_KEY[,SESSION_TOKEN]`` (names of environment variables) or ``file:/a/file`` (as AWS's own
tools have it, section ``default``); without it both clients go the usual way: environment, web identity, profile, the machine's role. What
must hold: no credential gets into the log, an error, SHOW or a command line. Java gets them with its other settings, in a file that
only the node's user can read and that is gone when it has started.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.errors import PostgresError

if TYPE_CHECKING:
    from upath import UPath

SCHEME = "s3a://"
SETTING = "data_location_credentials"
_CHAIN = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
_NAMED = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
_TEMPORARY = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
_OTHERS_MAY = 0o077
MODULES = "upath.implementations.cloud,s3fs"
"""What a process imports that asks the store for something: a quarter of a second."""
BLOCK = 1 << 20
"""What is read at once of a file of which only parts are wanted."""
RETRIES = {"mode": "standard", "max_attempts": 2}
CONNECT_SECONDS, READ_SECONDS = 5, 30
"""How long the store may take to take a connection, and to answer."""


@dataclass(frozen=True)
class Credentials:
    """An access key with its secret."""

    key: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


def is_named(settings: Mapping[str, str]) -> bool:
    """Whether data_location names an object store; 22023 where it names one that is not known."""
    given = settings.get("data_location", "")
    if "://" in given and not (given.startswith(SCHEME) and given.removeprefix(SCHEME).strip("/")):
        raise PostgresError(
            "22023",
            f'invalid value for parameter "data_location": "{given}"',
            hint='It names a folder, or a prefix of an object store: "s3a://bucket/prefix".',
        )
    return given.startswith(SCHEME)


def path(given: str, settings: Mapping[str, str]) -> UPath:
    """A path of the store, by its URI."""
    from upath import UPath

    options: dict[str, Any] = {
        "use_listings_cache": False,
        "max_concurrency": 1,
        "default_block_size": BLOCK,
        "config_kwargs": {"connect_timeout": CONNECT_SECONDS, "read_timeout": READ_SECONDS, "max_pool_connections": 32, "retries": RETRIES},
    }
    endpoint, region = settings.get("data_location_endpoint", ""), settings.get("data_location_region", "")
    if endpoint:
        options["endpoint_url"] = endpoint
        options["config_kwargs"]["s3"] = {"addressing_style": "path"}
    if region:
        options["client_kwargs"] = {"region_name": region}
    named = credentials(settings)
    if named is not None:
        options |= {"key": named.key, "secret": named.secret} | ({"token": named.token} if named.token else {})
    found: UPath = UPath(given.rstrip("/"), **options)
    return found


def spark_settings(settings: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """The same for Java's file system."""
    found = {"buffer.dir": str(scratch), "aws.credentials.provider": _CHAIN}
    endpoint, region = settings.get("data_location_endpoint", ""), settings.get("data_location_region", "")
    if endpoint:
        found |= {"endpoint": endpoint, "path.style.access": "true"}
        found["connection.ssl.enabled"] = "false" if endpoint.startswith("http://") else "true"
    if region:
        found["endpoint.region"] = region
    named = credentials(settings)
    if named is not None:
        found |= {"access.key": named.key, "secret.key": named.secret, "aws.credentials.provider": _NAMED}
        if named.token:
            found |= {"session.token": named.token, "aws.credentials.provider": _TEMPORARY}
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in found.items()}


def credentials(settings: Mapping[str, str]) -> Credentials | None:
    """The credentials that the setting names; None where it names none. 22023, F0000 where they cannot be had."""
    where = settings.get(SETTING, "")
    kind, _, name = where.partition(":")
    match kind:
        case "":
            return None
        case "env":
            return _of_environment(where, name)
        case "file" if name:
            return _of_file(Path(name))
    raise _invalid(where)


def _of_environment(where: str, names: str) -> Credentials:
    wanted = [name.strip() for name in names.split(",")]
    if len(wanted) not in (2, 3) or not all(wanted):
        raise _invalid(where)
    for name in wanted:
        if not os.environ.get(name):
            raise PostgresError("22023", f'environment variable "{name}", which parameter "{SETTING}" names, is not set')
    return Credentials(*(os.environ[name] for name in wanted))


def _of_file(file: Path) -> Credentials:
    try:
        if file.stat().st_mode & _OTHERS_MAY:
            raise PostgresError(
                "F0000", f'credentials file "{file}" has group or world access', detail="It must have permissions u=rw (0600) or less."
            )
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PostgresError("F0000", f'could not read credentials file "{file}": {_reason(error)}') from error
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
        section = parser["default"]
        return Credentials(section["aws_access_key_id"], section["aws_secret_access_key"], section.get("aws_session_token"))
    except (configparser.Error, KeyError):  # what they say shows lines of the file
        raise PostgresError(
            "F0000",
            f'credentials file "{file}" names no credentials',
            hint="It has a section [default] with aws_access_key_id and aws_secret_access_key.",
        ) from None


def _reason(error: Exception) -> str:
    return str(error.strerror) if isinstance(error, OSError) else "it is no text"


def _invalid(where: str) -> PostgresError:
    return PostgresError(
        "22023",
        f'invalid value for parameter "{SETTING}"',  # whoever has written the credentials themselves there sees them nowhere
        hint="It names environment variables, env:ACCESS_KEY,SECRET_KEY[,SESSION_TOKEN], or a file, file:/path.",
    )
