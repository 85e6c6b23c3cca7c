"""A restart reads transactions that any earlier version has written."""

from __future__ import annotations

import base64

from headgate.lsn import Lsn
from headgate.storage.transaction import intent as intents
from headgate.storage.transaction.log import EntryKind

WRITTEN_BEFORE = """
eNplUk2L1EAQTSbJJLMrngRB8D5eBvwHgowgcVXWBU/L0Elq0o2ZJHb3uJsFwT2MH1AXmfKf+CP8WVZlZBQMJKmu96r6vaI+xT9+ToLxwfsaVFUrDwvnO6tqWJjWQ+sJp88PwZ4e
3dJHmmN0bSo6+zXBrFJeFcoB5QnG70xbEd77r0/T1YSzZevtkAtlzy3LbrMxnnZ0zocrazw40hmeXKiigbdy/uc6B+8pDzCz0ChvupbOgic6xWSsI0w/gHWSzkNMS63amptxPHOe
ZWxEuiBdL7VOOkWNawnvHJWOx+gFf/fsZEe3hCcHhSuB9MN8OiaTYhCheYqxAxiBTACd5DNMgfkeKvGRLv/ERxPT3sLaXBOGPSsuu8NIn4YlbQtM1qY5DOBUvDP0jBN/i+Neec2l
a+KLzQ2In9h2Vyxlwp2VsXzVt22xI8x6PThTqoYLMVT8FuRGZOplto7zPL48uhRCpKqK/059Joenyq28hmGlLAiYVrbre+48/87VnTW1aUXj3Vdj+Np2tQXnjjJ1zkLr1WPSD3gw
s3FisTcbkcsm05KXZdwFNs1L9fLN8vyCLmmeh0yPhA5feCMw1UZWZ6CvGNW8aRiILQu9EpvMDYS7LRa/AQiGEgg=
"""
"""An intent as it was stored when its class was headgate.storage.intent.Intent."""


def test_intent_of_an_earlier_version_is_read() -> None:
    read = intents.read_body(base64.b64decode(WRITTEN_BEFORE))
    assert isinstance(read, intents.Intent)
    assert (read.xid, read.kind, read.keys, read.tables) == (712, EntryKind.COMMIT, [(5, 16384)], {16384: (3, [{"add": {}}])})
    assert [(write.version, write.lsn) for write in read.writes] == [(1, Lsn(5))]
