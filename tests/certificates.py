"""Certificates for tests, created by the openssl program: an authority, and the certificates that it issues and revokes."""

from __future__ import annotations

import subprocess
from pathlib import Path

_CONF = """
[ca]
default_ca = own
[own]
dir = {folder}
database = {folder}/index.txt
new_certs_dir = {folder}
certificate = {folder}/ca.crt
private_key = {folder}/ca.key
serial = {folder}/serial
crlnumber = {folder}/crlnumber
default_md = sha256
default_crl_days = 30
default_days = 30
policy = any
unique_subject = no
copy_extensions = copy
[any]
organizationName = optional
commonName = supplied
"""


class Authority:
    """A certificate authority with its files in one folder. `root`: its certificate. `crl`: its revocation list."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir()
        self.folder = folder
        self.root = folder / "ca.crt"
        self.crl = folder / "ca.crl"
        (folder / "index.txt").touch()
        (folder / "serial").write_text("0A1B2C3D4E5F60718293A4B5C6D7E8F901234567\n")
        (folder / "crlnumber").write_text("01\n")
        (folder / "ca.conf").write_text(_CONF.format(folder=folder))
        self._openssl(
            "req",
            "-x509",
            *self._key("ca"),
            "-out",
            self.root,
            "-subj",
            f"/CN={name}",
            "-days",
            "30",
            "-addext",
            "keyUsage=keyCertSign,cRLSign",
        )
        self.list_revoked()

    @staticmethod
    def _openssl(*arguments: object) -> None:
        completed = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True)
        assert completed.returncode == 0, completed.stderr

    def _key(self, name: str) -> list[object]:
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", self.folder / f"{name}.key"]

    def issue(self, name: str, subject: str, *, hosts: str = "", expired: bool = False) -> Path:
        """Create NAME.crt and NAME.key. Return the path of NAME.crt. `hosts` is like "DNS:localhost,IP:127.0.0.1"."""
        request, certificate = self.folder / f"{name}.csr", self.folder / f"{name}.crt"
        extension = ["-addext", f"subjectAltName={hosts}"] if hosts else []
        self._openssl("req", "-new", "-utf8", *self._key(name), "-out", request, "-subj", subject, *extension)
        days = ["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"] if expired else []
        conf = self.folder / "ca.conf"
        self._openssl("ca", "-batch", "-notext", "-config", conf, "-in", request, "-out", certificate, *days)
        self.key(name).chmod(0o600)
        return certificate

    def key(self, name: str) -> Path:
        """Return the private key of a certificate."""
        return self.folder / f"{name}.key"

    def revoke(self, certificate: Path) -> None:
        """Revoke a certificate."""
        self._openssl("ca", "-config", self.folder / "ca.conf", "-revoke", certificate)
        self.list_revoked()

    def list_revoked(self) -> None:
        """Write the revocation list."""
        self._openssl("ca", "-config", self.folder / "ca.conf", "-gencrl", "-out", self.crl)
