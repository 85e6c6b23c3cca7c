"""A message about a file leads to the table that the file belongs to."""

from __future__ import annotations

from pathlib import Path

from headgate.storage.location.table_folders import TableFolders


def test_message_that_names_a_file_leads_to_its_table(tmp_path: Path) -> None:
    base, lake = tmp_path / "base", tmp_path / "lake" / "t"
    names = base / "_headgate" / "external"
    names.mkdir(parents=True)
    (names / "5.7").write_text(f"{lake}\n3\n")
    folders = TableFolders(base)
    assert folders.named_in(f'file "{lake}/part-0.parquet" is damaged or cannot be read') == (5, 7)
    assert folders.named_in(f'file "{base}/5/16384/part-0.parquet" is damaged or cannot be read') == (5, 16384)
    assert folders.named_in(f'file "{tmp_path}/other/part-0.parquet" is damaged or cannot be read') is None
