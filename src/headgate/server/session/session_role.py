"""The role that a session acts as: SET ROLE and SET SESSION AUTHORIZATION (manual, part VI).

Called by `variable`, by `set_config`, and by the session when settings are restored. Invariants: a session can set only a role of which
its session user is a member. It can set another session user only if the authenticated user is a superuser. The acting role depends only
on the settings `session_authorization` and `role` (`follow`). So whatever restores these settings (ROLLBACK, ROLLBACK TO, the end of a
SET LOCAL) also restores the role, and nothing else changes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headgate.catalog.physical import Cursor
from headgate.catalog.security import role as roles
from headgate.catalog.security.rights import one
from headgate.catalog.security.role import Role
from headgate.errors import PostgresError, existing

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession

NAMES = ("role", "session_authorization")


def set_to(session: ClientSession, setting: str, value: str | None, *, local: bool) -> None:
    """Execute SET ROLE, SET SESSION AUTHORIZATION or set_config of either; a `value` of None is DEFAULT."""
    if setting.lower() == "role":
        set_role(session, session.settings.reset_text(setting) if value is None else value, local=local)
    else:
        set_session_authorization(session, value, local=local)


def set_role(session: ClientSession, name: str, *, local: bool) -> None:
    """Execute SET ROLE name | NONE. Raise 22023 if the role does not exist, 42501 if the session user is not a member of it."""
    with _reading(session) as cursor:
        role_name = session.context.session_user if name == "none" else name
        role = existing(roles.lookup(cursor, role_name), "22023", f'role "{role_name}"')
        session_user = roles.get(cursor, session.context.session_user)
        if not session_user.superuser and role.oid not in roles.memberships(cursor, session_user.oid):
            raise PostgresError("42501", f'permission denied to set role "{role_name}"')
    session.taken_roles[role.name] = role
    session.settings.set("role", name, local=local)
    follow(session)


def set_session_authorization(session: ClientSession, name: str | None, *, local: bool) -> None:
    """Execute SET SESSION AUTHORIZATION name | DEFAULT. Raise 22023 if the role does not exist, 42501 without the right to set it."""
    with _reading(session) as cursor:
        authenticated = roles.get(cursor, session.backend.role_name or session.context.session_user)
        role = authenticated if name is None else roles.lookup(cursor, name)
    if role is None:
        raise PostgresError("22023", f'role "{name}" does not exist')
    if role.oid != authenticated.oid and not authenticated.superuser:
        raise PostgresError("42501", f'permission denied to set session authorization "{name}"')
    session.taken_roles[role.name] = role
    session.settings.set("session_authorization", role.name, local=local)
    session.settings.set("role", session.settings.reset_text("role") if name is None else "none", local=local)
    follow(session)


def begin_with(session: ClientSession, setting: str, value: str) -> None:
    """Apply `role` or `session_authorization` from the startup packet. Raise 22023 or 42501 if the role does not exist or is not permitted.

    `role` becomes the value to which RESET returns. `session_authorization` is only checked.
    """
    if setting.lower() == "role":
        set_role(session, value, local=False)
        session.settings.set_initial(setting, value, "client", superuser=True)
        return
    with _reading(session) as cursor:
        role = roles.lookup(cursor, value)
    if role is None:
        raise PostgresError("22023", f'role "{value}" does not exist')
    if role.oid != session.context.user_oid and not session.context.superuser:
        raise PostgresError("42501", f'permission denied to set session authorization "{value}"')


def discard(session: ClientSession) -> None:
    """Make the authenticated user the acting role again (DISCARD ALL)."""
    set_session_authorization(session, None, local=False)


def follow(session: ClientSession) -> None:
    """Make the role named by the settings the acting role."""
    authorization, chosen = session.settings.text("session_authorization"), session.settings.text("role")
    session.context.session_user = authorization
    name = authorization if chosen == "none" else chosen
    if name != session.context.user:
        _become(session, session.taken_roles[name])


def refresh(session: ClientSession, cursor: Cursor | None = None) -> None:
    """Read the acting role's name and superuser attribute from the latest catalog, before each statement.

    If the role has been dropped, it has no privileges, even if a new role has its name.
    """
    if cursor is None:
        with _reading(session) as new_cursor:
            refresh(session, new_cursor)
        return
    context = session.context
    row = one(cursor, "SELECT rolsuper, rolname FROM hg.pg_authid WHERE oid = ?", [context.user_oid])
    context.superuser, name = row or (False, f"unknown (OID={context.user_oid})")
    if name != context.user:
        context.session_user = name if context.session_user == context.user else context.session_user
        context.user = name


@contextlib.contextmanager
def _reading(session: ClientSession) -> Iterator[Cursor]:
    """Yield the open transaction's cursor, so that its own changes of roles count. If none is open, yield a cursor in autocommit."""
    storage = session.block.storage
    if storage is not None:
        yield storage.cursor
        return
    with contextlib.closing(session.node.catalog.cursor()) as cursor:
        yield cursor


def _become(session: ClientSession, role: Role) -> None:
    session.context.user, session.context.user_oid, session.context.superuser = role.name, role.oid, role.superuser
    session.settings.override("is_superuser", "on" if role.superuser else "off")
