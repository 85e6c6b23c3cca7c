"""Java reads a value from a properties file unchanged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.storage.spark.application.spark_session import _escaped


@given(st.text())
def test_value_is_read_from_a_properties_file_unchanged(text: str) -> None:
    escaped = _escaped(text)
    assert escaped.isascii()
    assert all(character.isalnum() or character == "\\" for character in escaped)
    read = escaped.encode("ascii").decode("unicode_escape")
    assert read.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") == text
