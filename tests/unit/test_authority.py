"""Authorities, identities and their files; `anabranch keys`."""

import json
import shutil
import stat
import subprocess
import time
from pathlib import Path

import pytest
from support_trust import T0, Realm
from typer.testing import CliRunner

from anabranch.overlay.errors import UsageError
from anabranch.security.authority import Authority
from anabranch.security.certificates import read_key
from anabranch.security.errors import TrustError
from anabranch.security.files import load_identity
from anabranch.tools.cli import app
from anabranch.tools.commands.keys import keys_app


def keys(*words: str | Path) -> dict[str, object]:
    result = CliRunner().invoke(keys_app, [*map(str, words), "--json"])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    told: dict[str, object] = json.loads(result.output)
    return told


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    keys("ca", tmp_path / "ca", "--domain", "test.example")
    return tmp_path / "ca"


def test_an_issued_identity_is_valid_and_names_its_peer(ca: Path, tmp_path: Path) -> None:
    told = keys("issue", ca, "tower-7", "--out", tmp_path / "t", "--hours", "2")
    assert told["uri"] == "anabranch://test.example/tower-7"
    assert told["roles"] == ["peer"]
    identity = load_identity(tmp_path / "t")
    identity.trust(time.time()).check(identity.holder, time.time())
    assert identity.holder.not_after - time.time() == pytest.approx(7200, abs=60)
    assert keys("show", tmp_path / "t")["state"] == "valid"


