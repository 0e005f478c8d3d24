"""A run's own secret and certificate: made when the run starts, forgotten when it ends."""

from __future__ import annotations

import datetime
import secrets
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

#: Longer than any run; the certificate is worthless once the run is over anyway.
_VALID_DAYS = 365
#: The one name all certificates are for.
TLS_NAME = "sparktrain"


@dataclass(frozen=True)
class Credentials:
    """What the driver needs to let in its own nodes and nobody else."""

    token: str = field(repr=False)
    certificate: str = field(repr=False)
    key: str = field(repr=False)

    @classmethod
    def make(cls) -> Credentials:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sparktrain run")])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            # An hour back: the clocks of executors and driver may differ.
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
            # gRPC insists on a name; which one does not matter, as only this certificate counts.
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(TLS_NAME)]), critical=False)
            .sign(key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        return cls(
            token=secrets.token_urlsafe(32),
            certificate=certificate.public_bytes(pem).decode(),
            key=key.private_bytes(
                pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ).decode(),
        )

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Python's ssl reads keys from files only; the folder is private and gone at once.
        with tempfile.TemporaryDirectory(prefix="sparktrain-key-") as folder:
            path = Path(folder) / "run.pem"
            path.touch(mode=0o600)
            path.write_text(self.key + self.certificate)
            context.load_cert_chain(path)
        return context


def client_context(certificate: str) -> ssl.SSLContext:
    """Trusts this one certificate, whatever address it is met at."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=certificate)
    return context
