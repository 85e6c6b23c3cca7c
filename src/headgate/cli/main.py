"""The commands and their options (Typer). Entry point `main` of the script ``headgate``; also ``python -m headgate.cli.main``.

Options are those of initdb and pg_ctl. The environment variable HEADGATE_DATA stands for -D.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

import headgate
from headgate.cli import message
from headgate.cli.message import Failed, err, fail, out, refusing

app = typer.Typer(
    name="headgate",
    help="PostgreSQL logical replication for the lakehouse.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Typer contains its own copy of click, and exports only some of its exceptions.
_UsageError: type[typer.BadParameter] = typer.BadParameter.__bases__[0]
_TRY = 'Try "headgate --help" for more information.'
DataDir = Annotated[str | None, typer.Option("-D", "--pgdata", metavar="DIR", help="The data directory (default: HEADGATE_DATA).")]
Seconds = Annotated[
    float,
    typer.Option(
        "-t",
        "--timeout",
        envvar="PGCTLTIMEOUT",
        metavar="SECONDS",
        help="How long to wait (default: PGCTLTIMEOUT, else 60).",
        show_envvar=False,
    ),
]
Mode = Annotated[str, typer.Option("-m", "--mode", metavar="MODE", help="smart, fast or immediate.")]
LogFile = Annotated[Path | None, typer.Option("-l", "--log", metavar="FILE", help="Append the server log to this file.")]
Port = Annotated[str | None, typer.Option("-p", "--port", metavar="PORT", help="The port to listen on.")]
Options = Annotated[
    list[str] | None, typer.Option("-o", "--options", metavar="OPTIONS", help='Options of "headgate run", such as "-c name=value".')
]
Superuser = Annotated[
    str | None,
    typer.Option("-U", "--username", metavar="NAME", help="The superuser to connect as (default: PGUSER, else the role of initdb)."),
]
Settings = Annotated[
    list[str] | None, typer.Option("-c", metavar="NAME=VALUE", help="Override a setting, as in the command that runs the node.")
]
Wait = Annotated[bool, typer.Option("-w/-W", "--wait/--no-wait", help="Wait until the operation has completed.")]


def _data_dir(argument: str | None) -> Path:
    directory = argument or os.environ.get("HEADGATE_DATA")
    if not directory:
        fail("no data directory specified and environment variable HEADGATE_DATA unset", _TRY)
    return Path(directory).absolute()


def _run_words(options: list[str] | None, port: str | None) -> tuple[str, ...]:
    words = [word for text in options or [] for word in shlex.split(text)]
    return (*words, *(("-p", port) if port else ()))


@app.command(help="Create a data directory.")
def initdb(
    directory: Annotated[str | None, typer.Argument(metavar="[DIR]", show_default=False)] = None,
    data_dir: DataDir = None,
    username: Annotated[str | None, typer.Option("-U", "--username", metavar="NAME", help="The superuser's name.")] = None,
    auth: Annotated[str | None, typer.Option("-A", "--auth", metavar="METHOD", help="How local connections authenticate.")] = None,
    auth_local: Annotated[str | None, typer.Option(metavar="METHOD", help="The same for Unix domain sockets only.")] = None,
    auth_host: Annotated[str | None, typer.Option(metavar="METHOD", help="The same for TCP/IP only.")] = None,
    pwfile: Annotated[Path | None, typer.Option(metavar="FILE", help="A file whose first line is the superuser's password.")] = None,
    pwprompt: Annotated[bool, typer.Option("-W", "--pwprompt", help="Ask for the superuser's password.")] = False,
    encoding: Annotated[str, typer.Option("-E", "--encoding", metavar="ENCODING", help="Always UTF8.")] = "UTF8",
    locale: Annotated[str, typer.Option(metavar="LOCALE", help="Always C.")] = "C",
    no_locale: Annotated[bool, typer.Option("--no-locale", help="The same as --locale=C.")] = False,
    no_sync: Annotated[bool, typer.Option("-N", "--no-sync", help="Accepted for compatibility with initdb; no effect.")] = False,
    port: Annotated[str | None, typer.Option("-p", metavar="PORT", help="Write the port to headgate.conf.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("-c", "--set", metavar="NAME=VALUE", help="Write a setting to headgate.conf.")
    ] = None,
) -> None:
    """Create a data directory with the options of initdb. `locale`, `no_locale` and `no_sync` have no effect."""
    from headgate.cli import initdb as making

    target = data_dir or directory or os.environ.get("HEADGATE_DATA")
    if not target:
        raise Failed(
            "initdb: error: no data directory specified",
            "initdb: hint: You must identify the directory where the data for this node will reside.  Do this with either the "
            "invocation option -D or the environment variable HEADGATE_DATA.",
        )
    if encoding.upper().replace("-", "") not in {"UTF8", "UNICODE"}:
        raise Failed(f'initdb: error: encoding "{encoding}" is not supported: a node keeps text in UTF8')
    if locale not in {"C", "POSIX", "C.UTF-8", "C.utf8"}:
        raise Failed(f'initdb: error: locale "{locale}" is not supported: a node sorts text as locale C does')
    pairs = (*(_pair(text, "-c") for text in settings or []), *((("port", port),) if port else ()))
    making.initdb(making.InitdbOptions(Path(target).absolute(), username, auth, auth_local, auth_host, pwfile, pwprompt, pairs))


@app.command(help="Start a node in the background.")
def start(
    data_dir: DataDir = None,
    log: LogFile = None,
    port: Port = None,
    options: Options = None,
    seconds: Seconds = 60,
    wait: Wait = True,
) -> None:
    """Start a node with the options of pg_ctl start, and -p."""
    from headgate.cli import control

    control.start(control.Start(_data_dir(data_dir), log, _run_words(options, port), wait, seconds))


@app.command(help="Stop a node.")
def stop(data_dir: DataDir = None, mode: Mode = "fast", seconds: Seconds = 60, wait: Wait = True) -> None:
    """Stop a node with the options of pg_ctl stop."""
    from headgate.cli import control

    control.stop(_data_dir(data_dir), mode, seconds, wait=wait)


@app.command(help="Restart a node.")
def restart(
    data_dir: DataDir = None,
    mode: Mode = "fast",
    log: LogFile = None,
    port: Port = None,
    options: Options = None,
    seconds: Seconds = 60,
    wait: Wait = True,
) -> None:
    """Restart a node with the options of pg_ctl restart. Without -o and -p those of the last start are used."""
    from headgate.cli import control

    words = _run_words(options, port)
    control.restart(control.Start(_data_dir(data_dir), log, words, wait, seconds), mode, keep_options=not words)


@app.command(help="Reload the configuration files of a node.")
def reload(data_dir: DataDir = None) -> None:
    """Send SIGHUP."""
    from headgate.cli import control

    control.reload(_data_dir(data_dir))


@app.command(help="Show the status of a node, its subscriptions and its slots (exit code 3: not running; 4: no data directory).")
def status(
    data_dir: DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh the status on one screen every two seconds until Ctrl-C.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="With --watch: show all details of the status.")] = False,
) -> None:
    """Print the status of a node, with the exit codes of pg_ctl status."""
    from headgate.cli import status as shown
    from headgate.cli import watch as watching

    if watch and as_json:
        fail("options --json and --watch cannot be used together", _TRY)
    if watch:
        watching.watch(_data_dir(data_dir), verbose=verbose)
    else:
        shown.status(_data_dir(data_dir), as_json=as_json)


@app.command(help="Check the files of a node (exit code 0: no damage; 1: the check failed; 2: damage found).")
def check(
    data_dir: DataDir = None,
    database: Annotated[
        str | None, typer.Option("-d", "--database", metavar="NAME", help="Check only the tables of this database.")
    ] = None,
    online: Annotated[bool, typer.Option("--online", help="Check a running node; without this option the node must be stopped.")] = False,
    username: Superuser = None,
    settings: Settings = None,
) -> None:
    """Check a node's files, as pg_amcheck does."""
    from headgate.cli import check as checking

    directory = _data_dir(data_dir)
    with refusing():
        command_line = dict(_pair(text, "-c") for text in settings or [])
        findings = checking.online(directory, username, database) if online else checking.offline(directory, command_line, database)
        raise typer.Exit(checking.report(findings))


