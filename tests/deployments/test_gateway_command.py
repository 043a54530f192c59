"""``python -m deployments.gateway`` as an operator starts it."""

from __future__ import annotations

import datetime as dt
import ipaddress
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from clma.client import pull
from clma.errors import ClmaError, InvalidConfigError, StorageError
from deployments._gateway_app import create_app
from deployments.gateway import GatewayRequest, serve_gateway
from tests.deployments.gateway_site import key_of, on_loopback, signed_fleet

ROOT = Path(__file__).parents[2]


def test_command_says_where_it_listens_and_stops_when_told(tmp_path: Path) -> None:
    fleet = signed_fleet(tmp_path / "store", tmp_path)
    command = [sys.executable, "-m", "deployments.gateway", "--store", str(fleet.store.folder)]
    with subprocess.Popen(
        [*command, "--port", "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = line.split()[3].removesuffix(",")
        pulled = pull(url, "fleet", "p0", tmp_path / "m.safetensors", key=key_of("p0"))
        process.send_signal(signal.SIGTERM)

    assert line.startswith("gateway of fleet: http://127.0.0.1:")
    assert pulled.round_num == 1
    assert process.returncode in {0, -signal.SIGTERM}


def test_tls_is_served_and_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = signed_fleet(tmp_path / "store", tmp_path)
    certificate, key = own_certificate(tmp_path)
    tls = {"certificate": certificate, "key": key}
    with on_loopback(create_app(fleet), **tls) as url:
        with pytest.raises(StorageError, match="CERTIFICATE_VERIFY_FAILED"):
            pull(url, "fleet", "p0", tmp_path / "m.safetensors", key=key_of("p0"))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert pull(url, "fleet", "p0", tmp_path / "m.safetensors", key=key_of("p0")).round_num == 1


def own_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate of 127.0.0.1 that signs itself, and its key."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gateway")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(private, hashes.SHA256())
    )
    paths = folder / "gateway.pem", folder / "gateway.key"
    paths[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    paths[1].write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return paths


def test_store_without_a_federation_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ClmaError, match="holds no federation"):
        serve_gateway(GatewayRequest(str(tmp_path)))


@pytest.mark.parametrize("given", ["tls_certificate", "tls_key"])
def test_half_of_tls_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(InvalidConfigError, match="both"):
        serve_gateway(GatewayRequest(str(tmp_path), **{given: tmp_path / "x.pem"}))


def test_tls_files_that_are_none_are_one_line(tmp_path: Path) -> None:
    fleet = signed_fleet(tmp_path / "store", tmp_path)
    gone = tmp_path / "gone.pem"
    request = GatewayRequest(str(fleet.store.folder), tls_certificate=gone, tls_key=gone)
    with pytest.raises(InvalidConfigError, match="TLS files cannot be used"):
        serve_gateway(request)


def test_address_of_another_machine_cannot_be_listened_on(tmp_path: Path) -> None:
    fleet = signed_fleet(tmp_path / "store", tmp_path)
    with pytest.raises(ClmaError, match="cannot be listened on"):
        serve_gateway(GatewayRequest(str(fleet.store.folder), host="192.0.2.1"))
