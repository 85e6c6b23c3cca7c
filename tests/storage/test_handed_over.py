"""What Java is given in a file of properties, it reads as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.storage.spark.application.spark_session import _escaped


@given(st.text())
def test_a_value_comes_through_a_file_of_properties_as_it_is(text: str) -> None:
    written = _escaped(text)
    assert written.isascii()
    assert all(each.isalnum() or each == "\\" for each in written)
    read = written.encode("ascii").decode("unicode_escape")
    assert read.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") == text
