"""Spark's driver deserializes nothing that arrives on its port without the secret."""

from __future__ import annotations

import socket
import struct

import pytest
from pyspark.sql import SparkSession

RPC_REQUEST, RPC_FAILURE = 3, 5
"""Types of messages of Spark's transport (org.apache.spark.network.protocol.Message)."""


@pytest.mark.one_java  # on a cluster the secret is the cluster's, for its owner to set (docs/cluster.md)
def test_driver_deserializes_nothing_from_an_unauthenticated_connection(spark: SparkSession) -> None:
    body = b"\xac\xed\x00\x05 this is taken for a serialized object"
    address = (spark.conf.get("spark.driver.host"), int(str(spark.conf.get("spark.driver.port"))))
    with socket.create_connection(address, timeout=10) as stranger:
        stranger.sendall(struct.pack(">qBqi", 8 + 1 + 8 + 4 + len(body), RPC_REQUEST, 7, len(body)) + body)
        stranger.settimeout(10)
        answer = stranger.recv(1 << 16)
    assert answer[8:9] in (b"", bytes([RPC_FAILURE]))
    assert b"deserialize" not in answer, answer
    assert b"readObject" not in answer, answer
    assert not answer or b"auth" in answer.lower() or b"sasl" in answer.lower(), answer
