"""Amazon S3, and stores with the same protocol. Python accesses them through s3fs, Java through Hadoop's S3A.

Made by `object_store`. The setting `data_location_credentials` names the source of the credentials:
``env:ACCESS_KEY,SECRET_KEY[,SESSION_TOKEN]`` (names of environment variables) or ``file:/a/file`` (in the format of AWS's own tools,
section ``default``). Without it both clients use the default chain: environment, web identity, profile, the machine's role. Invariant:
no credential gets into the log, an error, SHOW or a command line. Java gets them with its other settings, in a file that only the node's
user can read and that is removed when Java has started.
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
"""Number of bytes that are read at once from a file of which only parts are needed."""
RETRIES = {"mode": "standard", "max_attempts": 2}
CONNECT_SECONDS, READ_SECONDS = 5, 30
"""Time limits in seconds for the store to accept a connection, and to answer."""
_HINT = "It names environment variables, env:ACCESS_KEY,SECRET_KEY[,SESSION_TOKEN], or a file, file:/path."
_REFUSED = ("PreconditionFailed", "ConditionalRequestConflict")


@dataclass(frozen=True)
class Credentials:
    """An access key with its secret."""

    key: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


class S3:
    """A store with the S3 protocol; see `Store`."""

    name = "s3"
    title = "S3"
    scheme = "s3a"
    example = "s3a://bucket/prefix"
    modules = "upath.implementations.cloud,s3fs"  # importing them takes a quarter of a second

    def is_place(self, place: str) -> bool:
        return bool(place.strip("/"))

    def path(self, uri: str, settings: Mapping[str, str]) -> UPath:
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
        path: UPath = UPath(uri.rstrip("/"), **options)
        return path

    def spark_settings(self, settings: Mapping[str, str], scratch: Path) -> dict[str, str]:
        # a cluster may have this file system among its own jars, and it would not find classes that come with the application
        options = {"buffer.dir": str(scratch), "aws.credentials.provider": _CHAIN, "classloader.isolation": "false"}
        endpoint, region = settings.get("data_location_endpoint", ""), settings.get("data_location_region", "")
        if endpoint:
            options |= {"endpoint": endpoint, "path.style.access": "true"}
            options["connection.ssl.enabled"] = "false" if endpoint.startswith("http://") else "true"
        if region:
            options["endpoint.region"] = region
        named = credentials(settings)
        if named is not None:
            options |= {"access.key": named.key, "secret.key": named.secret, "aws.credentials.provider": _NAMED}
            if named.token:
                options |= {"session.token": named.token, "aws.credentials.provider": _TEMPORARY}
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in options.items()}

    def split(self, path: UPath) -> tuple[str, str]:
        bucket, key, _ = path.fs.split_path(path.path)
        return bucket, key.rstrip("/")

    def listed(self, folder: UPath, *, folders: bool = False) -> Iterator[StoredFile]:
        """Yield the files as `Store` says, 1,000 names a request.

        The names of Hadoop's marker files for folders end with a slash too; the marker of the folder itself has an empty name. s3fs's own
        listing is not used: for an empty folder it also lists the parent, however large that is.
        """
        bucket, key = self.split(folder)
        arguments = {"Bucket": bucket, "Prefix": f"{key}/" if key else "", "Delimiter": "/" if folders else ""}
        skipped = len(arguments["Prefix"])
        while True:
            page = folder.fs.call_s3("list_objects_v2", **arguments)
            for file in page.get("Contents", ()):
                yield StoredFile(file["Key"][skipped:], int(file["Size"]), file["LastModified"].timestamp())
            for prefix in page.get("CommonPrefixes", ()):
                yield StoredFile(prefix["Prefix"][skipped:], 0, 0.0)
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def remove(self, near: UPath, keys: Sequence[str]) -> None:
        bucket, _ = self.split(near)
        answer = near.fs.call_s3("delete_objects", Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True})
        for error in answer.get("Errors", ()):  # the request as a whole has succeeded
            raise OSError(errno.EIO, f"could not remove file: {error.get('Message') or error.get('Code')}", error.get("Key"))

    def tag(self, path: UPath) -> str:
        return str(path.fs.info(path.path)["ETag"])

    def put_if(self, path: UPath, content: bytes, before: str | None) -> str:
        on_condition = {"mode": "create"} if before is None else {"IfMatch": before}
        try:
            # in one request, however large it is: s3fs returns no tag of a file that it has written in parts
            return str(path.fs.pipe_file(path.path, content, chunksize=len(content) + 1, **on_condition)["ETag"])
        except FileExistsError:
            raise
        except OSError as error:
            if getattr(error.__cause__, "response", {}).get("Error", {}).get("Code", "") in _REFUSED:
                raise FileExistsError(errno.EEXIST, "File exists", str(path)) from error
            raise


def credentials(settings: Mapping[str, str]) -> Credentials | None:
    """Return the credentials that the setting names, or None. Raise 22023 or F0000 if they are not available."""
    source = named_credentials.find(settings, _HINT, names=(2, 3))
    if source is None:
        return None
    return Credentials(*source.variables) if source.file is None else named_credentials.read(source.file, _of_file)


def _of_file(text: str) -> Credentials:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
        section = parser["default"]
        return Credentials(section["aws_access_key_id"], section["aws_secret_access_key"], section.get("aws_session_token"))
    except (configparser.Error, KeyError):  # their messages contain lines of the file
        raise NoCredentialsError("It has a section [default] with aws_access_key_id and aws_secret_access_key.") from None
