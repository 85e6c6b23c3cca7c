"""Scenes of SQLAlchemy, with each of its drivers, and of Alembic."""

from __future__ import annotations

import asyncio
import contextlib
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import alembic.command
import sqlalchemy as sa
from alembic.config import Config
from conversation import NULLS, VALUES, answer
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, selectinload

DRIVERS = ("psycopg", "psycopg2", "pg8000")
META = sa.MetaData()
ITEMS = sa.Table(
    "items",
    META,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text),
    sa.Column("price", sa.Numeric(10, 2)),
    sa.Column("big", sa.BigInteger),
    sa.Column("good", sa.Boolean),
    sa.Column("real8", sa.Float),
    sa.Column("seen", sa.DateTime(timezone=True)),
    sa.Column("raw", sa.LargeBinary),
    sa.Column("code", sa.Uuid),
    sa.Column("tags", pg.ARRAY(sa.Text)),
    sa.Column("nums", pg.ARRAY(sa.Integer)),
)


class Base(DeclarativeBase):
    """The base class of the mapped classes."""


class Customer(Base):
    """A customer, who has orders."""

    __tablename__ = "customers"
    id: Mapped[int] = mapped_column(sa.Identity(), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    orders: Mapped[list[Order]] = relationship(back_populates="customer", cascade="all, delete-orphan")


class Order(Base):
    """An order of a customer."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    amount: Mapped[int] = mapped_column(sa.CheckConstraint("amount > 0", name="positive"))
    customer_id: Mapped[int] = mapped_column(sa.ForeignKey("customers.id"), index=True)
    customer: Mapped[Customer] = relationship(back_populates="orders")


def with_driver(url: str, driver: str) -> str:
    """Return the URL in SQLAlchemy's form, which names the driver."""
    return url.replace("postgresql://", f"postgresql+{driver}://")


def scene(play: Callable[[Any], Any]) -> Callable[[str], Any]:
    """Return a scene that runs `play` with an engine that uses psycopg."""

    def connected(url: str) -> Any:
        engine = sa.create_engine(with_driver(url, "psycopg"), connect_args={"options": "-c TimeZone=UTC"})
        try:
            return play(engine)
        finally:
            engine.dispose()

    return connected


def values(url: str) -> Any:
    """Write and read values with each driver. All must give the same result."""
    results = []
    for driver in DRIVERS:
        engine = sa.create_engine(with_driver(url, driver))
        with engine.begin() as connection:
            connection.execute(ITEMS.delete())
            connection.execute(ITEMS.insert(), [VALUES, NULLS])
            results.append([list(row) for row in connection.execute(sa.select(ITEMS).where(ITEMS.c.id.in_([1, 2])).order_by(ITEMS.c.id))])
        engine.dispose()
    assert all(rows_read == results[0] for rows_read in results), results
    return results[0]


def errors(engine: sa.Engine) -> Any:
    answers = []
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(ITEMS.insert(), {"id": 1})
        for statement in (
            ITEMS.insert().values(id=1),
            sa.text("SELEC 1"),
            sa.text("SELECT CAST('x' AS int)"),
            sa.text("SELECT nosuch FROM items"),
        ):
            try:
                connection.execute(statement)
            except DBAPIError as error:
                answers.append([error.orig.sqlstate, error.orig.diag.constraint_name])
        return [*answers, connection.scalar(sa.text("SELECT 1"))]


def transaction(engine: sa.Engine) -> Any:
    with engine.begin() as connection:
        connection.execute(ITEMS.insert(), {"id": 1, "name": "outer"})
        try:
            with connection.begin_nested():
                connection.execute(ITEMS.insert(), [{"id": 2, "name": "inner"}, {"id": 1, "name": "again"}])
        except IntegrityError:
            pass
        connection.execute(ITEMS.insert(), {"id": 3, "name": "behind"})
    with engine.connect() as connection:
        connection.execute(ITEMS.delete())
        connection.rollback()


def parts(engine: sa.Engine) -> Any:
    with engine.connect() as connection:
        rows = connection.execution_options(yield_per=1000).execute(sa.text("SELECT g FROM generate_series(1, :n) g"), {"n": 20000})
        ids = list(rows.scalars())
    return [len(ids), sum(ids)]


def mapped(engine: sa.Engine) -> Any:
    """Store objects whose keys the server generates, in batches with RETURNING. Load, change and delete them."""
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all(Customer(name=f"c{n}", orders=[Order(amount=n + k + 1) for k in range(3)]) for n in range(5))
        session.commit()
        customers = session.scalars(sa.select(Customer).options(selectinload(Customer.orders)).order_by(Customer.name)).all()
        totals = [[customer.name, sum(order.amount for order in customer.orders)] for customer in customers]
        customers[0].orders[0].amount = 100
        session.delete(customers[1])
        session.commit()
        total = sa.select(Customer.name, sa.func.sum(Order.amount)).join(Order).group_by(Customer.name).order_by(Customer.name)
        totals.append([list(row) for row in session.execute(total)])
        try:
            session.add(Order(amount=-1, customer=customers[0]))
            session.commit()
        except IntegrityError as error:
            totals.append(error.orig.diag.constraint_name)
    return totals


def asynchronous(url: str) -> Any:
    """Use the asynchronous engine with asyncpg."""

    async def play() -> Any:
        engine = create_async_engine(with_driver(url, "asyncpg"))
        async with engine.begin() as connection:
            await connection.execute(ITEMS.insert(), [VALUES, NULLS])
        async with engine.connect() as connection:
            rows_read = [list(row) for row in await connection.execute(sa.select(ITEMS).order_by(ITEMS.c.id))]
        await engine.dispose()
        return rows_read

    return asyncio.run(play())


def reflection(engine: sa.Engine) -> Any:
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE VIEW seen AS SELECT id FROM customers"))
        connection.execute(sa.text("CREATE TYPE mood AS ENUM ('sad', 'happy')"))
        connection.execute(sa.text("COMMENT ON TABLE customers IS 'who buys'"))
    look = sa.inspect(engine)
    [foreign] = look.get_foreign_keys("orders")
    reflected = sa.MetaData()
    reflected.reflect(engine, views=True)
    return [
        sorted(look.get_table_names()),
        look.get_view_names(),
        sorted(look.get_sequence_names()),
        [[index["name"], index["column_names"]] for index in look.get_indexes("orders")],
        [constraint["column_names"] for constraint in look.get_unique_constraints("customers")],
        [[constraint["name"], constraint["sqltext"]] for constraint in look.get_check_constraints("orders")],
        [foreign["constrained_columns"], foreign["referred_table"], foreign["referred_columns"]],
        look.get_table_comment("customers")["text"],
        [[enum["name"], enum["labels"]] for enum in look.get_enums()],
        [[column.name, str(column.type), column.nullable] for column in reflected.tables["items"].columns],
        look.get_columns("customers")[0]["identity"]["always"],
    ]


def current_of(engine: sa.Engine) -> Any:
    """Change the current row of a cursor (declared by SQL) with an UPDATE built by SQLAlchemy."""
    with engine.begin() as connection:
        connection.execute(sa.text("DECLARE here SCROLL CURSOR FOR SELECT * FROM items ORDER BY id DESC"))
        connection.execute(sa.text("MOVE ABSOLUTE 2 IN here"))
        change = sa.update(ITEMS).where(sa.text("CURRENT OF here")).returning(ITEMS.c.id, ITEMS.c.name)
        return [list(connection.execute(change.values(name=name)).one()) for name in ("once", "twice")]


def pool(engine: sa.Engine) -> Any:
    """Terminate the session of a pooled connection. With pool_pre_ping, the pool replaces it."""
    asking = sa.create_engine(engine.url, pool_pre_ping=True, pool_size=1)
    with asking.connect() as connection:
        first = connection.scalar(sa.text("SELECT pg_backend_pid()"))
    with engine.connect() as other_connection:
        ended = other_connection.scalar(sa.text("SELECT pg_terminate_backend(:pid, 30000)"), {"pid": first})
    with asking.connect() as connection:
        answers = [ended, connection.scalar(sa.text("SELECT pg_backend_pid()")) != first]
    asking.dispose()
    return answers


def migrations(url: str) -> Any:
    """Let Alembic generate the revisions that the database lacks, then upgrade, downgrade and upgrade again until nothing is left to do."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "migrations"
        config = Config(Path(folder) / "alembic.ini", stdout=io.StringIO())
        config.set_main_option("script_location", str(home))
        with contextlib.redirect_stdout(io.StringIO()):
            alembic.command.init(config, str(home))
        (home / "env.py").write_text(
            "from alembic import context\nfrom sqlalchemy import create_engine\n"
            "engine = create_engine(context.config.attributes['url'])\n"
            "with engine.connect() as connection:\n"
            "    context.configure(connection=connection, target_metadata=context.config.attributes['models'], compare_server_default=True)\n"
            "    with context.begin_transaction():\n        context.run_migrations()\nengine.dispose()\n"
        )
        models = sa.MetaData()
        sa.Table("keepers", models, sa.Column("id", sa.Integer, primary_key=True), sa.Column("mood", sa.Enum("sad", "happy", name="mood")))
        config.attributes.update(url=with_driver(url, "psycopg"), models=models)
        engine = sa.create_engine(with_driver(url, "psycopg"))
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                return list(_courses(config, models, engine))
        finally:
            engine.dispose()


def _courses(config: Config, models: sa.MetaData, engine: sa.Engine) -> Any:
    def tables() -> list[str]:
        return sorted(sa.inspect(engine).get_table_names())

    alembic.command.revision(config, message="first", autogenerate=True)
    alembic.command.upgrade(config, "head")
    yield tables()
    keepers = models.tables["keepers"]
    keepers.append_column(sa.Column("age", sa.Integer, nullable=False, server_default="3", index=True))
    sa.Table(
        "pets", models, sa.Column("id", sa.Integer, primary_key=True), sa.Column("keeper", sa.ForeignKey("keepers.id", name="its_keeper"))
    )
    alembic.command.revision(config, message="second", autogenerate=True)
    alembic.command.upgrade(config, "head")
    alembic.command.check(config)
    yield [tables(), [column["name"] for column in sa.inspect(engine).get_columns("keepers")]]
    alembic.command.downgrade(config, "-1")
    yield [tables(), [column["name"] for column in sa.inspect(engine).get_columns("keepers")]]
    alembic.command.upgrade(config, "head")
    alembic.command.check(config)
    yield tables()


SCENES = (errors, transaction, parts, mapped, reflection, current_of, pool)
URLS = (values, asynchronous, migrations)
answer({**{play.__name__: scene(play) for play in SCENES}, **{play.__name__: play for play in URLS}})
