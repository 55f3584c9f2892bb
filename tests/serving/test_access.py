"""Who may use a policy server."""

import datetime
import ipaddress

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rrf.client import PolicyClient, ServerUnreachableError
from rrf.serving.access import check_exposure, is_allowed, read_token, tls_context
from rrf.serving.configs import ServingCfg
from tests.serving.conftest import Scripted, request

TOKEN = "0123456789abcdef"


def test_the_token_comes_from_a_file_or_else_from_the_environment(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert read_token(file, {"RRF_SERVE_TOKEN": "another-token-of-some-length"}) == TOKEN
    assert read_token(None, {"RRF_SERVE_TOKEN": TOKEN}) == TOKEN
    assert read_token(None, {}) is None


@pytest.mark.parametrize("bad", ["", "short", "x" * 15, "with spaces in the token", "ü" * 20])
def test_a_token_that_is_no_secret_is_refused_and_not_shown(bad):
    with pytest.raises(ValueError, match=r"token in RRF_SERVE_TOKEN.*secrets") as refused:
        read_token(None, {"RRF_SERVE_TOKEN": bad})
    assert not bad or bad not in str(refused.value)


def test_an_authorization_needs_the_scheme_and_the_token():
    assert is_allowed(f"Bearer {TOKEN}", TOKEN)
    assert is_allowed(f"Api-Key {TOKEN}", TOKEN)
    assert is_allowed(f"bearer  {TOKEN}", TOKEN)
    assert is_allowed(None, None)
    for given in (None, "", TOKEN, "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer \udcff"):
        assert not is_allowed(given, TOKEN), given


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "robot.example"])
def test_other_machines_are_served_only_with_a_token_or_if_that_is_meant(host):
    with pytest.raises(ValueError, match=r"--token-file.*--insecure"):
        check_exposure(ServingCfg(host=host), None)
    check_exposure(ServingCfg(host=host), TOKEN)
    check_exposure(ServingCfg(host=host, insecure=True), None)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.9.1"])
def test_this_machine_needs_no_token(host):
    check_exposure(ServingCfg(host=host), None)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"port": 70000}, "port is 70000"),
        ({"max_batch": 0}, "max_batch is 0"),
        ({"max_wait_ms": -1}, "max_wait_ms is -1"),
        ({"send_s": 0}, "send_s is 0"),
        ({"certificate": "a.pem"}, "both the certificate and its key"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, why):
    with pytest.raises(ValueError, match=why):
        ServingCfg(**settings)


def certificate(folder):
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "robot")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(signed.public_bytes(encoding))
    (folder / "key.pem").write_bytes(
        key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return {"certificate": str(folder / "cert.pem"), "key": str(folder / "key.pem")}


def test_tls_serves_those_who_trust_the_certificate(serving, tmp_path):
    files = certificate(tmp_path)
    running = serving(Scripted(), TOKEN, **files)
    assert running.url.startswith("wss://")
    with PolicyClient(running.url, TOKEN, ca_file=files["certificate"]) as client:
        assert np.array_equal(client.infer(request(1, 2, 3))[0], [1, 2, 3])
    with pytest.raises(ServerUnreachableError, match=r"not trusted.*ca_file"):
        PolicyClient(running.url, TOKEN, connect_s=0.5)


def test_files_that_are_no_certificate_are_named(tmp_path):
    files = certificate(tmp_path)
    (tmp_path / "key.pem").write_text("nonsense")
    with pytest.raises(ValueError, match=r"key\.pem are not a certificate"):
        tls_context(ServingCfg(**files))
    with pytest.raises(FileNotFoundError, match=r"gone\.pem"):
        tls_context(ServingCfg(**{**files, "key": str(tmp_path / "gone.pem")}))
