"""Signing keys of people and machines: Ed25519 (RFC 8032).

A private key lies outside of every repository, in the user's folder of configs (`$RRF_KEYS`), one
file per name:

    NAME.pem    the key itself (PKCS #8), with a passphrase if one was given
    NAME.yaml   no key: an SSH agent holds it, or a command of a key management service signs

What is signed is a purpose and the digest of plain data, so a signature of one kind is none of
another. The public part is text, "ed25519:" and base64 of 32 bytes; a signature is base64 of 64.
"""

import base64
import binascii
import functools
import getpass
import os
import re
import socket
import struct
import subprocess
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from rrf import atomic
from rrf.config import Cfg, configclass, read_yaml

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FOLDER_VARIABLE = "RRF_KEYS"
NAME_VARIABLE = "RRF_KEY"
PASSPHRASE_VARIABLE = "RRF_KEY_PASSPHRASE"
AGENT_VARIABLE = "SSH_AUTH_SOCK"
_PREFIX = "ed25519:"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]*")
_TIMEOUT_S = 60.0  # a key management service may ask a person
_IDENTITIES, _ANSWERED, _SIGN, _SIGNED = 11, 12, 13, 14  # messages of SSH's agent
_SSH_KIND = b"ssh-ed25519"


class SigningError(ValueError):
    """A key is missing, or cannot sign."""


@configclass
class RemoteKeyCfg(Cfg):
    """A key that is not in a file: who has it."""

    public: str
    """The public key."""
    command: list[str] = []
    """Gets what is to be signed on its standard input and prints the signature in base64; empty:
    the SSH agent at $SSH_AUTH_SOCK signs."""


class Signer:
    """Signs in the name of a key."""

    def __init__(self, name: str, public: str, sign: Callable[[bytes], bytes]):
        self.name = name
        self.public = public
        self._sign = sign

    def sign(self, purpose: str, content: typing.Any) -> str:
        """The signature of plain data for a purpose, in base64.

        Raises:
            SigningError: If agent or command does not sign, or not with this key.
        """
        signature = base64.b64encode(self._sign(_message(purpose, content))).decode()
        if not is_signed(purpose, content, self.public, signature):
            raise SigningError(
                f"what signs for '{self.name}' has another key than {self.public}; make the key "
                f"again: rrf keys new {self.name}"
            )
        return signature


def is_signed(purpose: str, content: typing.Any, public: str, signature: str) -> bool:
    """Whether the owner of a public key signed this for this purpose."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(raw(public))
        key.verify(base64.b64decode(signature, validate=True), _message(purpose, content))
    except (InvalidSignature, ValueError):
        return False
    return True


def raw(public: str) -> bytes:
    """The 32 bytes of a public key. Raises ValueError if it is none."""
    try:
        content = base64.b64decode(public.removeprefix(_PREFIX), validate=True)
    except ValueError:  # also of what is no ASCII
        content = b""
    if not public.startswith(_PREFIX) or len(content) != 32:
        raise ValueError(f"{public!r} is no public key; one looks like {_PREFIX}AbC…=")
    return content


def folder() -> Path:
    """Where this user's keys are."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else platformdirs.user_config_path("rrf") / "keys"


def names() -> list[str]:
    """The names of this user's keys."""
    return sorted(
        {file.stem for ending in ("pem", "yaml") for file in folder().glob(f"*.{ending}")}
    )


