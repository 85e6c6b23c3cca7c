"""What the log names is on the disk before the log names it."""

from __future__ import annotations

from headgate.storage import delta_log, durable, vector


def test_every_file_that_a_version_adds_is_synchronized_with_its_folder(tmp_path, monkeypatch):
    log = tmp_path / "_delta_log"
    log.mkdir()
    (tmp_path / "_change_data").mkdir()
    described = vector.write(tmp_path, {"a b.parquet": vector.deserialise(vector.serialise(vector.read(tmp_path, None)))})["a b.parquet"]
    for name in ("a b.parquet", "new.parquet", "_change_data/c.parquet"):
        (tmp_path / name).write_bytes(b"")
    lines = [
        f'{{"add": {{"path": "a%20b.parquet", "deletionVector": {str(described).replace(chr(39), chr(34))}}}}}',
        '{"add": {"path": "new.parquet"}}',
        '{"cdc": {"path": "_change_data/c.parquet"}}',
        '{"remove": {"path": "gone.parquet"}}',
    ]
    (log / f"{3:020d}.json").write_text("\n".join(lines))
    seen: list[str] = []
    monkeypatch.setattr(durable, "_sync", lambda path: seen.append(str(path.relative_to(tmp_path))))
    durable.sync(tmp_path, 3)
    deleted = vector.file_of(tmp_path, described)
    assert deleted is not None
    expected = {"a b.parquet", "new.parquet", "_change_data/c.parquet", deleted.name, f"_delta_log/{3:020d}.json"}
    assert expected | {".", "_delta_log", "_change_data"} == set(seen)
    assert delta_log.newest_version(tmp_path) == 3
