"""TLS connections, their rejections with PostgreSQL's messages, and replication through TLS in both directions."""

from __future__ import annotations

import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from tests.certificates import Authority
from tests.conftest import PG_BIN, NodeServer, Server, until
from tests.log import Log

from headgate.errors import PostgresError
from headgate.server.authentication import scram
from headgate.server.protocol import certificate
from headgate.server.protocol.connection import Connection
from headgate.server.protocol.tls import Tls
from headgate.settings.node import Settings
from headgate.walreceiver.link import Link

SSL_REQUEST = struct.pack("!ii", 8, 80877103)
HOSTS = "DNS:localhost,IP:127.0.0.1"


@pytest.fixture(scope="module")
def authority() -> Iterator[Authority]:
    folder = Path(tempfile.mkdtemp(prefix="headgate-test-"))  # the user postgres reads the roots
    folder.chmod(0o755)
    test_authority = Authority(folder / "ca", "Test Authority")
    test_authority.issue("server", "/CN=localhost", hosts=HOSTS)
    test_authority.issue("ann", "/O=Büro, Mitte/CN=ann")
    test_authority.issue("late", "/CN=ann", expired=True)
    test_authority.revoke(test_authority.issue("gone", "/CN=ann"))
    yield test_authority
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def stranger(authority: Authority) -> Authority:
    """An authority that no server trusts, and its certificate for ann."""
    unknown_authority = Authority(authority.folder.parent / "stranger", "Stranger")
    unknown_authority.issue("ann", "/CN=ann")
    return unknown_authority


@pytest.fixture
def node(spare_node: Callable[..., Server], authority: Authority) -> Iterator[NodeServer]:
    """A node with TLS. ann must have a certificate and bob a password. All other roles are trusted."""
    tls_node = spare_node(
        ssl="on",
        ssl_cert_file=f"'{authority.folder}/server.crt'",
        ssl_key_file=f"'{authority.key('server')}'",
        ssl_ca_file=f"'{authority.root}'",
        ssl_crl_file=f"'{authority.crl}'",
        log_line_prefix="'%m [%p] '",
    )
    assert isinstance(tls_node, NodeServer)
    hba = tls_node.data / "pg_hba.conf"
    rules_before = hba.read_text()
    rules = ["hostssl all ann all cert", "host all bob all scram-sha-256", "hostnossl all eve all reject", rules_before]
    hba.write_text("\n".join(rules))
    tls_node.psql(
        "postgres", "CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN PASSWORD 'geheim'; CREATE ROLE eve LOGIN; SELECT pg_reload_conf()"
    )
    until(lambda: tls_node.psql("postgres", "SELECT count(*) FROM pg_hba_file_rules") == "9", "the rules are not read")
    yield tls_node
    hba.write_text(rules_before)
    tls_node.psql("postgres", "DROP ROLE ann, bob, eve; SELECT pg_reload_conf()")


def verified(node: Server, authority: Authority, user: str = "bob", **more: str) -> str:
    """Return a connection string of a client that verifies the server's certificate."""
    parameters = {"host": "localhost", "sslmode": "verify-full", "sslrootcert": str(authority.root), "password": "geheim", **more}
    return node.conninfo(user=user, **parameters)


def own(authority: Authority, name: str) -> dict[str, str]:
    """Return the connection parameters of a client's certificate."""
    return {"sslcert": f"{authority.folder}/{name}.crt", "sslkey": str(authority.key(name))}


