"""The settings of one session: the node's values, overridden by values given for the session and by its SETs.

The server makes one object for each connection. SET, RESET, SHOW and `set_config` use it. Invariant: SET is undone if
the transaction rolls back. SET LOCAL ends with the transaction in any case. A rollback to a savepoint undoes both. A session that has not
set a value sees the node's new value at once after a reload.

A transaction calls `remember` when it begins, and `restore` with that state when it ends. A savepoint uses `remember` and
`rollback_to`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headgate.errors import PostgresError
from headgate.settings import check
from headgate.settings.definition import SettingContext, SettingDefinition
from headgate.settings.node import Settings, placeholder_definition
from headgate.settings.table import find
from headgate.settings.values import Setting, Values

# The order of pg_settings.source, weakest first; RESET restores the strongest one that is set.
GIVEN_SOURCES = ("global", "database", "user", "database user", "client", "override")

TRANSACTION = ("transaction_isolation", "transaction_read_only", "transaction_deferrable")
"""The settings of a transaction. It begins with the value of the setting with the prefix ``default_``, and they end with it."""


@dataclass(frozen=True)
class SettingValues:
    """A session's own values at one moment."""

    session: Mapping[str, Setting] = field(default_factory=dict)
    local: Mapping[str, Setting] = field(default_factory=dict)


