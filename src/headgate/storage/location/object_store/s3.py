"""Amazon's S3, and stores that speak it: reached by s3fs from Python, by Hadoop's S3A from Java.

Made by `object_store`. The setting `data_location_credentials` names where the credentials are,
``env:ACCESS_KEY,SECRET_KEY[,SESSION_TOKEN]`` (names of environment variables) or ``file:/a/file`` (as AWS's own tools have it, section
``default``); without it both clients go the usual way: environment, web identity, profile, the machine's role. What must hold: no
credential gets into the log, an error, SHOW or a command line. Java gets them with its other settings, in a file that only the node's user
can read and that is gone when it has started.
"""

from __future__ import annotations

import configparser
import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.storage.location.object_store import credentials as named_credentials
from headgate.storage.location.object_store.credentials import NoCredentialsError
from headgate.storage.location.object_store.store import StoredFile

if TYPE_CHECKING:
    from upath import UPath

_CHAIN = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
_NAMED = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
_TEMPORARY = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
BLOCK = 1 << 20
"""What is read at once of a file of which only parts are wanted."""
RETRIES = {"mode": "standard", "max_attempts": 2}
CONNECT_SECONDS, READ_SECONDS = 5, 30
"""How long the store may take to take a connection, and to answer."""
_HINT = "It names environment variables, env:ACCESS_KEY,SECRET_KEY[,SESSION_TOKEN], or a file, file:/path."
_REFUSED = ("PreconditionFailed", "ConditionalRequestConflict")


@dataclass(frozen=True)
class Credentials:
    """An access key with its secret."""

    key: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


class S3:
    """A store that speaks S3; see `Store`."""

    name = "s3"
    title = "S3"
    scheme = "s3a"
    example = "s3a://bucket/prefix"
    modules = "upath.implementations.cloud,s3fs"  # a quarter of a second

    def is_place(self, place: str) -> bool:
        """See `Store`."""
        return bool(place.strip("/"))

    def path(self, given: str, settings: Mapping[str, str]) -> UPath:
        """See `Store`."""
        from upath import UPath

        options: dict[str, Any] = {
            "use_listings_cache": False,
            "max_concurrency": 1,
            "default_block_size": BLOCK,
            "config_kwargs": {
                "connect_timeout": CONNECT_SECONDS,
                "read_timeout": READ_SECONDS,
                "max_pool_connections": 32,
                "retries": RETRIES,
            },
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

    def spark_settings(self, settings: Mapping[str, str], scratch: Path) -> dict[str, str]:
        """See `Store`."""
        # a cluster may have this file system among its own jars: there it would see no class that comes with the application
        found = {"buffer.dir": str(scratch), "aws.credentials.provider": _CHAIN, "classloader.isolation": "false"}
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

    def split(self, path: UPath) -> tuple[str, str]:
        """See `Store`."""
        bucket, key, _ = path.fs.split_path(path.path)
        return bucket, key.rstrip("/")

    def listed(self, folder: UPath, *, folders: bool = False) -> Iterator[StoredFile]:
        """See `Store`; 1,000 names a request.

        The names of files by which Hadoop marks folders end with a slash too; that of the folder itself has no name. The client's own
        listing of a folder in which nothing is lists the one above as well, however much there is.
        """
        bucket, key = self.split(folder)
        asked = {"Bucket": bucket, "Prefix": f"{key}/" if key else "", "Delimiter": "/" if folders else ""}
        skipped = len(asked["Prefix"])
        while True:
            page = folder.fs.call_s3("list_objects_v2", **asked)
            for found in page.get("Contents", ()):
                yield StoredFile(found["Key"][skipped:], int(found["Size"]), found["LastModified"].timestamp())
            for found in page.get("CommonPrefixes", ()):
                yield StoredFile(found["Prefix"][skipped:], 0, 0.0)
            if not page.get("IsTruncated"):
                return
            asked["ContinuationToken"] = page["NextContinuationToken"]

    def remove(self, near: UPath, keys: Sequence[str]) -> None:
        """See `Store`."""
        bucket, _ = self.split(near)
        answer = near.fs.call_s3("delete_objects", Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True})
        for error in answer.get("Errors", ()):  # the request as a whole has gone well
            raise OSError(errno.EIO, f"could not remove file: {error.get('Message') or error.get('Code')}", error.get("Key"))

    def tag(self, path: UPath) -> str:
        """See `Store`."""
        return str(path.fs.info(path.path)["ETag"])

    def put_if(self, path: UPath, content: bytes, before: str | None) -> str:
        """See `Store`."""
        on_condition = {"mode": "create"} if before is None else {"IfMatch": before}
        try:
            return str(path.fs.pipe_file(path.path, content, **on_condition)["ETag"])
        except FileExistsError:
            raise
        except OSError as error:
            if getattr(error.__cause__, "response", {}).get("Error", {}).get("Code", "") in _REFUSED:
                raise FileExistsError(errno.EEXIST, "File exists", str(path)) from error
            raise


def credentials(settings: Mapping[str, str]) -> Credentials | None:
    """The credentials that the setting names; None where it names none. 22023, F0000 where they cannot be had."""
    found = named_credentials.find(settings, _HINT, names=(2, 3))
    if found is None:
        return None
    return Credentials(*found.variables) if found.file is None else named_credentials.read(found.file, _of_file)


def _of_file(text: str) -> Credentials:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
        section = parser["default"]
        return Credentials(section["aws_access_key_id"], section["aws_secret_access_key"], section.get("aws_session_token"))
    except (configparser.Error, KeyError):  # what they say shows lines of the file
        raise NoCredentialsError("It has a section [default] with aws_access_key_id and aws_secret_access_key.") from None