def test_clients_connect_with_verified_name_and_channel_binding(node: NodeServer, authority: Authority) -> None:
    info = verified(node, authority, channel_binding="require")
    with psycopg.connect(info) as session:
        assert session.execute("SELECT ssl, version, bits > 0, client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone() == (
            True,
            "TLSv1.3",
            True,
            None,
        )
    completed = subprocess.run(
        [PG_BIN / "psql", "-X", "-At", "-d", info, "-c", r"\conninfo", "-c", "SELECT 1"], capture_output=True, text=True
    )
    assert completed.returncode == 0, completed.stderr
    assert "SSL connection (protocol: TLSv1.3" in completed.stdout
    with psycopg.connect(verified(node, authority, channel_binding="require", ssl_max_protocol_version="TLSv1.2")) as session:
        assert session.execute("SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone() == ("TLSv1.2",)
    with psycopg.connect(node.conninfo(user="bob", password="geheim", sslmode="disable")) as session:
        assert session.execute("SELECT ssl, version FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone() == (False, None)


def test_client_certificate_authenticates_the_role_that_it_names(node: NodeServer, authority: Authority) -> None:
    with psycopg.connect(verified(node, authority, "ann", **own(authority, "ann"))) as session:
        row = session.execute("SELECT client_dn, client_serial, issuer_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone()
        by_serial = session.execute("SELECT count(*) FROM pg_stat_ssl WHERE client_serial IS NOT NULL").fetchone()
    assert row is not None
    assert row[0] == "/O=Büro\\, Mitte/CN=ann"
    assert 0 < int(row[1]) - 0x0A1B2C3D4E5F60718293A4B5C6D7E8F901234567 < 10
    assert row[2] == "/CN=Test Authority"
    assert by_serial == (1,)


REFUSED = [
    ("ann", {}, "connection requires a valid client certificate"),
    ("eve", {"sslmode": "disable"}, 'pg_hba.conf rejects connection for host "127.0.0.1", user "eve", database "postgres", no encryption'),
    ("bob", {"password": "falsch"}, 'password authentication failed for user "bob"'),
    ("bob", {"sslmode": "disable", "channel_binding": "require"}, "channel binding required"),
]


@pytest.mark.parametrize(("user", "parameters", "message"), REFUSED)
def test_client_without_valid_credentials_is_rejected(
    node: NodeServer, authority: Authority, user: str, parameters: dict[str, str], message: str
) -> None:
    with pytest.raises(psycopg.OperationalError, match=message):
        psycopg.connect(verified(node, authority, user, **parameters))


@pytest.mark.parametrize(("name", "alert"), [("late", "certificate expired"), ("gone", "certificate revoked"), ("stranger", "unknown ca")])
def test_invalid_client_certificate_is_rejected(node: NodeServer, authority: Authority, stranger: Authority, name: str, alert: str) -> None:
    log = Log(node)
    certificate_files = own(stranger, "ann") if name == "stranger" else own(authority, name)
    with pytest.raises(psycopg.OperationalError, match=alert):
        psycopg.connect(verified(node, authority, "ann", **certificate_files))
    until(lambda: log.matching("could not accept SSL connection: certificate verify failed"), "the rejection is not logged")


def test_client_rejects_an_unknown_server_certificate(node: NodeServer, authority: Authority, stranger: Authority) -> None:
    log = Log(node)
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        psycopg.connect(verified(node, stranger))
    until(
        lambda: log.matching("could not accept SSL connection: "), "the rejection is not logged"
    )  # the client's alert, if it arrived before the connection ended


def test_certificate_admits_no_other_role(node: NodeServer, authority: Authority) -> None:
    rules = node.data / "pg_hba.conf"
    rules_before = rules.read_text()
    rules.write_text("hostssl all eve all trust clientcert=verify-full\nhostssl all bob all cert clientname=DN\n" + rules_before)
    node.headgate("reload")
    log = Log(node)
    try:
        until(lambda: "eve" in node.psql("postgres", "SELECT user_name FROM pg_hba_file_rules WHERE line_number = 1"), "not read")
        until(
            lambda: refusal(verified(node, authority, "eve", **own(authority, "ann"))) == '"trust" authentication failed for user "eve"',
            "in",
        )
        assert refusal(verified(node, authority, "bob", **own(authority, "ann"))) == 'certificate authentication failed for user "bob"'
    finally:
        rules.write_text(rules_before)
        node.headgate("reload")
    until(
        lambda: log.matching('certificate validation (clientcert=verify-full) failed for user "eve": CN mismatch'),
        "the mismatch is not logged",
    )
    assert log.matching("provided user name (bob) and authenticated user name (CN=ann,O=B\\C3\\BCro\\, Mitte) do not match")
    assert log.matching('certificate authentication failed for user "bob"')[-1].detail.startswith(
        'Connection matched pg_hba.conf line 2: "hostssl'
    )


def test_map_decides_which_roles_a_certificate_may_use(node: NodeServer, authority: Authority) -> None:
    rules, maps = node.data / "pg_hba.conf", node.data / "pg_ident.conf"
    files_before = rules.read_text(), maps.read_text()
    rules.write_text(f"hostssl all bob all cert map=people\nhostssl all eve all cert map=people clientname=DN\n{files_before[0]}")
    maps.write_text('people ann bob\npeople "/^CN=(an)n,O=" eve\n')
    node.headgate("reload")
    try:
        until(lambda: not refusal(verified(node, authority, "bob", **own(authority, "ann"))), "the map is not read")
        assert not refusal(verified(node, authority, "eve", **own(authority, "ann")))
        maps.write_text("people bob bob\n")
        node.headgate("reload")
        until(lambda: refusal(verified(node, authority, "bob", **own(authority, "ann"))), "the new map is not read")
    finally:
        rules.write_text(files_before[0])
        maps.write_text(files_before[1])
        node.headgate("reload")


def refusal(conninfo: str) -> str:
    """Return the server's error message, empty if the client is accepted."""
    try:
        psycopg.connect(conninfo).close()
    except psycopg.OperationalError as error:
        return str(error).rsplit("FATAL:  ", 1)[-1].strip()
    return ""


def test_reload_uses_a_new_certificate_and_keeps_the_old_one_if_it_is_invalid(node: NodeServer, authority: Authority) -> None:
    own_certificate, key = authority.folder / "server.crt", authority.key("server")
    files_before = (own_certificate.read_bytes(), key.read_bytes())
    first = served(node)
    log = Log(node)
    try:
        authority.issue("server", "/CN=localhost", hosts=HOSTS)
        node.headgate("reload")
        until(lambda: served(node) != first, "the new certificate is not served")
        with psycopg.connect(verified(node, authority, channel_binding="require")):
            second = served(node)
        own_certificate.write_text("no certificate")
        node.headgate("reload")
        until(lambda: log.matching("SSL configuration was not reloaded"), "the invalid certificate is not reported")
        assert log.matching(f'could not load server certificate file "{own_certificate}"')
        own_certificate.write_bytes(files_before[0])
        key.chmod(0o640)
        node.headgate("reload")
        until(lambda: log.matching(f'private key file "{key}" has group or world access'), "the readable key is not reported")
        assert served(node) == second
    finally:
        own_certificate.write_bytes(files_before[0])
        key.write_bytes(files_before[1])
        key.chmod(0o600)
        node.headgate("reload")
    until(lambda: served(node) == first, "the first certificate is not served again")


def served(node: Server) -> str:
    """Return the certificate that the node sends to clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", node.port), timeout=10) as plain:
        plain.sendall(SSL_REQUEST)
        assert plain.recv(1) == b"S"
        with context.wrap_socket(plain) as wrapped:
            peer_certificate = wrapped.getpeercert(binary_form=True)
            assert peer_certificate is not None
            return ssl.DER_cert_to_PEM_cert(peer_certificate)


def test_unencrypted_bytes_before_the_handshake_are_rejected(node: NodeServer) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", node.port), timeout=10) as plain:
        plain.sendall(SSL_REQUEST + b"Q\0\0\0\x0dDROP t;\0")
        assert plain.recv(1) == b"S"
        with context.wrap_socket(plain) as wrapped:
            answer = wrapped.recv(1000)
    assert b"C08P01\0Mreceived unencrypted data after SSL request\0" in answer


def test_handshake_that_does_not_proceed_ends_after_authentication_timeout(authority: Authority) -> None:
    context = Tls.load(Settings.of(files(authority)), authority.folder)
    server, client = socket.socketpair()
    with server, client:
        connection = Connection(server)
        with pytest.raises(TimeoutError):
            connection.start_tls(context, 0)
        connection.close()


@pytest.mark.slow
def test_interrupted_handshake_blocks_no_other_client_and_times_out(node: NodeServer, authority: Authority) -> None:
    node.psql("postgres", "ALTER SYSTEM SET authentication_timeout = '1s'; SELECT pg_reload_conf()")
    until(lambda: node.psql("postgres", "SHOW authentication_timeout") == "1s", "the setting does not take effect")
    try:
        with socket.create_connection(("127.0.0.1", node.port), timeout=20) as plain:
            plain.sendall(SSL_REQUEST)
            assert plain.recv(1) == b"S"
            plain.sendall(b"\x16\x03\x01\x02\x00\x01")
            psycopg.connect(verified(node, authority)).close()
            assert plain.recv(100) == b""
    finally:
        node.psql("postgres", "ALTER SYSTEM RESET ALL; SELECT pg_reload_conf()")


@pytest.mark.slow
def test_large_data_passes_in_both_directions(node: NodeServer, authority: Authority) -> None:
    database = node.new_database()
    rows = "".join(f"{number}\t{'x' * 1000}\n" for number in range(2000))
    with psycopg.connect(
        verified(node, authority, "postgres").replace("dbname=postgres", f"dbname={database}"), autocommit=True
    ) as session:
        session.execute("CREATE TABLE t (a int, b text)")
        with session.cursor().copy("COPY t FROM STDIN") as copy:
            copy.write(rows)
        with session.cursor().copy("COPY t TO STDOUT") as copy:
            assert b"".join(bytes(chunk) for chunk in copy) == rows.encode()
        assert len(session.execute("SELECT * FROM t").fetchall()) == 2000


def test_invalid_handshake_ends_only_its_connection(node: NodeServer, authority: Authority) -> None:
    log = Log(node)
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 300, bytes(range(256))):
        with socket.create_connection(("127.0.0.1", node.port), timeout=10) as plain:
            plain.sendall(SSL_REQUEST)
            assert plain.recv(1) == b"S"
            plain.sendall(data)
            while plain.recv(1000):
                pass
    until(lambda: len(log.matching("could not accept SSL connection: ")) == 3, "the rejection is not logged")
    assert log.matching("could not accept SSL connection: http request")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(verified(node, authority, sslnegotiation="direct"))
    psycopg.connect(verified(node, authority)).close()


def test_queries_can_be_cancelled_through_tls(node: NodeServer, authority: Authority) -> None:
    with psycopg.connect(verified(node, authority)) as session:
        query = f"SELECT query FROM pg_stat_activity WHERE pid = {session.info.backend_pid}"

        def cancel() -> None:
            until(lambda: node.psql("postgres", query) == "SELECT pg_sleep(60)", "the query does not run")
            session.cancel_safe()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            session.execute("SELECT pg_sleep(60)")
        canceller.join()


# ---- replication ----------------------------------------------------------------------------------------
def test_postgresql_can_subscribe_through_tls(node: NodeServer, authority: Authority, postgres: Server) -> None:
    source, target = node.new_database(), postgres.new_database()
    for server, database in ((node, source), (postgres, target)):
        server.psql(database, "CREATE TABLE t (a int PRIMARY KEY, b text)")
    node.psql(source, "INSERT INTO t VALUES (1, 'a'); CREATE PUBLICATION p FOR TABLE t")
    secure = verified(node, authority, "postgres").replace("dbname=postgres", f"dbname={source}")
    postgres.psql(target, f"CREATE SUBSCRIPTION tls_{target} CONNECTION '{secure}' PUBLICATION p")
    try:
        until(lambda: postgres.psql(target, "SELECT count(*) FROM t") == "1", "the first row is not copied")
        node.psql(source, "INSERT INTO t VALUES " + ", ".join(f"({number}, '{'x' * 10_000}')" for number in range(2, 32)))
        until(lambda: postgres.psql(target, "SELECT count(*), sum(length(b)) FROM t") == "31|300001", "the rows do not arrive")
        kinds = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_replication r USING (pid) WHERE s.ssl"
        assert int(node.psql("postgres", kinds)) >= 1
    finally:
        postgres.psql(target, f"DROP SUBSCRIPTION tls_{target}")


@pytest.fixture
def secure_postgres(postgres: Server, authority: Authority) -> Iterator[Server]:
    """The PostgreSQL server with TLS."""
    for name in ("server.crt", "server.key"):
        shutil.copy(authority.folder / name, postgres.folder / name)
        shutil.chown(postgres.folder / name, "postgres")
        (postgres.folder / name).chmod(0o600)
    for name in ("cert", "key"):
        postgres.psql("postgres", f"ALTER SYSTEM SET ssl_{name}_file = '{postgres.folder}/server.{'crt' if name == 'cert' else name}'")
    postgres.psql("postgres", "ALTER SYSTEM SET ssl = on")
    postgres.psql("postgres", "SELECT pg_reload_conf()")
    until(lambda: postgres.psql("postgres", "SHOW ssl") == "on", "the server does not use TLS")
    yield postgres
    postgres.psql("postgres", "ALTER SYSTEM RESET ALL")
    postgres.psql("postgres", "SELECT pg_reload_conf()")


@pytest.mark.parametrize("way", ["words", "uri"])
def test_node_can_subscribe_through_tls(node: NodeServer, authority: Authority, secure_postgres: Server, way: str) -> None:
    publisher = secure_postgres
    source, target = publisher.new_database(), node.new_database()
    for server, database in ((publisher, source), (node, target)):
        server.psql(database, "CREATE TABLE t (a int PRIMARY KEY)")
    publisher.psql(source, "INSERT INTO t VALUES (1); CREATE PUBLICATION p FOR TABLE t")
    words = verified(publisher, authority, "postgres").replace("dbname=postgres", f"dbname={source}").replace("password=geheim", "")
    uri = f"postgresql://postgres@localhost:{publisher.port}/{source}?sslmode=verify-full&sslrootcert={authority.root}"
    conninfo = {"words": words, "uri": uri}[way]
    node.psql(target, f"CREATE SUBSCRIPTION {target} CONNECTION '{conninfo}' PUBLICATION p")
    try:
        until(lambda: node.psql(target, "SELECT count(*) FROM t") == "1", "the row is not copied")
        rows = publisher.psql(
            "postgres", f"SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE datname = '{source}'"
        )
        assert rows == "t"
    finally:
        node.psql(target, f"DROP SUBSCRIPTION {target}")


def test_service_and_password_files_are_read_as_by_libpq(
    node: NodeServer, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text(f"localhost:{node.port}:*:bob:geheim\n")
    (tmp_path / "password").chmod(0o600)
    parameters = {"passfile": str(tmp_path / "password"), "channel_binding": "require"}
    conninfo = verified(node, authority, **parameters).replace("password=geheim ", "")
    (tmp_path / "service").write_text("[secure]\n" + "\n".join(conninfo.split()) + "\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "service"))
    with Link.open("service=secure", "test", replication=False) as link:
        assert link.query("SELECT current_user, ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == [("bob", "t")]


# ---- without a server -----------------------------------------------------------------------------------
def files(authority: Authority) -> dict[str, str]:
    """The settings for a server's own certificate."""
    return {"ssl": "on", "ssl_cert_file": str(authority.folder / "server.crt"), "ssl_key_file": str(authority.key("server"))}


BAD = [
    ({"ssl_cert_file": "none.crt"}, 'could not load server certificate file "none.crt": No such file or directory', None),
    ({"ssl_key_file": "none.key"}, 'could not access private key file "none.key": No such file or directory', None),
    ({"ssl_cert_file": "server.key"}, 'could not load server certificate file "server.key": no start line', None),
    ({"ssl_key_file": "."}, 'private key file "." is not a regular file', None),
    ({"ssl_key_file": "ann.key"}, 'could not load private key file "ann.key": key values mismatch', None),
    ({"ssl_ca_file": "none.crt"}, 'could not load root certificate file "none.crt": No such file or directory', None),
    ({"ssl_crl_file": "none.crl"}, 'could not load SSL certificate revocation list file "none.crl": No such file or directory', None),
    ({"ssl_ciphers": "nonsense"}, "could not set the cipher list (no valid ciphers available)", None),
    (
        {"ssl_min_protocol_version": "TLSv1.3", "ssl_max_protocol_version": "TLSv1.2"},
        "could not set SSL protocol version range",
        '"ssl_min_protocol_version" cannot be higher than "ssl_max_protocol_version"',
    ),
]


@pytest.mark.parametrize(("settings", "message", "detail"), BAD)
def test_invalid_settings_are_rejected(authority: Authority, settings: dict[str, str], message: str, detail: str | None) -> None:
    with pytest.raises(PostgresError) as refused:
        Tls.load(Settings.of(files(authority) | settings), authority.folder)
    assert (refused.value.sqlstate, refused.value.message, refused.value.detail) == ("F0000", message, detail)


def test_passphrase_command_is_not_supported() -> None:
    with pytest.raises(PostgresError, match="ssl_passphrase_command") as refused:
        Settings.of({"ssl_passphrase_command": "cat secret"})
    assert refused.value.sqlstate == "0A000"


def test_key_with_a_passphrase_is_rejected_with_a_reason(authority: Authority) -> None:
    locked = authority.folder / "locked.key"
    subprocess.run(
        ["openssl", "pkey", "-in", authority.key("server"), "-aes256", "-passout", "pass:secret", "-out", locked],
        check=True,
        capture_output=True,
    )
    locked.chmod(0o600)
    with pytest.raises(PostgresError, match="cannot be loaded because it requires a passphrase") as refused:
        Tls.load(Settings.of(files(authority) | {"ssl_key_file": str(locked)}), authority.folder)
    assert "keep the key without a passphrase" in str(refused.value.detail)


def first_message(flag: str, *, plus: bool, end_point: bytes | None = b"hash") -> bytes:
    return scram.ScramServer(None, "x", b"", end_point, plus=plus).first(f"{flag},,n=,r=abc".encode())


def test_channel_binding_downgrade_is_detected() -> None:
    assert first_message("y", plus=False, end_point=None)
    assert first_message("n", plus=False)
    assert first_message("p=tls-server-end-point", plus=True)
    with pytest.raises(PostgresError, match="SCRAM channel binding negotiation error"):
        first_message("y", plus=False)
    for flag, plus in (("n", True), ("y", True), ("p=tls-server-end-point", False)):
        with pytest.raises(PostgresError, match="malformed SCRAM message"):
            first_message(flag, plus=plus)
    with pytest.raises(PostgresError, match='unsupported SCRAM channel-binding type "tls-unique"'):
        first_message("p=tls-unique", plus=True)


def test_channel_binding_data_uses_the_hash_of_the_signature(tmp_path: Path) -> None:
    sizes = {}
    for kind, words in {
        "sha384": ["-newkey", "rsa:2048", "-sha384"],
        "pss": ["-newkey", "rsa:2048", "-sha512", "-sigopt", "rsa_padding_mode:pss"],
        "ed25519": ["-newkey", "ed25519"],
    }.items():
        out = tmp_path / f"{kind}.crt"
        subprocess.run(
            ["openssl", "req", "-x509", "-nodes", "-subj", "/CN=x", *words, "-keyout", tmp_path / "key", "-out", out],
            check=True,
            capture_output=True,
        )
        end_point = certificate.end_point(ssl.PEM_cert_to_DER_cert(out.read_text()))
        sizes[kind] = None if end_point is None else len(end_point) * 8
    assert sizes == {"sha384": 384, "pss": 512, "ed25519": None}


def test_data_buffered_in_tls_is_noticed(authority: Authority) -> None:
    """Several messages in one record, and one message in several records, work as without TLS."""
    server_socket, client_socket = socket.socketpair()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(authority.root)
    messages_sent: list[bytes] = []

    def talk() -> None:
        with client.wrap_socket(client_socket, server_hostname="localhost") as wrapped:
            wrapped.sendall(b"Q\0\0\0\x04" * 3)
            for byte in b"Q\0\0\0\x06ab":
                wrapped.sendall(bytes([byte]))
            size = 0
            while size < 30_000_000:
                data = wrapped.recv(1 << 20)
                size += len(data)
            messages_sent.append(size.to_bytes(4, "big"))
            wrapped.sendall(b"X\0\0\0\x04")

    thread = threading.Thread(target=talk)
    thread.start()
    connection = Connection(server_socket)
    connection.start_tls(Tls.load(Settings.of(files(authority)), authority.folder), time.monotonic() + 60)
    messages = [connection.poll(10) for _ in range(4)]
    assert [message and (message.kind, message.body) for message in messages] == [("Q", b"")] * 3 + [("Q", b"ab")]
    connection.write(b"x" * 29_000_000)
    connection.write(b"y" * 1_000_000)
    pumped: list[object] = []
    connection.flush_while(lambda: pumped.append(connection.poll(0)))
    connection.flush()
    last = connection.poll(10)
    assert last is not None
    assert last.kind == "X"
    connection.close()
    thread.join()