class SessionSettings(Values):
    """The settings as one session sees them: a Mapping from name to shown text."""

    def __init__(self, node: Settings) -> None:
        self.node = node
        self._given: dict[str, Setting] = {}
        self._state = SettingValues()
        self._placeholders: dict[str, Setting] = {}
        """The settings of no module that the session has ever set. They are empty when their values end, as in PostgreSQL."""
        self._reported: dict[str, str] = {}
        self.restored: Callable[[], None] = lambda: None
        """Called when values are restored: at a transaction's end, at ROLLBACK TO."""

    # ---- what the session starts with ---------------------------------------------------------------------

    def set_initial(self, name: str, text: str, source: str, *, superuser: bool = False) -> None:
        """Set the value that RESET restores: from ALTER DATABASE/ROLE SET or the client's start-up packet.

        `source` is one of `GIVEN_SOURCES`. A weaker one does not replace a stronger one. Raises as `set` does.
        """
        setting = self._check(name, text, superuser=superuser, starting=True)
        held = self._given.get(name.lower())
        if held is None or GIVEN_SOURCES.index(held.source) <= GIVEN_SOURCES.index(source):
            self._given[name.lower()] = replace(setting, source=source)

    def override(self, name: str, text: str) -> None:
        """Set a value that the server determines (`is_superuser`, `session_authorization`, `in_hot_standby`)."""
        definition = find(name)
        assert definition is not None, name
        self._given[name.lower()] = Setting(definition, definition.read(text), "override")

    # ---- SET and RESET ------------------------------------------------------------------------------------

    def set(self, name: str, text: str, *, local: bool = False, superuser: bool | None = None) -> None:
        """SET [LOCAL] name TO text. `superuser` defaults to `is_superuser`.

        Raises 42704, 22023, 42501, 55P02 with PostgreSQL's messages.
        """
        setting = replace(self._check(name, text, superuser=self._superuser(superuser)), source="session")
        self._put(name, setting, local=local)

    def set_values(self, name: str, values: Sequence[str], *, local: bool = False, superuser: bool | None = None) -> None:
        """SET [LOCAL] name TO value, …: several values make a list if the setting is one, each quoted if needed."""
        definition = find(name)
        if definition is not None and definition.is_list:
            self.set(name, check.join_list(definition.name, list(values)), local=local, superuser=superuser)
            return
        if len(values) != 1:
            raise PostgresError("22023", f"SET {name} takes only one argument")
        self.set(name, values[0], local=local, superuser=superuser)

    def _superuser(self, superuser: bool | None) -> bool:
        return self.flag("is_superuser") if superuser is None else superuser

    def canonical(self, name: str) -> str:
        """Return the setting's name in its own spelling. Raise 42704 if there is no such setting."""
        return self.setting(name).definition.name

    def reset(self, name: str, *, local: bool = False, superuser: bool | None = None) -> None:
        definition = self.setting(name).definition
        _check_context(definition, superuser=self._superuser(superuser), starting=False)
        if local:
            self._put(name, self._reset_value(name, definition), local=True)
            return
        without = {key: value for key, value in self._state.session.items() if key != name.lower()}
        local_without = {key: value for key, value in self._state.local.items() if key != name.lower()}
        self._state = SettingValues(without, local_without)

    def reset_all(self) -> None:
        """RESET ALL: reset all settings except those that RESET ALL does not change (role, transaction characteristics)."""
        keep = {key: value for key, value in self._state.session.items() if "NO_RESET_ALL" in value.definition.flags}
        keep_local = {key: value for key, value in self._state.local.items() if "NO_RESET_ALL" in value.definition.flags}
        self._state = SettingValues(keep, keep_local)

    def _put(self, name: str, setting: Setting, *, local: bool) -> None:
        session, inner = dict(self._state.session), dict(self._state.local)
        if local or name.lower() in TRANSACTION:
            inner[name.lower()] = setting
        else:
            session[name.lower()] = setting
            inner.pop(name.lower(), None)
        self._state = SettingValues(session, inner)

    def _check(self, name: str, text: str, *, superuser: bool, starting: bool = False) -> Setting:
        definition = find(name)
        if definition is None:
            check.check_placeholder(name)
            placeholder = placeholder_definition(name, hidden=True)
            self._placeholders.setdefault(name.lower(), Setting(placeholder, ""))
            return Setting(placeholder, text)
        _check_context(definition, superuser=superuser, starting=starting)
        return Setting(definition, check.canonical(definition, definition.read(text), self.text))

    def _reset_value(self, name: str, definition: SettingDefinition) -> Setting:
        setting = self._given.get(name.lower()) or self.node.all().get(name.lower())
        return setting if setting is not None else Setting(definition, "")

    def reset_text(self, name: str) -> str:
        return self._reset_value(name, self.setting(name).definition).shown

    # ---- transactions -------------------------------------------------------------------------------------

    def remember(self) -> SettingValues:
        """Return the state at the beginning of a transaction, or at a savepoint."""
        return self._state

    def begin_transaction(self) -> None:
        """Begin a transaction: its own settings get their defaults, which may change later without effect on it."""
        self._state = SettingValues(self._state.session, {**self._state.local, **{name: self._default(name) for name in TRANSACTION}})

    def chain(self, state: SettingValues) -> None:
        """COMMIT AND CHAIN: the new transaction has the settings of the one whose `state` this was."""
        self._state = SettingValues(self._state.session, {**self._state.local, **{name: state.local[name] for name in TRANSACTION}})

    def release(self, state: SettingValues) -> None:
        """RELEASE of the savepoint whose `state` this was: READ ONLY ends with a subtransaction, however that ends."""
        name = "transaction_read_only"
        self._state = SettingValues(self._state.session, {**self._state.local, name: state.local[name]})

    def _default(self, name: str) -> Setting:
        definition = find(name)
        assert definition is not None, name
        return Setting(definition, self.value(f"default_{name}"), "override")

    def restore(self, state: SettingValues, rolled_back: bool) -> None:
        """End a transaction that began with `state`. A rollback undoes its SETs. Its SET LOCALs always end."""
        self._state = SettingValues(state.session, {}) if rolled_back else SettingValues(self._state.session, {})
        self.restored()

    @contextlib.contextmanager
    def within(self, settings: Mapping[str, str], *, superuser: bool) -> Iterator[None]:
        """Apply values to settings inside the context: the SET clauses of a function.

        A SET in the context stays in force unless the context fails. A SET LOCAL of one of the settings ends with the context.
        """
        if not settings:
            yield
            return
        state = after = self.remember()
        try:
            for name, text in settings.items():
                self.set(name, text, local=True, superuser=superuser)
            yield
            session, own = self._state.session, {name.lower() for name in settings}
            local = {name: setting for name, setting in self._state.local.items() if name not in own}
            outer = {name: state.local[name] for name in own & state.local.keys() if session.get(name) is state.session.get(name)}
            after = SettingValues(session, {**local, **outer})
        finally:
            self.rollback_to(after)

    def rollback_to(self, state: SettingValues) -> None:
        self._state = state
        self.restored()

    # ---- values -------------------------------------------------------------------------------------------

    def setting(self, name: str) -> Setting:
        """Return the setting in force. Raise 42704 if there is none."""
        key = name.lower()
        held = self._state.local.get(key)
        if held is None and key in TRANSACTION:
            return self._default(key)
        own = held or self._state.session.get(key) or self._given.get(key)
        if own is None and key not in self.node.all():
            own = self._placeholders.get(key)
        return own or self.node.setting(name)

    def reported(self) -> list[tuple[str, str]]:
        """Return (name, text) of the settings to report to the client that have changed since the last call. The first call returns all."""
        news = []
        for setting in self.in_force().values():
            name = setting.definition.name
            if setting.definition.report and self._reported.get(name) != setting.shown:
                self._reported[name] = setting.shown
                news.append((name, setting.shown))
        return news

    def in_force(self) -> dict[str, Setting]:
        """Return all settings in force by their name in lower case."""
        own = {name: self._default(name) for name in TRANSACTION}
        return {**self._placeholders, **self.node.all(), **self._given, **self._state.session, **own, **self._state.local}

    def __getitem__(self, name: str) -> str:
        try:
            return self.setting(name).shown
        except PostgresError:
            return self.node[name]

    def __iter__(self) -> Iterator[str]:
        return (setting.definition.name for setting in self.in_force().values())

    def __len__(self) -> int:
        return len(self.in_force())

    # ---- SHOW ALL and pg_settings ---------------------------------------------------------------------------

    def all(self, *, guarded: bool) -> list[tuple[str, str, str]]:
        """Return the rows of SHOW ALL: name, setting, description. `guarded`: include settings that not every role may see."""
        shown = self._shown_to(guarded=guarded)
        return [(setting.definition.name, setting.shown, setting.definition.description) for setting in shown]

    def rows(self, *, guarded: bool) -> list[dict[str, object]]:
        """Return the rows of `pg_settings`, columns by PostgreSQL's names (manual, 54.24).

        `guarded`: include what not every role may see.
        """
        setting_rows = [self._row(setting) for setting in self._shown_to(guarded=guarded)]
        return setting_rows if guarded else [{**row, "sourcefile": None, "sourceline": None} for row in setting_rows]

    def _shown_to(self, *, guarded: bool) -> list[Setting]:
        settings = [setting for setting in self._sorted_settings() if "NO_SHOW_ALL" not in setting.definition.flags]
        return settings if guarded else [setting for setting in settings if not setting.definition.guarded]

    def _sorted_settings(self) -> list[Setting]:
        return sorted(self.in_force().values(), key=lambda setting: setting.definition.name.lower())

    def _row(self, setting: Setting) -> dict[str, object]:
        definition = setting.definition
        numeric = definition.minimum is not None
        return {
            "name": definition.name,
            "setting": definition.plain(setting.value),
            "unit": definition.unit or None,
            "category": definition.category,
            "short_desc": definition.description or None,
            "extra_desc": definition.extra or None,
            "context": definition.context.value,
            "vartype": definition.kind.value,
            "source": setting.source,
            "min_val": definition.plain(definition.minimum) if numeric and definition.minimum is not None else None,
            "max_val": definition.plain(definition.maximum) if numeric and definition.maximum is not None else None,
            "enumvals": list(definition.choices) or None,
            "boot_val": definition.plain(definition.default),
            "reset_val": definition.plain(self._reset_value(definition.name, definition).value),
            "sourcefile": setting.file,
            "sourceline": setting.line,
            "pending_restart": definition.name.lower() in self.node.pending,
        }


def _check_context(definition: SettingDefinition, *, superuser: bool, starting: bool) -> None:
    """Check whether a session may set a setting now (set_config_option). Raise 55P02 or 42501 if not."""
    name = definition.name
    match definition.context:
        case SettingContext.INTERNAL:
            raise PostgresError("55P02", f'parameter "{name}" cannot be changed')
        case SettingContext.POSTMASTER:
            raise PostgresError("55P02", f'parameter "{name}" cannot be changed without restarting the server')
        case SettingContext.SIGHUP:
            raise PostgresError("55P02", f'parameter "{name}" cannot be changed now')
        case SettingContext.BACKEND | SettingContext.SUPERUSER_BACKEND:
            if not starting:
                raise PostgresError("55P02", f'parameter "{name}" cannot be set after connection start')
            if definition.context is SettingContext.SUPERUSER_BACKEND and not superuser:
                raise PostgresError("42501", f'permission denied to set parameter "{name}"')
        case SettingContext.SUPERUSER:
            if not superuser:
                raise PostgresError("42501", f'permission denied to set parameter "{name}"')
        case SettingContext.USER:
            pass
