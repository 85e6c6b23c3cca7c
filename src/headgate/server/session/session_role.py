"""The role that a session acts as: SET ROLE and SET SESSION AUTHORIZATION (manual, part VI).

Called by `variable`, by `set_config`, and by the session when settings are restored. Invariants: a session can set only a role of which
its session user is a member. It can set another session user only if the authenticated user is a superuser. The acting role depends only
on the settings `session_authorization` and `role` (`follow`). So whatever restores these settings (ROLLBACK, ROLLBACK TO, the end of a
SET LOCAL) also restores the role, and nothing else changes it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from headgate.catalog.physical import Cursor
from headgate.catalog.security import role as roles
from headgate.catalog.security.rights import one
from headgate.catalog.security.role import Role
from headgate.catalog.session import SessionContext
from headgate.commands import privilege
from headgate.errors import PostgresError, existing
from headgate.settings.session import SessionSettings

NAMES = ("role", "session_authorization")


class SessionRole:
    """The roles of one session. `context` has the acting role and the session user."""

    def __init__(
        self, authenticated: Role, context: SessionContext, settings: SessionSettings, reading: Callable[[], AbstractContextManager[Cursor]]
    ) -> None:
        """Begin with the authenticated role. `reading` yields a cursor of the catalog as the transaction sees it."""
        self._context, self._settings, self._reading = context, settings, reading
        self._authenticated = authenticated.name
        self._taken = {authenticated.name: authenticated}
        """The roles that the session has acted as, by name."""

    def set_to(self, setting: str, value: str | None, *, local: bool) -> None:
        """Execute SET ROLE, SET SESSION AUTHORIZATION or set_config of either; a `value` of None is DEFAULT.

        Raise 42501 in a SECURITY DEFINER function.
        """
        if self._context.acts_as_other:
            raise PostgresError("42501", f'cannot set parameter "{setting.lower()}" within security-definer function')
        if setting.lower() == "role":
            self._set_role(self._settings.reset_text(setting) if value is None else value, local=local)
        else:
            self._set_session_authorization(value, local=local)

    def _set_role(self, name: str, *, local: bool) -> None:
        """Execute SET ROLE name | NONE. Raise 22023 if the role does not exist, 42501 if the session user is not a member of it."""
        with self._reading() as cursor:
            session_user = self._context.session_user
            role = privilege.settable_role(cursor, session_user, session_user if name == "none" else name)
        self._taken[role.name] = role
        self._settings.set("role", name, local=local)
        self.follow()

    def _set_session_authorization(self, name: str | None, *, local: bool) -> None:
        """Execute SET SESSION AUTHORIZATION name | DEFAULT. Raise 22023 if the role does not exist, 42501 without the right to set it."""
        with self._reading() as cursor:
            authenticated = roles.get(cursor, self._authenticated)
            role = authenticated if name is None else existing(roles.lookup(cursor, name), "22023", f'role "{name}"')
        if role.oid != authenticated.oid and not authenticated.superuser:
            raise PostgresError("42501", f'permission denied to set session authorization "{name}"')
        self._taken[role.name] = role
        self._settings.set("session_authorization", role.name, local=local)
        self._settings.set("role", self._settings.reset_text("role") if name is None else "none", local=local)
        self.follow()

    def begin_with(self, setting: str, value: str) -> None:
        """Apply `role` or `session_authorization` from the startup packet.

        `role` becomes the value to which RESET returns. `session_authorization` is only checked. Raise 22023 if the role does not exist,
        42501 if it is not permitted.
        """
        if setting.lower() == "role":
            self._set_role(value, local=False)
            self._settings.set_initial(setting, value, "client", superuser=True)
            return
        with self._reading() as cursor:
            role = existing(roles.lookup(cursor, value), "22023", f'role "{value}"')
        if role.oid != self._context.user_oid and not self._context.superuser:
            raise PostgresError("42501", f'permission denied to set session authorization "{value}"')

    def discard(self) -> None:
        """Make the authenticated user the acting role again (DISCARD ALL)."""
        self._set_session_authorization(None, local=False)

    def follow(self) -> None:
        """Make the role named by the settings the acting role, after the end of the SECURITY DEFINER function that runs."""
        if self._context.acts_as_other:
            return
        authorization, chosen = self._settings.text("session_authorization"), self._settings.text("role")
        self._context.session_user = authorization
        name = authorization if chosen == "none" else chosen
        if name != self._context.user:
            self._become(self._taken[name])

    def refresh(self, cursor: Cursor | None = None) -> None:
        """Read the acting role's name and superuser attribute from the latest catalog, before each statement.

        If the role has been dropped, it has no privileges, even if a new role has its name.
        """
        if cursor is None:
            with self._reading() as new_cursor:
                self.refresh(new_cursor)
            return
        context = self._context
        row = one(cursor, "SELECT rolsuper, rolname FROM hg.pg_authid WHERE oid = ?", [context.user_oid])
        context.superuser, name = row or (False, f"unknown (OID={context.user_oid})")
        if name != context.user:
            context.session_user = name if context.session_user == context.user else context.session_user
            context.user = name

    def _become(self, role: Role) -> None:
        self._context.user, self._context.user_oid, self._context.superuser = role.name, role.oid, role.superuser
        self._settings.override("is_superuser", "on" if role.superuser else "off")
