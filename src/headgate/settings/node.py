"""The settings of a node from its files and its command line, one value for each setting.

Later layers override earlier ones: the default, headgate.conf, headgate.auto.conf (ALTER SYSTEM), ``-c name=value``. The object is
a `Mapping` from name to shown text, so that any reader of settings can use it. `headgate.settings.session` overrides it with
a session's own values. One thread reloads (`reload`), and any thread may read: all values are replaced at once.

>>> settings = Settings.of({"wal_sender_timeout": "90s"})
>>> settings.text("wal_sender_timeout"), settings.value("wal_sender_timeout")
('90s', 90000)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headgate.errors import PostgresError, Severity
from headgate.settings import check, file
from headgate.settings.definition import SettingContext, SettingDefinition, SettingKind
from headgate.settings.table import IN_FILE, definitions, find
from headgate.settings.values import Setting, Values

CONF = "headgate.conf"
AUTO_CONF = "headgate.auto.conf"


@dataclass(frozen=True)
class Reload:
    """The result of a reload: the names of changed settings, and the messages for the log (severity LOG)."""

    changed: tuple[str, ...]
    messages: tuple[PostgresError, ...]
    has_errors: bool = False
    """Whether the files have errors, so that some or all of them were not applied."""


def _own_name(name: str) -> str:
    """Return the node's own name of a Spark setting, or the name itself: SHOW spark_master shows the value of spark.master."""
    return "spark_master" if name.lower() == "spark.master" else name


def placeholder_definition(name: str, *, hidden: bool = False) -> SettingDefinition:
    """Return the definition of a setting that only its user knows (``a.b``, ``spark.…``). `hidden`: pg_settings does not show it."""
    flags = frozenset({"CUSTOM_PLACEHOLDER", *(["NO_SHOW_ALL"] if hidden else [])})
    return SettingDefinition(name, SettingKind.STRING, "", SettingContext.USER, "Customized Options", "", flags=flags)