@app.command(help="Upgrade the data directory of a stopped node to this version.")
def upgrade(data_dir: DataDir = None) -> None:
    """Upgrade a data directory in place, as pg_upgrade --link does."""
    from headgate.cli import upgrade as upgrading

    upgrading.upgrade(_data_dir(data_dir))


@app.command(help="Back up a running or stopped node into an empty directory, from which a node can be started.")
def backup(
    destination: Annotated[Path | None, typer.Argument(metavar="TARGET", show_default=False)] = None,
    data_dir: DataDir = None,
    username: Superuser = None,
    settings: Settings = None,
    beside: Annotated[
        bool, typer.Option("--beside", help="Copy only the catalog and the settings, into the location of the tables.")
    ] = False,
) -> None:
    """Back up a node, as pg_basebackup does, but on the node's own machine."""
    from headgate.cli import backup as backing

    directory = _data_dir(data_dir)
    if beside is (destination is not None):
        raise _UsageError("Give either TARGET or --beside.")
    with refusing():
        command_line = dict(_pair(text, "-c") for text in settings or [])
        if destination is None:
            backing.beside(directory, command_line, username)
        else:
            backing.backup(directory, destination.absolute(), command_line, username)


@app.command(help="List the Delta tables of a node: path, version, LSN, rows, bytes, columns.")
def tables(
    data_dir: DataDir = None,
    database: Annotated[str | None, typer.Option("-d", "--database", metavar="NAME", help="List only the tables of this database.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_sql: Annotated[bool, typer.Option("--sql", help="Print the statements that register the tables in Spark's catalog.")] = False,
    username: Superuser = None,
    settings: Settings = None,
) -> None:
    """List the tables of a running or a stopped node."""
    from headgate.cli import tables as listing

    directory = _data_dir(data_dir)
    with refusing():
        command_line = dict(_pair(text, "-c") for text in settings or [])
        listing.tables(directory, command_line, username, database, as_json=as_json, as_sql=as_sql)


@app.command(
    help="Compare subscribed tables with their publishers, without stopping either (exit code 1: rows differ; 2: a table was skipped)."
)
def verify(
    subscription: Annotated[str | None, typer.Argument(metavar="[SUBSCRIPTION]", help="Compare only this subscription.")] = None,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="Compare only this table.")] = None,
    data_dir: DataDir = None,
    database: Annotated[str, typer.Option("-d", "--database", metavar="NAME", help="The database of the subscriptions.")] = "postgres",
    repair: Annotated[bool, typer.Option("--repair", help="Repair tables that differ, and compare them again.")] = False,
    values: Annotated[bool, typer.Option("--values", help="Print the values of both sides for rows that differ.")] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Skip tables that are being copied or reconciled instead of waiting for them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    username: Superuser = None,
) -> None:
    """Compare the tables of a running node with their publishers."""
    from headgate.cli import verify as verifying

    directory = _data_dir(data_dir)
    with refusing():
        verifying.verify(
            directory, username, database, subscription, table, as_json=as_json, repair=repair, with_values=values, wait=not no_wait
        )


