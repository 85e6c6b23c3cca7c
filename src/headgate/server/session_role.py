"""The role for which a session acts: SET ROLE and SET SESSION AUTHORIZATION (manual, part VI).

Called by `variable`. What must hold: a session takes only a role of which its session user is a member, and another session user only
if the one that logged in is a superuser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.catalog import role as roles
from headgate.errors import PostgresError

if TYPE_CHECKING:
    from headgate.server.session import Session


def set_role(session: Session, name: str, *, local: bool) -> None:
    """SET ROLE name | NONE."""
    cursor = session.node.catalog.cursor()
    try:
        wanted = session.context.session_user if name == "none" else name
        role = roles.lookup(cursor, wanted)
        if role is None:
            raise PostgresError("22023", f'role "{wanted}" does not exist')
        asking = roles.get(cursor, session.context.session_user)
        if not asking.superuser and role.oid not in roles.memberships(cursor, asking.oid):
            raise PostgresError("42501", f'permission denied to set role "{wanted}"')
    finally:
        cursor.close()
    session.settings.set("role", name, local=local)
    _become(session, role.name, role.oid, superuser=role.superuser)


def set_session_authorization(session: Session, name: str | None, *, local: bool) -> None:
    """SET SESSION AUTHORIZATION name | DEFAULT."""
    cursor = session.node.catalog.cursor()
    try:
        authenticated = roles.get(cursor, session.backend.role_name or session.context.session_user)
        wanted = authenticated if name is None else roles.lookup(cursor, name)
    finally:
        cursor.close()
    if wanted is None:
        raise PostgresError("22023", f'role "{name}" does not exist')
    if wanted.oid != authenticated.oid and not authenticated.superuser:
        raise PostgresError("42501", f'permission denied to set session authorization "{name}"')
    session.settings.set("session_authorization", wanted.name, local=local)
    session.context.session_user = wanted.name
    _become(session, wanted.name, wanted.oid, superuser=wanted.superuser)


def _become(session: Session, name: str, oid: int, *, superuser: bool) -> None:
    session.context.user, session.context.user_oid, session.context.superuser = name, oid, superuser
    session.settings.override("is_superuser", "on" if superuser else "off")