class Settings(Values):
    """All settings of one node."""

    def __init__(self, data_dir: Path | None = None, command_line: Mapping[str, str] | None = None) -> None:
        """`command_line` overrides the files. Without a `data_dir` there are no files. `load` reads the values."""
        self.data_dir = data_dir
        self.command_line = dict(command_line or {})
        self.complaints: list[PostgresError] = []
        """What is wrong with the files, as LOG lines; `load` fills it before it raises."""
        self.pending: frozenset[str] = frozenset()
        """The settings whose value in the files waits for a restart (`pg_settings.pending_restart`), by their name in lower case."""
        self._values: dict[str, Setting] = _defaults()

    @classmethod
    def of(cls, values: Mapping[str, str] | None = None) -> Settings:
        """Return settings without files: the defaults and these values. Raises as `load` does."""
        settings = cls(None, values)
        settings.load()
        return settings

    # ---- reading the layers -------------------------------------------------------------------------------

    def load(self) -> Settings:
        """Read files and command line. Raise 42704 or 22023 for the command line, F0000 for files (see `complaints`)."""
        overriding = {}
        for option, text in self.command_line.items():
            name = _own_name(option)
            setting = self._check(name, text)
            overriding[name.lower()] = replace(setting, source="command line")
        values, self.complaints = self._read_files()
        if self.complaints:
            raise PostgresError("F0000", f'configuration file "{self.conf}" contains errors', severity=Severity.FATAL)
        self._values = _defaults() | values | overriding | self._places()
        version = self._values["server_version"]
        if version.source != "default":
            number = find("server_version_num")
            assert number is not None
            self._values["server_version_num"] = Setting(number, check.version_number(str(version.value)), "override")
        return self

    def reload(self) -> Reload:
        """Read the files again, like SIGHUP: wrong lines are reported and skipped, and changes that need a restart are reported."""
        values, messages = self._read_files()
        fatal = [error for error in messages if error.sqlstate in {"42601", "42704"}]
        if fatal:
            # PostgreSQL applies no setting if a file cannot be parsed or has a setting that does not exist
            messages.append(_log(f'configuration file "{self.conf}" contains errors; no changes were applied'))
            return Reload((), tuple(messages), has_errors=True)
        old = self._values
        fixed_names = {name for name, setting in old.items() if setting.source in {"command line", "override"}}
        new = _defaults() | {name: old[name] for name in fixed_names}
        for name, setting in values.items():
            if name not in fixed_names:
                new[name] = setting
        changed: list[str] = []
        pending = set()
        for name in sorted({*old, *new}):
            before, after = old.get(name), new.get(name)
            if before is None or after is None:
                changed.extend(setting.definition.name for setting in (before, after) if setting is not None)
                continue
            if before.value == after.value:
                continue
            title = after.definition.name
            if after.definition.context is SettingContext.POSTMASTER or title in IN_FILE:
                messages.append(_log(f'parameter "{title}" cannot be changed without restarting the server', "55P02"))
                new[name] = before
                pending.add(name)
                continue
            reset = after.source == "default"
            messages.append(
                _log(f'parameter "{title}" removed from configuration file, reset to default')
                if reset
                else _log(f'parameter "{title}" changed to "{after.definition.show(after.value)}"')
            )
            changed.append(title)
        if any(error.sqlstate != "00000" for error in messages):
            messages.append(_log(f'configuration file "{self.conf}" contains errors; unaffected changes were applied'))
        self._values = new
        self.pending = frozenset(pending)
        return Reload(tuple(changed), tuple(messages), has_errors=any(error.sqlstate not in ("00000", "55P02") for error in messages))

    def _read_files(self) -> tuple[dict[str, Setting], list[PostgresError]]:
        values: dict[str, Setting] = {}
        wrong: list[PostgresError] = []
        last: dict[str, file.FileEntry] = {}
        for path in (self.conf, self.auto_conf):
            if path is None:
                continue
            try:
                text = path.read_text(encoding="utf-8", errors="surrogateescape")
            except FileNotFoundError:
                if path == self.conf:
                    wrong.append(_log(f'could not open configuration file "{path}": No such file or directory', "58P01"))
                continue
            entries, malformed = file.read(text, str(path))
            wrong += malformed
            for entry in entries:
                if find(entry.name) is None and not check.placeholder(entry.name):
                    text_of = f'unrecognized configuration parameter "{entry.name}" in file "{entry.file}" line {entry.line}'
                    wrong.append(_log(text_of, "42704"))
                last[_own_name(entry.name).lower()] = entry
        if wrong:
            return values, wrong
        for name, entry in last.items():
            try:
                setting = self._check(_own_name(entry.name), entry.value, in_file=True)
            except PostgresError as error:
                wrong.append(_as_log(error))
                continue
            values[name] = replace(setting, source="configuration file", file=entry.file, line=entry.line)
        return values, wrong

    @staticmethod
    def _check(name: str, text: str, *, in_file: bool = False) -> Setting:
        definition = find(name)
        if definition is None:
            check.check_placeholder(name)
            return Setting(placeholder_definition(name), text)
        internal = definition.context is SettingContext.INTERNAL and definition.name not in IN_FILE
        if internal or (in_file and "DISALLOW_IN_FILE" in definition.flags):
            raise PostgresError("55P02", f'parameter "{definition.name}" cannot be changed')
        return Setting(definition, check.canonical(definition, definition.read(text)))

    def _places(self) -> dict[str, Setting]:
        """Return the settings that contain the paths of the files."""
        if self.data_dir is None:
            return {}
        known = {"data_directory": self.data_dir, "config_file": self.data_dir / CONF}
        known |= {"hba_file": self.data_dir / "pg_hba.conf", "ident_file": self.data_dir / "pg_ident.conf"}
        return {
            name: Setting(setting, str(path), "override")
            for name, path in known.items()
            if (setting := find(name)) and name not in self.command_line
        }

    @property
    def conf(self) -> Path | None:
        return self.data_dir / CONF if self.data_dir else None

    @property
    def auto_conf(self) -> Path | None:
        return self.data_dir / AUTO_CONF if self.data_dir else None

    # ---- values --------------------------------------------------------------------------------------------

    def setting(self, name: str) -> Setting:
        """Return the setting of that name, regardless of case. Raise 42704 if there is none."""
        setting = self._values.get(name.lower())
        if setting is None:
            raise check.unrecognized(name)
        return setting

    def spark(self) -> dict[str, str]:
        """Return the settings with which Spark starts, by Spark's names, including `spark_master` and `spark_driver_memory`."""
        overrides = {setting.definition.name: str(setting.value) for name, setting in self._values.items() if name.startswith("spark.")}
        own = {"spark.master": self.text("spark_master"), "spark.driver.memory": f"{self.integer('spark_driver_memory')}m"}
        return own | overrides

    def __getitem__(self, name: str) -> str:
        """Return the shown text. Spark's own names return the value with which Spark starts. Raises KeyError, as a Mapping does."""
        if name.lower() in self._values:
            return self._values[name.lower()].shown
        return self.spark()[name]

    def __iter__(self) -> Iterator[str]:
        yield from (setting.definition.name for name, setting in self._values.items() if not name.startswith("spark."))
        yield from self.spark()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def all(self) -> Mapping[str, Setting]:
        """Return all settings by their name in lower case."""
        return self._values

    # ---- ALTER SYSTEM --------------------------------------------------------------------------------------

    def alter_system(self, name: str, text: str | None) -> None:
        """Write a value to headgate.auto.conf, or remove it (None). A reload puts it in force. Raises as SET does."""
        definition = find(name)
        if definition is None:
            check.check_placeholder(name)
        elif definition.context is SettingContext.INTERNAL or {"DISALLOW_IN_FILE", "DISALLOW_IN_AUTO_FILE"} & definition.flags:
            raise PostgresError("55P02", f'parameter "{definition.name}" cannot be changed')
        if text is not None:
            self._check(name, text)
            if "\n" in text:
                raise PostgresError("22023", "parameter value for ALTER SYSTEM must not contain a newline")
        values = {entry.name: entry.value for entry in self._auto_entries() if entry.name.lower() != name.lower()}
        if text is not None:
            values[definition.name if definition else name] = text
        self._write_auto(values)

    def alter_system_reset_all(self) -> None:
        self._write_auto({})

    def _auto_entries(self) -> list[file.FileEntry]:
        path = self.auto_conf
        if path is None or not path.exists():
            return []
        entries, wrong = file.read(path.read_text(encoding="utf-8"), str(path))
        if wrong:
            raise PostgresError("F0000", f'could not parse contents of file "{path}"')
        return entries

    def _write_auto(self, values: Mapping[str, str]) -> None:
        path = self.auto_conf
        assert path is not None
        new = path.with_suffix(".conf.tmp")
        new.write_text(file.write_auto(values), encoding="utf-8")
        new.chmod(0o600)
        new.replace(path)


def _defaults() -> dict[str, Setting]:
    return {name: Setting(definition, definition.default) for name, definition in definitions().items()}


def _log(message: str, sqlstate: str = "00000") -> PostgresError:
    return PostgresError(sqlstate, message, severity=Severity.LOG)


def _as_log(error: PostgresError) -> PostgresError:
    return PostgresError(error.sqlstate, error.message, detail=error.detail, hint=error.hint, severity=Severity.LOG)
