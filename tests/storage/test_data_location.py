"""Files of tables in an object store are written once and conditionally. Local copies, leases and credentials work the same in every store."""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import re
import shutil
import threading
import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.asyn import sync_wrapper
from obstore.store import MemoryStore
from s3fs import S3FileSystem
from tests.azure_storage import PLACE, AzureStorage
from tests.conftest import until
from tests.object_store import BUCKET, KEY, SECRET, ObjectStore
from tests.place import bare

from headgate.errors import PostgresError
from headgate.storage.location import data_location, file_cache, lease
from headgate.storage.location import object_store as stores
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.lease import Lease
from headgate.storage.location.object_store import azure, google, obstore_requests, s3


@pytest.fixture
def on_s3(object_store: ObjectStore) -> DataPath:
    return data_location.base(bare(object_store.settings()), Path("unused"))


def in_memory(scheme: str, monkeypatch: pytest.MonkeyPatch) -> DataPath:
    """Return a path in Google's or Azure's storage, for which a dictionary replaces the server."""
    obstore_requests.register(scheme)
    monkeypatch.setattr(fsspec.get_filesystem_class(scheme), "_construct_store", lambda _files, _bucket: MemoryStore())
    bucket = BUCKET if scheme == "gs" else PLACE
    settings = {
        "data_location": f"{scheme}://{bucket}/x",
        "data_location_endpoint": f"http://{uuid.uuid4()}:1",
    }  # a new address, so that no cached client is used
    return data_location.base(settings, Path("unused"))


@pytest.fixture(
    params=["object_store", "gs", "abfss", *(pytest.param(name, marks=pytest.mark.slow) for name in ("google_storage", "azure_storage"))]
)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> DataPath:
    if request.param in ("gs", "abfss"):
        return in_memory(request.param, monkeypatch)
    return data_location.base(bare(request.getfixturevalue(request.param).settings()), Path("unused"))


def test_existing_file_is_not_written_again(place: DataPath) -> None:
    data_location.write_new(place / "a" / "1.json", "one")
    with pytest.raises(FileExistsError):
        data_location.write_new(place / "a" / "1.json", "two")
    data_location.write_new(place / "a" / "1.json", "one")  # as when a client repeats a request
    assert data_location.read_text(place / "a" / "1.json") == "one"


