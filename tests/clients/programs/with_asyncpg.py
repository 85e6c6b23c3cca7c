"""Scenes of asyncpg."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import asyncpg
from conversation import NULLS, VALUES, answer


def scene(play: Callable[[Any], Awaitable[Any]]) -> Callable[[str], Any]:
    """Return a scene that runs `play` with a connection."""

    async def connected(url: str) -> Any:
        connection = await asyncpg.connect(url, command_timeout=120)
        try:
            return await play(connection)
        finally:
            await connection.close()

    return lambda url: asyncio.run(connected(url))


async def values(connection: Any) -> Any:
    marks = ", ".join(f"${number}" for number in range(1, len(VALUES) + 1))
    insert = await connection.prepare(f"INSERT INTO items VALUES ({marks})")
    await insert.executemany([tuple(VALUES.values()), tuple(NULLS.values())])
    select = await connection.prepare("SELECT * FROM items WHERE id = ANY ($1) ORDER BY id")
    return [list(row.values()) for row in await select.fetch([1, 2])]


async def errors(connection: Any) -> Any:
    answers = []
    for statement, *parameters in (
        ("INSERT INTO items (id) VALUES ($1)", 1),
        ("SELEC 1",),
        ("SELECT $1::text::int", "x"),
        ("SELECT nosuch FROM items",),
    ):
        try:
            await connection.execute("INSERT INTO items (id) VALUES (1) ON CONFLICT DO NOTHING")
            await connection.fetch(statement, *parameters)
        except asyncpg.PostgresError as error:
            answers.append([error.sqlstate, error.constraint_name if error.sqlstate == "23505" else None])
    return [*answers, await connection.fetchval("SELECT 1")]


async def transaction(connection: Any) -> Any:
    async with connection.transaction():
        await connection.execute("INSERT INTO items (id, name) VALUES (1, 'outer')")
        try:
            async with connection.transaction():
                await connection.execute("INSERT INTO items (id, name) VALUES (2, 'inner')")
                await connection.execute("INSERT INTO items (id, name) VALUES (1, 'again')")
        except asyncpg.UniqueViolationError:
            pass
        await connection.execute("INSERT INTO items (id, name) VALUES (3, 'behind')")
    begun = connection.transaction()
    await begun.start()
    await connection.execute("DELETE FROM items")
    await begun.rollback()


async def copy(connection: Any) -> Any:
    tag = await connection.copy_records_to_table("items", records=[(1, "a,b"), (2, None), (3, "")], columns=["id", "name"])
    out = io.BytesIO()
    await connection.copy_from_query("SELECT id, name FROM items WHERE id >= $1 ORDER BY id", 1, output=out, format="csv")
    return [int(tag.split()[1]), out.getvalue().decode()]


async def parts(connection: Any) -> Any:
    async with connection.transaction():
        rows = connection.cursor("SELECT g FROM generate_series(1, $1::int) g", 20000, prefetch=1000)
        ids = [row[0] async for row in rows]
    return [len(ids), sum(ids)]


async def cancel(connection: Any) -> Any:
    try:
        await connection.execute("SELECT pg_sleep(100)", timeout=0.2)
    except TimeoutError:
        return ["57014", await connection.fetchval("SELECT 1")]


async def plans(connection: Any) -> Any:
    """Change the result of a cached plan. asyncpg prepares it again, except inside a transaction."""
    query = "SELECT * FROM items WHERE id = $1"
    row_before = await connection.fetchrow(query, 1)
    await connection.execute("ALTER TABLE items ADD COLUMN more integer DEFAULT 7; ALTER TABLE items DROP COLUMN name")
    row_after = await connection.fetchrow(query, 1)
    await connection.execute("ALTER TABLE items DROP COLUMN more")
    try:
        async with connection.transaction():
            await connection.fetchrow(query, 1)
    except asyncpg.InvalidCachedStatementError as error:
        sqlstate = error.sqlstate
    return [list(row_before.keys())[:2], list(row_after.keys())[-1], row_after["more"], sqlstate, len(await connection.fetchrow(query, 1))]


async def bulk(connection: Any) -> Any:
    """Copy 200,000 rows in by binary COPY, and copy every second one out and into another table."""
    moment = datetime(2024, 2, 29, tzinfo=UTC)
    rows = [(number, f"row {number}", Decimal(number) / 100, moment, [number, None]) for number in range(200_000)]
    await connection.copy_records_to_table("items", records=rows, columns=["id", "name", "price", "seen", "nums"])
    out = io.BytesIO()
    await connection.copy_from_query("SELECT id, name, price, seen, nums FROM items WHERE id % 2 = 0", output=out, format="binary")
    out.seek(0)
    await connection.execute("CREATE TABLE half AS SELECT id, name, price, seen, nums FROM items LIMIT 0")
    tag = await connection.copy_to_table("half", source=out, format="binary")
    return [tag, *await connection.fetchrow("SELECT count(*), sum(id), sum(price), min(nums[1]), count(nums[2]) FROM half")]


async def notifications(connection: Any) -> Any:
    heard: asyncio.Queue[list[str]] = asyncio.Queue()
    await connection.add_listener("news", lambda _connection, _pid, channel, text: heard.put_nowait([channel, text]))
    async with connection.transaction():
        await connection.execute("SELECT pg_notify('news', $1)", "first")
        await connection.execute("NOTIFY news, 'second'")
    return [await asyncio.wait_for(heard.get(), 60), await asyncio.wait_for(heard.get(), 60)]


def pool(url: str) -> Any:
    """Return a connection to the pool, which resets it: its cursors, channels and settings are gone."""

    async def play() -> Any:
        async with asyncpg.create_pool(url, min_size=1, max_size=3, command_timeout=120) as opened_pool:
            await asyncio.gather(*(opened_pool.execute("INSERT INTO items (id) VALUES ($1)", number) for number in range(20)))
            async with opened_pool.acquire() as first:
                await first.execute("SET work_mem = '1MB'")
                await first.execute("DECLARE held CURSOR WITH HOLD FOR SELECT 1")
                await first.fetchval("SELECT pg_advisory_lock(7)")
                pid = first.get_server_pid()
            async with opened_pool.acquire() as same:
                return [
                    same.get_server_pid() == pid,
                    await same.fetchval("SHOW work_mem") == "1MB",
                    await same.fetchval("SELECT count(*) FROM pg_cursors WHERE is_holdable"),
                    await same.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = $1", pid),
                    await same.fetchval("SELECT count(*) FROM items"),
                ]

    return asyncio.run(play())


async def cursors(connection: Any) -> Any:
    async with connection.transaction(isolation="repeatable_read"):
        cursor = await connection.cursor("SELECT id FROM items WHERE id > $1 ORDER BY id", 10)
        answers = [[row[0] for row in await cursor.fetch(3)], await cursor.forward(5), (await cursor.fetchrow())[0]]
        await connection.execute("DELETE FROM items")
        return [*answers, (await cursor.fetchrow())[0], await connection.fetchval("SELECT count(*) FROM items")]


async def types(connection: Any) -> Any:
    """Use enums, domains and their arrays, which asyncpg looks up by name and by oid, and a custom codec."""
    await connection.execute("CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE DOMAIN short AS varchar(3)")
    await connection.set_type_codec("jsonb", encoder=lambda value: f"[{value}]", decoder=lambda text: text.upper(), schema="pg_catalog")
    return [
        await connection.fetchval("SELECT $1::mood[]", ["happy", "sad"]),
        await connection.fetchval("SELECT $1::short", "abc"),
        await connection.fetchval("SELECT $1::jsonb", '"a"'),
        str(await connection.fetchval("SELECT $1::inet", "10.0.0.1/8")),
        str(await connection.fetchval("SELECT '1 day 2 hours'::interval")),
    ]


SCENES = (values, errors, transaction, copy, parts, cancel, plans, bulk, notifications, cursors, types)
answer({**{play.__name__: scene(play) for play in SCENES}, "pool": pool})