@app.command(help="Call a Python function with the published changes of a node as Arrow batches, or send them to an HTTP server.")
def hook(
    target: Annotated[str, typer.Argument(metavar="MODULE:FUNCTION|URL", show_default=False)],
    publication: Annotated[str, typer.Option("--publication", metavar="NAME", help="The publication.")],
    url: Annotated[str, typer.Option("--url", metavar="CONNINFO", help="The node (default: the variables PGHOST, PGPORT and so on).")] = "",
    slot: Annotated[str, typer.Option("--slot", metavar="NAME", help="The slot that keeps the position.")] = "headgate_hook",
    start: Annotated[
        str | None, typer.Option("--start", metavar="now|snapshot", help="Create the slot if it does not exist, and begin at this point.")
    ] = None,
    max_rows: Annotated[int, typer.Option(min=1, help="Changes of a table in one batch; a failed batch is delivered again.")] = 100_000,
    interval: Annotated[float, typer.Option(min=0.01, metavar="SECONDS", help="How often to look for changes.")] = 1,
    seconds: Annotated[float, typer.Option("-t", "--timeout", min=0.01, metavar="SECONDS", help="The time limit of an HTTP request.")] = 60,
    once: Annotated[
        bool, typer.Option("--once", help="Exit after delivering the changes that exist at the start (exit code 1: failure).")
    ] = False,
) -> None:
    """Deliver changes in a separate process, which does not use the node's data directory."""
    from headgate.cli import hook as delivering

    if start not in (None, "now", "snapshot"):
        raise _UsageError(f'Option --start must be now or snapshot, not "{start}".')
    if len(slot) > delivering.LONGEST_SLOT:
        raise _UsageError(f"The name of the slot must not have more than {delivering.LONGEST_SLOT} characters.")
    delivering.hook(target, delivering.HookOptions(url, publication, slot, start, max_rows, interval, seconds, once))


@app.command(help="Synchronize external tables of Unity Catalog, a Hive metastore or AWS Glue with the published tables of a running node.")
def register(
    catalog: Annotated[str, typer.Option("--catalog", metavar="unity|hive|glue", help="The kind of catalog.")],
    publication: Annotated[str, typer.Option("--publication", metavar="NAME", help="The publication that names the tables.")],
    data_dir: DataDir = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="URI|ACCOUNT",
            help="The metastore (thrift://host:9083), the catalog of Unity Catalog (https://host/catalog) or the Glue account.",
        ),
    ] = None,
    database: Annotated[str, typer.Option("-d", "--dbname", metavar="NAME", help="The database of the publication.")] = "postgres",
    username: Annotated[str | None, typer.Option("-U", "--username", metavar="NAME", help="The superuser to connect as.")] = None,
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often to look for changes.")] = 10,
    once: Annotated[bool, typer.Option("--once", help="Exit after one round (exit code 1: failure).")] = False,
) -> None:
    """Register tables in a separate process, which reads the tables' Delta logs."""
    from headgate.cli.registration import register as registering

    if catalog not in ("unity", "hive", "glue"):
        raise _UsageError(f'Option --catalog must be unity, hive or glue, not "{catalog}".')
    if catalog != "glue" and target is None:
        raise _UsageError(f"Option --catalog={catalog} needs option --target.")
    options = registering.RegisterOptions(catalog, target, publication, database, username, interval, once)
    registering.register(_data_dir(data_dir), {}, options)