def test_private_keys_are_readable_by_their_owner_alone_and_others_are_refused(
    ca: Path, tmp_path: Path
) -> None:
    keys("issue", ca, "a", "--out", tmp_path / "a")
    for key in (ca / "authority.key", tmp_path / "a" / "key.pem"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    (tmp_path / "a" / "key.pem").chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        keys("show", tmp_path / "a")


def test_a_renewed_identity_keeps_its_key(ca: Path, tmp_path: Path) -> None:
    first = keys("issue", ca, "a", "--out", tmp_path / "a")
    key = (tmp_path / "a" / "key.pem").read_bytes()
    second = keys("issue", ca, "a", "--out", tmp_path / "a")
    assert (first["renewed"], second["renewed"]) == (False, True)
    assert first["serial"] != second["serial"]
    assert (tmp_path / "a" / "key.pem").read_bytes() == key
    with pytest.raises(UsageError, match="choose another --out for 'b'"):
        keys("issue", ca, "b", "--out", tmp_path / "a")


def test_a_revoked_identity_shows_as_revoked(ca: Path, tmp_path: Path) -> None:
    keys("issue", ca, "a", "--out", tmp_path / "a")
    keys("issue", ca, "b", "--out", tmp_path / "b")
    keys("revoke", ca, "a")
    keys("revoke", ca, "b")
    shown = keys("show", ca)["issued"]
    assert [each["revoked"] for each in shown] == [True, True]  # type: ignore[attr-defined]
    shutil.copy(ca / "revoked.pem", tmp_path / "a")
    assert keys("show", tmp_path / "a")["state"] == "revoked"
    with pytest.raises(UsageError, match="'c' was not issued here"):
        keys("revoke", ca, "c")


def test_a_bundle_is_the_identity_in_one_file(ca: Path, tmp_path: Path) -> None:
    keys("issue", ca, "a", "--out", tmp_path / "a")
    keys("bundle", tmp_path / "a", "--out", tmp_path / "a.pem")
    assert stat.S_IMODE((tmp_path / "a.pem").stat().st_mode) == 0o600
    assert load_identity(tmp_path / "a.pem").holder == load_identity(tmp_path / "a").holder


def test_what_cannot_be_an_identity_is_named(ca: Path, tmp_path: Path) -> None:
    keys("issue", ca, "a", "--out", tmp_path / "a")
    keys("issue", ca, "b", "--out", tmp_path / "b")
    shutil.copy(tmp_path / "b" / "key.pem", tmp_path / "a" / "key.pem")
    for place, complaint in (
        (tmp_path / "a", "does not belong to the certificate"),
        (tmp_path / "none", "anabranch keys issue AUTHORITY NAME --out .*none"),
        (tmp_path, "lacks certificate.pem, key.pem, authority.pem"),
        (ca / "issued.jsonl", "nothing in PEM"),
    ):
        with pytest.raises(UsageError, match=complaint):
            keys("show", place)
    for words, complaint in (
        (("ca", ca, "--domain", "x"), "holds an authority already"),
        (("ca", tmp_path / "n", "--domain", "no/slash"), "domain 'no/slash'"),
        (("issue", tmp_path, "a"), "holds no authority"),
        (("issue", ca, "no/slash"), "name 'no/slash'"),
        (("issue", ca, "a", "--hours", "0"), "--hours 0"),
    ):
        with pytest.raises(UsageError, match=complaint):
            keys(*words)


def test_what_cannot_be_an_authority_is_named(ca: Path, tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    with pytest.raises(UsageError, match="file: cannot be made a directory"):
        keys("ca", taken, "--domain", "x.example")
    with pytest.raises(UsageError, match="file: cannot be made a directory"):
        keys("issue", ca, "a", "--out", taken)
    assert keys("show", ca)["issued"] == []  # nothing is issued that cannot be written

    keys("ca", tmp_path / "other", "--domain", "test.example")
    for name, content, complaint in (
        ("issued.jsonl", b'{"name": "a', "issued.jsonl: not one JSON object per line"),
        (
            "authority.key",
            (tmp_path / "other" / "authority.key").read_bytes(),
            "not the key of authority.pem",
        ),
        ("authority.pem", b"no certificate", "authority.pem: not what this file should hold"),
    ):
        (ca / name).write_bytes(content)
        with pytest.raises(UsageError, match=complaint):
            keys("show", ca)


def test_no_leaf_outlives_its_authority(tmp_path: Path) -> None:
    realm = Realm(tmp_path / "ca")
    with pytest.raises(TrustError, match="the authority itself ends"):
        realm.issue("a", 24 * 3651)


def test_the_command_is_there() -> None:
    result = CliRunner().invoke(app, ["keys", "--help"])
    assert result.exit_code == 0
    assert {"ca", "issue", "show", "revoke", "bundle"} <= set(result.output.split())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize("kind", ["P-256", "ed25519"])
def test_certificates_made_by_openssl_work(kind: str, tmp_path: Path) -> None:
    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True)

    leaf_key = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"] if kind == "P-256" else ["ed25519"]
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "ca.key")
    openssl(
        "req", "-x509", "-new", "-key", "ca.key", "-out", "authority.pem", "-days", "30",
        "-subj", "/CN=elsewhere", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
    )  # fmt: skip
    openssl("genpkey", "-algorithm", *leaf_key, "-out", "key.pem")
    openssl("req", "-new", "-key", "key.pem", "-subj", "/CN=tower-7", "-out", "leaf.csr")
    (tmp_path / "leaf.ext").write_text(
        "subjectAltName=URI:anabranch://elsewhere/tower-7\nextendedKeyUsage=clientAuth\n"
        "basicConstraints=critical,CA:FALSE\nauthorityKeyIdentifier=keyid\n"
    )
    openssl(
        "x509", "-req", "-in", "leaf.csr", "-CA", "authority.pem", "-CAkey", "ca.key", "-CAcreateserial",
        "-days", "1", "-extfile", "leaf.ext", "-out", "certificate.pem",
    )  # fmt: skip
    for name in ("leaf.csr", "ca.key"):
        (tmp_path / name).rename(tmp_path / f"unused-{name}")
    (tmp_path / "key.pem").chmod(0o600)
    identity = load_identity(tmp_path)
    identity.trust(time.time()).check(identity.holder, time.time() + 5)
    assert identity.holder.uri == "anabranch://elsewhere/tower-7"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_signing_request_keeps_the_key_where_it_was_made(ca: Path, tmp_path: Path) -> None:
    commands = (
        ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", "own.key"],
        ["req", "-new", "-key", "own.key", "-subj", "/CN=x", "-out", "own.csr"],
    )
    for words in commands:
        subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True)
    keys("issue", ca, "far", "--csr", tmp_path / "own.csr", "--out", tmp_path / "far")
    assert not (tmp_path / "far" / "key.pem").exists()
    shutil.copy(tmp_path / "own.key", tmp_path / "far" / "key.pem")
    (tmp_path / "far" / "key.pem").chmod(0o600)
    assert load_identity(tmp_path / "far").holder.name == "far"


def test_two_commands_at_once_lose_no_entry(tmp_path: Path) -> None:
    Realm(tmp_path / "ca")
    one, two = Authority(tmp_path / "ca", T0), Authority(tmp_path / "ca", T0)
    one.issue("a", 1)
    two.issue("b", 1)
    one.revoke("a", 1)
    two.revoke("b", 1)
    assert len(one.issued()) == len(one.revoked_serials()) == 2


def test_a_key_with_a_passphrase_or_of_another_kind_is_refused() -> None:
    with pytest.raises(TrustError, match="not a private key in PEM"):
        read_key(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "key.pem")