def new(name: str, passphrase: str | None = None) -> str:
    """Make a key in a file that only its owner can read; returns the public key.

    Raises:
        ValueError: For a name that is taken or has other characters than letters and ". _ - @".
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        encryption = serialization.BestAvailableEncryption(passphrase.encode())
    content = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )
    _write_secret(_vacant(name, ".pem"), content)
    return _text(key.public_key().public_bytes_raw())


def new_in_agent(name: str, comment: str | None = None) -> str:
    """Name an Ed25519 key that the SSH agent holds; returns the public key.

    Args:
        name: The name for rrf.
        comment: The comment of the key in the agent; needed if the agent holds several.

    Raises:
        SigningError: If there is no agent, or no such key, or several.
    """
    held = _agent_keys()
    fitting = {public for public, text in held if comment in (None, text)}
    if len(fitting) != 1:
        listed = ", ".join(f"{text!r}" for _, text in held) or "none"
        raise SigningError(
            f"the SSH agent has {len(fitting)} Ed25519 keys with the comment {comment!r}; name one "
            f"by --comment: {listed}"
            if comment
            else f"the SSH agent has {len(fitting)} Ed25519 keys; name one by --comment: {listed}"
        )
    (public,) = fitting
    _write_remote(name, RemoteKeyCfg(public=public))
    return public


def new_by_command(name: str, public: str, command: list[str]) -> str:
    """Name a key with which a command signs; returns the public key. The command is tried once.

    Raises:
        SigningError: If the command does not sign with this key.
        ValueError: For text that is no public key.
    """
    raw(public)
    cfg = RemoteKeyCfg(public=public, command=command)
    Signer(name, public, lambda message: _ask_command(name, command, message)).sign("test", "")
    _write_remote(name, cfg)
    return public


def find(name: str | None = None) -> Signer:
    """The key to sign with: the one named, or `$RRF_KEY`, or the only one of this user.

    Raises:
        SigningError: If there is none, several, or its passphrase is missing or wrong.
    """
    known = names()
    name = name or os.environ.get(NAME_VARIABLE) or (known[0] if len(known) == 1 else None)
    if name is None:
        raise SigningError(
            f"which key? {NAME_VARIABLE} names one of {', '.join(known)}"
            if known
            else f"there is no key in {folder()}; make one: rrf keys new NAME"
        )
    if name not in known:
        raise SigningError(
            f"there is no key '{name}' in {folder()}, only {', '.join(known) or 'none'}; make it: "
            f"rrf keys new {name}"
        )
    remote, file = folder() / f"{name}.yaml", folder() / f"{name}.pem"
    if remote.is_file():
        cfg = RemoteKeyCfg.from_dict(read_yaml(remote))
        if cfg.command:
            return Signer(name, cfg.public, lambda text: _ask_command(name, cfg.command, text))
        return Signer(name, cfg.public, lambda text: _ask_agent(name, cfg.public, text))
    if file.stat().st_mode & 0o077:
        raise SigningError(f"others can read {file}; nobody else may: chmod 600 {file}")
    passphrase = os.environ.get(PASSPHRASE_VARIABLE) or None
    key = _read(name, file, file.stat().st_mtime_ns, passphrase)
    return Signer(name, _text(key.public_key().public_bytes_raw()), key.sign)


def _message(purpose: str, content: typing.Any) -> bytes:
    return f"rrf {purpose}\n{atomic.digest_of(content)}".encode()


def _text(public: bytes) -> str:
    return _PREFIX + base64.b64encode(public).decode()


def _vacant(name: str, ending: str) -> Path:
    if not _NAME.fullmatch(name):
        raise ValueError(f"key name {name!r} may have only letters, digits and '.', '_', '-', '@'")
    if name in names():
        raise ValueError(
            f"there is a key '{name}' in {folder()} already; a new one for the same person: rrf "
            f"keys new {name}-2, then trust it under the name of the person"
        )
    folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder() / f"{name}{ending}"


def _write_remote(name: str, cfg: RemoteKeyCfg) -> None:
    atomic.write_text(_vacant(name, ".yaml"), cfg.to_yaml())


def _write_secret(file: Path, content: bytes) -> None:
    part = atomic.temporary(file)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    part.replace(file)


@functools.lru_cache(maxsize=8)
def _read(name: str, file: Path, changed_ns: int, passphrase: str | None) -> "Ed25519PrivateKey":
    """The key in a file; a command that signs several entries asks for its passphrase once."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content = file.read_bytes()
    if b"ENCRYPTED" not in content:
        passphrase = None
    elif passphrase is None and sys.stdin is not None and sys.stdin.isatty():
        passphrase = getpass.getpass(f"passphrase of key '{name}': ")
    elif passphrase is None:
        raise SigningError(
            f"key '{name}' has a passphrase; set {PASSPHRASE_VARIABLE}, or let an agent hold the "
            f"key: rrf keys new NAME --agent"
        )
    try:
        key = load_pem_private_key(content, passphrase.encode() if passphrase else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        how = "with this passphrase " if passphrase else ""
        raise SigningError(f"{file} cannot be read {how}({error})") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningError(f"{file} is no Ed25519 key; make one: rrf keys new NAME")
    return key


def _ask_command(name: str, command: list[str], message: bytes) -> bytes:
    what = f"the command that signs for '{name}', {' '.join(command)},"
    try:
        done = subprocess.run(command, input=message, capture_output=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SigningError(f"{what} did not run: {error}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise SigningError(f"{what} failed: {said[-1] if said else f'status {done.returncode}'}")
    try:
        return base64.b64decode(done.stdout.strip(), validate=True)
    except binascii.Error as error:
        raise SigningError(f"{what} printed no base64") from error


def _ask_agent(name: str, public: str, message: bytes) -> bytes:
    blob = _string(_SSH_KIND) + _string(raw(public))
    answer = _agent(_SIGN, _string(blob) + _string(message) + struct.pack(">I", 0))
    if answer[:1] != bytes([_SIGNED]):
        raise SigningError(
            f"the SSH agent does not sign for '{name}'; add its key to the agent: ssh-add FILE"
        )
    (signature, _) = _take(answer[1:])
    _, rest = _take(signature)
    return _take(rest)[0]


def _agent_keys() -> list[tuple[str, str]]:
    """The Ed25519 keys in the SSH agent, as (public key, comment)."""
    answer = _agent(_IDENTITIES, b"")
    if answer[:1] != bytes([_ANSWERED]):
        raise SigningError("the SSH agent does not list its keys")
    (count,), rest = struct.unpack(">I", answer[1:5]), answer[5:]
    keys = []
    for _ in range(count):
        blob, rest = _take(rest)
        comment, rest = _take(rest)
        kind, public = _take(blob)
        if kind == _SSH_KIND:
            keys.append((_text(_take(public)[0]), comment.decode(errors="replace")))
    return keys


def _agent(message: int, content: bytes) -> bytes:
    """Ask the SSH agent (draft-ietf-sshm-ssh-agent)."""
    place = os.environ.get(AGENT_VARIABLE)
    if not place:
        raise SigningError(
            f"there is no SSH agent ({AGENT_VARIABLE} is not set); start one: eval $(ssh-agent)"
        )
    try:
        with socket.socket(socket.AF_UNIX) as agent:
            agent.settimeout(_TIMEOUT_S)
            agent.connect(place)
            agent.sendall(_string(bytes([message]) + content))
            with agent.makefile("rb") as stream:
                (length,) = struct.unpack(">I", stream.read(4))
                return stream.read(length)
    except (OSError, struct.error) as error:
        raise SigningError(f"the SSH agent at {place} does not answer: {error}") from error


def _string(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def _take(content: bytes) -> tuple[bytes, bytes]:
    (length,) = struct.unpack(">I", content[:4])
    return content[4 : 4 + length], content[4 + length :]