@app.command(
    help="Run a node in the foreground. --NAME=VALUE overrides any setting.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def run(
    context: typer.Context,
    data_dir: DataDir = None,
    port: Port = None,
    address: Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="The addresses to listen on.")] = None,
    settings: Annotated[list[str] | None, typer.Option("-c", metavar="NAME=VALUE", help="Set a setting.")] = None,
) -> None:
    """Run a node with the options of postgres."""
    from headgate.cli import run as running
    from headgate.errors import PostgresError, Severity

    directory = _data_dir(data_dir)
    try:
        values = dict(_pair(text, "-c") for text in settings or [])
        values |= dict(_pair(word.removeprefix("--"), "--") for word in context.args if word.startswith("--"))
    except PostgresError as error:
        message.log(error, Severity.FATAL)
        raise typer.Exit(1) from None
    for word in context.args:
        if not word.startswith("--"):
            what = f"invalid option -- '{word[1:2]}'" if word.startswith("-") else f'invalid argument: "{word}"'
            fail(what, _TRY)
    values |= {name: value for name, value in (("port", port), ("listen_addresses", address)) if value is not None}
    code = running.run(directory, values)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # skips the interpreter's shutdown, during which DuckDB would log some fifty lines about leaked objects
    os._exit(code)


def _pair(text: str, option: str) -> tuple[str, str]:
    """Split name=value. Replace dashes in the name by underscores, as postgres does."""
    from headgate.errors import PostgresError

    name, equals, value = text.partition("=")
    if not equals:
        raise PostgresError("42601", f"{option}{' ' if option == '-c' else ''}{text} requires a value")
    return name.replace("-", "_"), value


@app.command(help="Demonstrate replication of one filtered table: PostgreSQL → node → node → PostgreSQL.")
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the servers running.")] = False,
    rows: Annotated[int, typer.Option(help="The initial number of rows of the table.")] = 200_000,
    seconds: Annotated[float, typer.Option(help="How long the live workload runs.")] = 20,
) -> None:
    """Run the demonstration in a temporary directory. The exit code is 0 only if all servers have the expected rows."""
    from headgate.cli.control import fetch_jars
    from headgate.cli.demo.course import demo as show

    fetch_jars()
    with refusing():
        code = show(keep=keep, rows=rows, seconds=seconds)
    raise typer.Exit(code)


@app.command(name="fetch-jars", help="Download the jars that a node needs, before its first start.")
def fetch_jars(
    what: Annotated[
        str | None, typer.Argument(metavar="[s3|gs|azure]", help="Also download the jars for this object store.", show_default=False)
    ] = None,
) -> None:
    """Fetch the jars that are missing, and print the folders of all of them."""
    from headgate.cli.control import fetch_jars as fetch
    from headgate.storage.location.object_store import STORES
    from headgate.storage.spark.application.jars import JARS, STORE_JARS, find_jars

    stores = {store.name: store for store in STORES}
    if what is not None and what not in stores:
        raise typer.BadParameter(f"{what} is none of: {', '.join(stores)}")
    store = stores[what] if what is not None else None
    fetch(store)
    missing = find_jars(JARS + (STORE_JARS[store.name] if store is not None else ()))
    for folder in dict.fromkeys(jar.parent for jar in missing):
        out(f"jars are in {folder}")


@app.callback(invoke_without_command=True)
def _top(context: typer.Context, version: Annotated[bool, typer.Option("-V", "--version", help="Print the version.")] = False) -> None:
    if version:
        out(f"headgate {headgate.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        fail("no operation specified", _TRY)


def main() -> None:
    """Run the command line and end the process."""
    sys.exit(_main(sys.argv[1:]))


def _main(words: list[str]) -> int:
    try:
        code = typer.main.get_command(app).main(words, prog_name="headgate", standalone_mode=False)
    except Failed as failure:
        for line in failure.lines:
            err(line)
        return failure.code
    except typer.Abort:
        return 130
    except _UsageError as error:
        err(f"headgate: {error.format_message()}")
        err(_TRY)
        return 1
    return int(code or 0)


if __name__ == "__main__":
    main()