def test_large_version_is_written_in_one_request(on_s3: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """s3fs writes files of 100 MB and more in parts."""
    monkeypatch.setattr(S3FileSystem._pipe_file, "__defaults__", (5, None, "overwrite"))
    data_location.write_new(on_s3 / "version.json", "12345678901")
    with pytest.raises(FileExistsError):
        data_location.write_new(on_s3 / "version.json", "another one")
    assert data_location.read_text(on_s3 / "version.json") == "12345678901"


def test_listings_and_lookups_see_existing_files(place: DataPath) -> None:
    assert not data_location.has_any(place / "a")
    with pytest.raises(FileNotFoundError):
        data_location.names(place / "a")
    with data_location.written(place / "a" / "b" / "x.bin") as draft:
        draft.write_bytes(b"12345")
    assert data_location.names(place / "a") == ["b"]
    assert [(file.name, file.size) for file in data_location.below(place)] == [("a/b/x.bin", 5)]
    assert data_location.has_file(place / "a" / "b" / "x.bin")
    assert not data_location.has_file(place / "a" / "b" / "y.bin")
    data_location.move(place / "a", place / "unknown" / "a")
    assert [file.name for file in data_location.below(place)] == ["unknown/a/b/x.bin"]
    data_location.remove_tree(place / "unknown")
    assert list(data_location.below(place)) == []


@pytest.fixture
def requests(on_s3: DataPath, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count the requests below the test's prefix that the store gets from now on. A lease of another test may be renewed meanwhile."""
    requests: list[str] = []
    send = type(on_s3.fs)._call_s3
    prefix = on_s3.path.partition("/")[2]

    async def counted(store: Any, method: str, *arguments: Any, **named: Any) -> Any:
        if prefix in repr((arguments, named)):
            requests.append(method)
        return await send(store, method, *arguments, **named)

    monkeypatch.setattr(type(on_s3.fs), "_call_s3", counted)
    monkeypatch.setattr(type(on_s3.fs), "call_s3", sync_wrapper(counted))
    return requests


def marks(place: DataPath) -> list[str]:
    """Return the file by which Hadoop marks a folder, if Python's client can name it."""
    return {"gs": [], "abfss": ["t/_delta_log"]}.get(place.fs.protocol, ["t/_delta_log/"])


def fill(place: DataPath, *names: str) -> None:
    for name in names:
        place.fs.pipe_file(f"{place.path}/{name}", b"" if name in marks(place) else b"x")


def test_listing_an_empty_folder_is_one_request(on_s3: DataPath, requests: list[str]) -> None:
    fill(on_s3, *(f"t/{number}" for number in range(5)))
    requests.clear()
    assert data_location.names_if_any(on_s3 / "t" / "_headgate") == []
    assert list(data_location.below(on_s3 / "t" / "_delta_log")) == []
    assert requests == ["list_objects_v2"] * 2, "only the empty folder is listed"


@pytest.mark.slow
def test_many_files_are_listed_and_removed_in_batches_of_a_thousand(
    on_s3: DataPath, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t/{number:04}" for number in range(1005)]
    data_location.together(on_s3, lambda name: fill(on_s3, name), names)
    file_cache.put(on_s3.fs, (on_s3 / names[0]).path, b"x")
    requests.clear()
    assert [file.name for file in data_location.below(on_s3)] == names
    assert len(data_location.names(on_s3 / "t")) == 1005
    data_location.remove_all(on_s3 / name for name in names[:1003])
    assert requests == ["list_objects_v2"] * 4 + ["delete_objects"] * 2
    assert not data_location.is_near(on_s3 / names[0])
    assert data_location.remove_tree(on_s3 / "t")
    assert not data_location.has_any(on_s3 / "t")
    assert data_location.remove_tree(on_s3 / "t"), "removing an empty folder succeeds"


def test_file_that_the_store_does_not_remove_is_reported(on_s3: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(on_s3, "t/a", "t/b", "t/_delta_log/0.json")
    send = type(on_s3.fs).call_s3
    refused = {"Errors": [{"Key": "t/a", "Code": "InternalError", "Message": "We encountered an internal error"}]}
    monkeypatch.setattr(
        type(on_s3.fs), "call_s3", lambda store, method, **named: refused if method == "delete_objects" else send(store, method, **named)
    )
    with pytest.raises(OSError, match="internal error"):
        data_location.remove_all([on_s3 / "t" / "a", on_s3 / "t" / "b"])
    assert not data_location.remove_tree(on_s3 / "t", last="_delta_log")


def test_log_of_a_removed_table_is_removed_last(place: DataPath, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A start cannot tell whether data without a log is committed, so it keeps such data."""
    fill(place, "t/_change_data/c", "t/_delta_log/0.json", "t/part-0.parquet", *marks(place))
    removed: list[list[str]] = []
    send = data_location._remove_keys
    monkeypatch.setattr(data_location, "_remove_keys", lambda near, keys: (removed.append(list(keys)), send(near, keys)))
    assert data_location.remove_tree(place / "t", last="_delta_log")
    assert [all("_delta_log" in key for key in keys) for keys in removed] == [False, True]
    assert not data_location.has_any(place / "t")
    folder = tmp_path / "t"
    for name in ("_change_data", "_delta_log"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").touch()
    removed_folders: list[str] = []
    rmtree = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", lambda path, **named: (removed_folders.append(path.name), rmtree(path, **named)))
    assert data_location.remove_tree(folder, last="_delta_log")
    assert removed_folders == ["_change_data", "t"]


def test_moved_folder_is_complete_in_one_location_at_every_moment(place: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(place, "t/_delta_log/0.json", "t/part-0.parquet", "t/part-1.parquet", *marks(place))

    def fail(*_: Any) -> bool:
        assert len(list(data_location.below(place / "t"))) == len(list(data_location.below(place / "unknown" / "t"))) == 3
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(data_location, "remove_tree", fail)
        with pytest.raises(OSError, match="killed"):
            data_location.move(place / "t", place / "unknown" / "t")
    data_location.move(place / "t", place / "unknown" / "t.1")
    assert data_location.names(place) == ["unknown"]
    assert sorted(data_location.names(place / "unknown")) == ["t", "t.1"]


def test_file_that_was_not_written_completely_does_not_exist(place: DataPath) -> None:
    def fail() -> None:
        with data_location.written(place / "x.bin") as draft:
            draft.write_bytes(b"half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert not data_location.has_file(place / "x.bin")


def test_file_is_requested_once_and_old_copies_are_evicted(place: DataPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = file_cache.FileCache(tmp_path / "copies", limit=2 * file_cache.BLOCK)

    def keep(*names: str) -> None:
        for name in names:
            (tmp_path / name).write_bytes(b"1234567")
            cache.keep(name, tmp_path / name)

    keep("a", "b", "c")
    assert cache.find("a") is not None, "a recently requested copy stays, even above the limit"
    monkeypatch.setattr(file_cache, "KEPT_SECONDS", 0.0)
    keep("d")
    assert [name for name in "abcd" if cache.find(name) is not None] == ["a", "d"], "the copy requested last stays"
    assert len(list((tmp_path / "copies").iterdir())) == 2
    data_location.write_new(place / "f", "content")
    data_location.remove(place / "f")
    with pytest.raises(FileNotFoundError):
        data_location.local(place / "f")


def test_store_that_does_not_answer_is_an_error_that_names_the_location(object_store: ObjectStore) -> None:
    settings = bare(object_store.settings()) | {"data_location_endpoint": "http://127.0.0.1:9"}
    with pytest.raises(PostgresError) as error:
        data_location.names(data_location.base(settings, Path("unused")))
    assert error.value.sqlstate == "58030"
    assert SECRET not in str(error.value)


def test_file_of_an_unanswered_write_is_removed_later(place: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_location, "ANSWER_SECONDS", 0.0)
    put, file = place.fs.put_file, place / "part-00000-x.parquet"  # type: ignore[union-attr]

    def unanswered(*arguments: Any, **named: Any) -> None:
        put(*arguments, **named)
        raise OSError(errno.ETIMEDOUT, "no answer")

    with monkeypatch.context() as cut:
        cut.setattr(place.fs, "put_file", unanswered)  # type: ignore[union-attr]
        with pytest.raises(OSError, match="no answer"), data_location.written(file) as draft:
            draft.write_bytes(b"x")
    assert data_location.has_file(file)
    data_location.remove_forsaken(place)
    assert not data_location.has_file(file)


def test_files_of_a_rollback_that_could_not_be_removed_are_removed_later(place: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_location, "ANSWER_SECONDS", 0.0)
    files = [place / f"part-00000-{number}.parquet" for number in range(3)]
    for file in files:
        with data_location.written(file) as draft:
            draft.write_bytes(b"xx")

    def refused(*_: Any) -> None:
        raise OSError(errno.EIO, "no answer")

    with monkeypatch.context() as cut:
        cut.setattr(type(stores.of(place)), "remove", refused)
        data_location.forsake(files[:2])
    assert [data_location.has_file(file) for file in files] == [True, True, True]
    data_location.remove_forsaken(place)
    assert [data_location.has_file(file) for file in files] == [False, False, True]


# ---- the lease ---------------------------------------------------------------------------------------------------------


def test_lease_belongs_to_one_node_and_is_released_at_its_end(place: DataPath) -> None:
    lost: list[str] = []
    first_lease = Lease(place, "1", lost.append)
    assert first_lease.take() is False
    first_lease.check()
    first_lease.release()
    second_lease = Lease(place, "1", lost.append)
    assert second_lease.take() is False
    second_lease.release()
    assert lost == []


@pytest.mark.slow
def test_renewed_lease_is_rejected_to_others_and_an_abandoned_one_can_be_acquired(place: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        lease.Holder, "is_gone", property(lambda holder: holder.released)
    )  # the holder's process cannot be seen from another machine
    lost: list[str] = []
    first_lease = Lease(place, "1", lost.append)
    first_lease.take()
    with pytest.raises(PostgresError) as error:
        Lease(place, "2", lost.append).take()
    assert error.value.sqlstate == "55006"
    first_lease._stopping.set()  # a stopped process does not renew its lease
    second_lease = Lease(place, "2", lost.append)
    assert second_lease.take() is True
    with pytest.raises(PostgresError, match="does not hold the lease"):
        first_lease.check()
    second_lease.check()
    second_lease.release()


def test_holder_keeps_its_lease_after_an_unanswered_renewal(place: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.1)
    put, unanswered, lost = type(stores.of(place)).put_if, threading.Event(), list[str]()

    def cut_off_once(own: Any, path: DataPath, content: bytes, tag_before: str | None) -> str:
        tag = put(own, path, content, tag_before)
        if path.name == lease.FILE and tag_before is not None and not unanswered.is_set():
            unanswered.set()
            raise OSError(errno.ETIMEDOUT, "no answer")
        return tag

    held_lease = Lease(place, "1", lost.append)
    held_lease.take()
    monkeypatch.setattr(type(stores.of(place)), "put_if", cut_off_once)
    assert unanswered.wait(30)
    unrenewed = held_lease._until
    until(lambda: held_lease._until > unrenewed or lost, "the lease is not renewed after the unanswered renewal")
    assert lost == []
    held_lease.check()
    held_lease.release()
    holder = held_lease._read()
    assert holder is not None
    assert holder[1].released


def test_store_that_does_not_enforce_conditional_writes_is_rejected(place: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stores.of(place)
    put = type(store).put_if

    def careless(own: Any, path: DataPath, content: bytes, tag_before: str | None) -> str:
        with contextlib.suppress(FileExistsError):
            return put(own, path, content, tag_before)
        return put(own, path, content, own.tag(path))

    monkeypatch.setattr(type(store), "put_if", careless)
    with pytest.raises(PostgresError, match="does not enforce conditional writes") as error:
        Lease(place, "1", print).take()
    assert error.value.sqlstate == "0A000"


def test_object_changed_since_it_was_read_is_not_overwritten(place: DataPath) -> None:
    store, path = stores.of(place), place / "x"
    with pytest.raises(FileNotFoundError):
        store.tag(path)
    first = store.put_if(path, b"1", None)
    assert first == store.tag(path)
    second = store.put_if(path, b"2", first)
    for tag_before in (None, first):
        with pytest.raises(FileExistsError):
            store.put_if(path, b"3", tag_before)
    assert data_location.read_text(path) == "2"
    assert store.tag(path) == second != first


# ---- credentials -------------------------------------------------------------------------------------------------------


def test_credentials_are_read_from_the_configured_source(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    credentials = s3.credentials({"data_location_credentials": f"file:{object_store.credentials}"})
    assert credentials == s3.Credentials(KEY, SECRET)
    assert SECRET not in repr(credentials)
    monkeypatch.setenv("LAKE_KEY", "k")
    monkeypatch.setenv("LAKE_SECRET", "s")
    assert s3.credentials({"data_location_credentials": "env:LAKE_KEY,LAKE_SECRET"}) == s3.Credentials("k", "s")
    assert s3.credentials({}) is None
    file = tmp_path / "credentials"
    file.write_text(f"[default]\naws_access_key_id = {KEY}\naws_secret = {SECRET}\n")
    for mode, where in ((0o644, f"file:{file}"), (0o600, f"file:{file}"), (0o600, "env:LAKE_KEY"), (0o600, f"{KEY}:{SECRET}")):
        file.chmod(mode)
        with pytest.raises(PostgresError) as error:
            s3.credentials({"data_location_credentials": where})
        assert SECRET not in f"{error.value} {error.value.detail} {error.value.hint}"


JSON_KEY = json.dumps({"type": "service_account", "client_email": "node@tests", "private_key": SECRET})


def test_service_account_key_is_read_from_the_configured_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store, file = google.GoogleStorage(), tmp_path / "key.json"
    file.write_text(JSON_KEY)
    file.chmod(0o600)
    monkeypatch.setenv("LAKE_KEY", JSON_KEY)
    settings = {"data_location_credentials": f"file:{file}"}
    assert google._key(settings) == google._key({"data_location_credentials": "env:LAKE_KEY"}) == JSON_KEY
    assert google._key({}) is None
    keyfile_setting = "spark.hadoop.fs.gs.auth.service.account.json.keyfile"
    assert store.spark_settings(settings, tmp_path)[keyfile_setting] == str(file)
    key_file = Path(store.spark_settings({"data_location_credentials": "env:LAKE_KEY"}, tmp_path)[keyfile_setting])
    assert (key_file.read_text(), key_file.stat().st_mode & 0o777, key_file.parent) == (JSON_KEY, 0o600, tmp_path)
    assert keyfile_setting not in store.spark_settings({}, tmp_path)


@pytest.mark.parametrize(
    "content", ["", SECRET, f'{{"private_key": "{SECRET}"', f'["{SECRET}"]', f'{{"private_key": "{SECRET}"}}', "\udcff"]
)
@pytest.mark.parametrize("kind", ["file", "env"])
def test_error_about_an_invalid_key_shows_nothing_of_it(content: str, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "key.json"
    file.write_bytes(content.encode(errors="surrogateescape"))
    file.chmod(0o600)
    monkeypatch.setenv("LAKE_KEY", content)
    with pytest.raises(PostgresError) as error:
        google._key({"data_location_credentials": f"file:{file}" if kind == "file" else "env:LAKE_KEY"})
    assert error.value.__context__ is None or SECRET not in str(error.value.__context__)
    assert SECRET not in f"{error.value} {error.value.detail} {error.value.hint}"


def test_key_that_others_can_read_or_that_no_client_can_use_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "key.json"
    file.write_text(JSON_KEY)
    settings = {"data_location": f"gs://{BUCKET}/x", "data_location_credentials": f"file:{file}"}
    file.chmod(0o640)
    with pytest.raises(PostgresError, match="group or world access"):
        data_location.base(settings, tmp_path)
    file.chmod(0o600)
    with pytest.raises(PostgresError) as error:
        data_location.names(data_location.base(settings, tmp_path))
    assert error.value.sqlstate == "58030"
    assert SECRET not in str(error.value)


ACCOUNT_KEY = base64.b64encode(b"a key of tests that is seen nowhere").decode()
TOKEN = f"sv=2021-12-02&sp=rl&sig={SECRET}%3D"
SERVICE = {"tenant_id": "ten-ant", "client_id": "client", "client_secret": SECRET}


def azure_settings(where: str) -> dict[str, str]:
    return {"data_location": f"abfss://{PLACE}/x", "data_location_credentials": where}


def in_file(tmp_path: Path, **fields: str) -> dict[str, str]:
    file = tmp_path / "azure"
    file.write_text("\n".join(["[default]", *(f"{name} = {value}" for name, value in fields.items())]))
    file.chmod(0o600)
    return azure_settings(f"file:{file}")


def for_java(settings: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Return Java's settings for credentials, without the account at the end of each name."""
    settings_of_spark = azure.AzureStorage().spark_settings(settings, tmp_path)
    account = f".{PLACE.partition('@')[2]}"
    return {
        name.removeprefix("spark.hadoop.fs.azure.").removesuffix(account): settings_of_spark[name]
        for name in settings_of_spark
        if name.endswith(account)
    }


def test_both_clients_use_the_configured_azure_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {"KEY": ACCOUNT_KEY, "TENANT": "ten-ant", "CLIENT": "client", "SECRET": SECRET}.items():
        monkeypatch.setenv(f"LAKE_{name}", value)
    key = azure.Credentials(account_key=ACCOUNT_KEY)
    assert azure.credentials(azure_settings("env:LAKE_KEY")) == azure.credentials(in_file(tmp_path, account_key=ACCOUNT_KEY)) == key
    assert for_java(azure_settings("env:LAKE_KEY"), tmp_path) == {"account.auth.type": "SharedKey", "account.key": ACCOUNT_KEY}
    service = azure_settings("env:LAKE_TENANT,LAKE_CLIENT,LAKE_SECRET")
    assert azure.credentials(service) == azure.credentials(in_file(tmp_path, **SERVICE)) == azure.Credentials(**SERVICE)
    assert for_java(service, tmp_path) == {
        "account.auth.type": "OAuth",
        "account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
        "account.oauth2.client.endpoint": "https://login.microsoftonline.com/ten-ant/oauth2/token",
        "account.oauth2.client.id": "client",
        "account.oauth2.client.secret": SECRET,
    }
    assert for_java(in_file(tmp_path, sas_token=f"?{TOKEN}"), tmp_path) == {"account.auth.type": "SAS", "sas.fixed.token": TOKEN}
    for settings in (azure_settings("env:LAKE_KEY"), service, in_file(tmp_path, sas_token=TOKEN)):
        spark_settings = azure.AzureStorage().spark_settings(settings, tmp_path)
        visible = {name: value for name, value in spark_settings.items() if not re.search(spark_settings["spark.redaction.regex"], name)}
        assert not any(secret in visible.values() for secret in (ACCOUNT_KEY, TOKEN, SECRET)), "Spark would show it"
    assert SECRET not in repr(azure.credentials(service))
    assert ACCOUNT_KEY not in repr(key)


def test_both_clients_use_the_managed_identity_without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY)  # Java would not see this variable
    providers = "org.apache.hadoop.fs.azurebfs.oauth2."
    assert azure.credentials({}).of_python() == {"credential_type": "managed_identity"}
    assert for_java(azure_settings(""), tmp_path) == {
        "account.auth.type": "OAuth",
        "account.oauth.provider.type": f"{providers}MsiTokenProvider",
    }
    monkeypatch.setenv("AZURE_CLIENT_ID", "client")
    monkeypatch.setenv("AZURE_TENANT_ID", "ten-ant")
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", "/token")
    assert azure.credentials({}).of_python()["credential_type"] == "workload_identity"
    assert for_java(azure_settings(""), tmp_path) == {
        "account.auth.type": "OAuth",
        "account.oauth.provider.type": f"{providers}WorkloadIdentityTokenProvider",
        "account.oauth2.client.id": "client",
        "account.oauth2.msi.tenant": "ten-ant",
        "account.oauth2.token.file": "/token",
    }


@pytest.mark.parametrize(
    "fields", [{}, {"account_key": SECRET}, {"account_key": f"{ACCOUNT_KEY}\n x"}, {"sas_token": SECRET}, {"sas_token": f"{TOKEN} x"},
               {"account_key": ACCOUNT_KEY, "sas_token": TOKEN}, {"tenant_id": "t", "client_secret": SECRET}, {"password": SECRET},
               {**SERVICE, "tenant_id": f"a/{SECRET}"}, {**SERVICE, "client_id": "ü"}, {**SERVICE, "client_secret": f"{SECRET}\n x"}],
)  # fmt: skip
def test_error_about_invalid_azure_credentials_shows_nothing_of_them(fields: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(PostgresError) as error:
        azure.credentials(in_file(tmp_path, **fields))
    assert error.value.sqlstate == "F0000"
    text = f"{error.value} {error.value.detail} {error.value.hint}"
    assert SECRET not in text
    assert ACCOUNT_KEY not in text


def test_azure_endpoint_must_be_an_emulator_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_KEY", ACCOUNT_KEY)
    settings = azure_settings("env:LAKE_KEY")
    for endpoint in ("http://host", "ftp://host:1", "host:1", "http://u:p@host:1", "http://host:1/account", "http://host:1?x"):
        with pytest.raises(PostgresError) as error:
            data_location.base(settings | {"data_location_endpoint": endpoint}, tmp_path)
        assert error.value.sqlstate == "22023"
    spark_settings = azure.AzureStorage().spark_settings(settings | {"data_location_endpoint": "http://host:1/"}, tmp_path)
    assert spark_settings["spark.hadoop.fs.azure.abfs.endpoint"] == "host:1"
    assert spark_settings["spark.hadoop.fs.azure.always.use.https"] == "false"
    assert "spark.hadoop.fs.abfss.impl" not in azure.AzureStorage().spark_settings(
        settings | {"data_location_endpoint": "https://host:1"}, tmp_path
    )


@pytest.mark.slow
def test_container_signature_is_sufficient_and_a_rejected_one_is_not_shown(azure_storage: AzureStorage, tmp_path: Path) -> None:
    endpoint = {"data_location_endpoint": azure_storage.endpoint}
    place = data_location.base(in_file(tmp_path, sas_token=azure_storage.token()) | endpoint, tmp_path) / str(uuid.uuid4())
    data_location.write_new(place / "a", "one")
    fill(place, "b")
    assert sorted(data_location.names(place)) == ["a", "b"]
    assert data_location.remove_tree(place)
    assert not data_location.has_any(place)
    refused = data_location.base(in_file(tmp_path, sas_token=TOKEN) | endpoint, tmp_path)
    with pytest.raises(PostgresError) as error:
        data_location.names(refused)
    assert error.value.sqlstate == "58030"
    assert SECRET not in f"{error.value} {error.value.detail}"


@pytest.mark.parametrize("kind", ["account_key", "sas_token"])
def test_storage_that_does_not_answer_shows_no_credentials(kind: str, tmp_path: Path) -> None:
    settings = in_file(tmp_path, **{kind: {"account_key": ACCOUNT_KEY, "sas_token": TOKEN}[kind]})
    with pytest.raises(PostgresError) as error:
        data_location.names(data_location.base(settings | {"data_location_endpoint": "http://127.0.0.1:9"}, tmp_path))
    assert error.value.sqlstate == "58030"
    assert SECRET not in f"{error.value} {error.value.detail}"
    assert ACCOUNT_KEY not in f"{error.value} {error.value.detail}"


def test_only_folders_and_known_stores_are_locations() -> None:
    for location in ("abfs://lake@account.dfs.core.windows.net/x", "hdfs://name/x", "s3a://", "s3://bucket/x", "gcs://bucket/x"):
        with pytest.raises(PostgresError) as error:
            stores.named({"data_location": location})
        assert error.value.sqlstate == "22023"
    assert stores.named({"data_location": f"s3a://{BUCKET}/{uuid.uuid4()}"})
    assert stores.named({"data_location": f"gs://{BUCKET}/a/b.c=1/"})
    assert stores.named({"data_location": f"abfss://{PLACE}/a/b.c=1/"})
    assert stores.named({"data_location": os.sep + "lake"}) is None


@pytest.mark.parametrize(
    "place", ["", "b", "bucket", "bucket/", "/x", "bucket//x", "bucket/../x", "bucket/.", "B/x", "u:p@bucket/x", "bucket/x?y", "bucket/x#y",
              "bucket/%2e", "bucket/a b", "bucket/a\nb", "bucket/*", "bucket/ü", "bucket/x\n", "bucket/x'y"],
)  # fmt: skip
def test_prefix_that_a_client_would_read_differently_is_rejected(place: str) -> None:
    with pytest.raises(PostgresError, match="invalid value"):
        stores.named({"data_location": f"gs://{place}"})
    with pytest.raises(PostgresError, match="invalid value"):
        stores.named({"data_location": f"abfss://{place.replace('bucket', PLACE)}"})


@pytest.mark.parametrize(
    "place", ["lake/x", "lake@account/x", "@account.dfs.core.windows.net/x", "lake@account.blob.core.windows.net/x",
              "lake@account.dfs.core.windows.net.example/x", "la--ke@account.dfs.core.windows.net/x", "lake:p@account.dfs.core.windows.net/x",
              "lake@account.dfs.core.windows.net:80/x", "lake@account.dfs.core.windows.net/x.", "lake@account.dfs.core.windows.net/x+y"],
)  # fmt: skip
def test_invalid_azure_container_or_account_is_rejected(place: str) -> None:
    with pytest.raises(PostgresError, match="invalid value"):
        stores.named({"data_location": f"abfss://{place}"})


def test_path_of_an_object_store_has_one_name_for_all_readers(place: DataPath) -> None:
    path = place / "t" / "a b%20+#ü.parquet"
    with data_location.written(path, is_cached=False) as draft:
        draft.write_bytes(b"12345")
    assert [file.name for file in data_location.below(place)] == ["t/a b%20+#ü.parquet"]
    assert data_location.names(place / "t") == ["a b%20+#ü.parquet"]
    assert data_location.root(path) == str(place).removesuffix(f"/{place.name}")
    again = data_location.absolute(place, str(place / "t"))
    assert (str(again / path.name), (again / path.name).fs) == (str(path), place.fs)
    assert data_location.far_name(path).endswith(f"{place.path}/t/{path.name}")
    assert data_location.has_file(path)
    assert data_location.read_text(path) == "12345"
    data_location.remove_all([path, place / "t" / "other"])
    assert not data_location.has_any(place / "t")
