"""The role for which a session acts: SET ROLE and SET SESSION AUTHORIZATION (manual, part VI).

Called by `variable`, by `set_config`, and by the session where settings come back. What must hold: a session takes only a role of which
its session user is a member, and another session user only if the one that logged in is a superuser. Who acts follows from the settings
`session_authorization` and `role` alone (`follow`): what gives these back, a ROLLBACK, the end of SET LOCAL, a savepoint, gives back the
role; nothing else changes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headgate.catalog.physical import Cursor
from headgate.catalog.security import role as roles
from headgate.catalog.security.rights import one
from headgate.catalog.security.role import Role
from headgate.errors import PostgresError

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession

NAMES = ("role", "session_authorization")


def set_to(session: ClientSession, setting: str, value: str | None, *, local: bool) -> None:
    """SET ROLE, SET SESSION AUTHORIZATION, and set_config of either; None for DEFAULT."""
    if setting.lower() == "role":
        set_role(session, session.settings.reset_text(setting) if value is None else value, local=local)
    else:
        set_session_authorization(session, value, local=local)


def set_role(session: ClientSession, name: str, *, local: bool) -> None:
    """SET ROLE name | NONE."""
    with _reading(session) as cursor:
        wanted = session.context.session_user if name == "none" else name
        role = roles.lookup(cursor, wanted)
        if role is None:
            raise PostgresError("22023", f'role "{wanted}" does not exist')
        asking = roles.get(cursor, session.context.session_user)
        if not asking.superuser and role.oid not in roles.memberships(cursor, asking.oid):
            raise PostgresError("42501", f'permission denied to set role "{wanted}"')
    session.taken_roles[role.name] = role
    session.settings.set("role", name, local=local)
    follow(session)


def set_session_authorization(session: ClientSession, name: str | None, *, local: bool) -> None:
    """SET SESSION AUTHORIZATION name | DEFAULT."""
    with _reading(session) as cursor:
        authenticated = roles.get(cursor, session.backend.role_name or session.context.session_user)
        wanted = authenticated if name is None else roles.lookup(cursor, name)
    if wanted is None:
        raise PostgresError("22023", f'role "{name}" does not exist')
    if wanted.oid != authenticated.oid and not authenticated.superuser:
        raise PostgresError("42501", f'permission denied to set session authorization "{name}"')
    session.taken_roles[wanted.name] = wanted
    session.settings.set("session_authorization", wanted.name, local=local)
    session.settings.set("role", session.settings.reset_text("role") if name is None else "none", local=local)
    follow(session)


def begin_with(session: ClientSession, setting: str, value: str) -> None:
    """What the start-up packet says: a role, to which RESET goes back; a session user only so that it is refused to who may not have it."""
    if setting.lower() == "role":
        set_role(session, value, local=False)
        session.settings.give(setting, value, "client", superuser=True)
        return
    with _reading(session) as cursor:
        wanted = roles.lookup(cursor, value)
    if wanted is None:
        raise PostgresError("22023", f'role "{value}" does not exist')
    if wanted.oid != session.context.user_oid and not session.context.superuser:
        raise PostgresError("42501", f'permission denied to set session authorization "{value}"')


def discard(session: ClientSession) -> None:
    """DISCARD ALL: who logged in acts again."""
    set_session_authorization(session, None, local=False)


def follow(session: ClientSession) -> None:
    """Who acts is whom the settings name."""
    authorization, chosen = session.settings.text("session_authorization"), session.settings.text("role")
    session.context.session_user = authorization
    name = authorization if chosen == "none" else chosen
    if name != session.context.user:
        _become(session, session.taken_roles[name])


def refresh(session: ClientSession, cursor: Cursor | None = None) -> None:
    """Read the acting role's name and whether it is a superuser from the newest catalog, before each statement.

    A role that has been dropped has no rights, even if a new role has its name.
    """
    if cursor is None:
        with _reading(session) as found_cursor:
            refresh(session, found_cursor)
        return
    context = session.context
    found = one(cursor, "SELECT rolsuper, rolname FROM hg.pg_authid WHERE oid = ?", [context.user_oid])
    context.superuser, name = found or (False, f"unknown (OID={context.user_oid})")
    if name != context.user:
        context.session_user = name if context.session_user == context.user else context.session_user
        context.user = name


@contextlib.contextmanager
def _reading(session: ClientSession) -> Iterator[Cursor]:
    """Yield the cursor of the open transaction, so that its own changes of roles count; without one a cursor in autocommit."""
    storage = session.block.storage
    if storage is not None:
        yield storage.cursor
        return
    with contextlib.closing(session.node.catalog.cursor()) as cursor:
        yield cursor


def _become(session: ClientSession, role: Role) -> None:
    session.context.user, session.context.user_oid, session.context.superuser = role.name, role.oid, role.superuser
    session.settings.override("is_superuser", "on" if role.superuser else "off")
