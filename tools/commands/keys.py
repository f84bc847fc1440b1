"""`anabranch keys`: the authority of a mesh and the identities that it issues."""

import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from cryptography.hazmat.primitives import serialization

from anabranch.overlay.errors import UsageError
from anabranch.security.authority import Authority, key_pem, read_request
from anabranch.security.certificates import Holder, read_bytes, when
from anabranch.security.errors import TrustError
from anabranch.security.files import load_identity, make_directory, write_private, write_public
from anabranch.tools.commands.options import checked_number

keys_app = typer.Typer(
    help="Make an authority, and issue, show, renew and revoke the identities of peers.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
AuthorityDir = Annotated[Path, typer.Argument(metavar="AUTHORITY", help="Directory of the authority.")]


def _told(command: Callable[..., dict[str, Any]]) -> Callable[..., None]:
    """Print what a command returns; what was wrong with a key is the caller's error."""

    @functools.wraps(command)
    def run(*, as_json: bool, **arguments: Any) -> None:
        try:
            told = command(as_json=as_json, **arguments)
        except TrustError as error:
            raise UsageError(str(error)) from None
        if as_json:
            sys.stdout.write(json.dumps(told) + "\n")
        else:
            for key, value in told.items():
                _print(key, value)

    return run


@keys_app.command()
@_told
def ca(
    authority: AuthorityDir,
    domain: Annotated[str, typer.Option("--domain", help="Name of the mesh: part of every identity.")],
    days: Annotated[float, typer.Option("--days", help="How long the authority lasts.")] = 3650.0,
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Make an authority. Its key stays in that directory: keep it off the hosts of the mesh."""
    del as_json
    checked_number("--days", days, 0.001, 36500)
    made = Authority.create(authority, domain, days, time.time())
    return {"authority": str(authority), "domain": made.domain, "not_after": _end(made)}


@keys_app.command()
@_told
def issue(
    authority: AuthorityDir,
    name: Annotated[str, typer.Argument(help="Name of the peer.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Directory of the identity; by default NAME, here.")
    ] = None,
    hours: Annotated[float, typer.Option("--hours", help="How long it is valid.")] = 24.0,
    tdn: Annotated[bool, typer.Option("--tdn", help="It may be a topic discovery node.")] = False,
    csr: Annotated[
        Path | None, typer.Option("--csr", help="Signing request: the key stays where it was made.")
    ] = None,
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Issue an identity, or renew one: in a directory that has a key already, the key is kept.

    A running peer takes a renewed certificate, and a new revocation list, within two seconds.
    """
    del as_json
    checked_number("--hours", hours, 0.0001, 24 * 3650)
    made_by = Authority(authority, time.time())
    out = out or Path(name)
    public, is_renewal = None, False
    if csr is not None:
        public = read_request(read_bytes(csr), str(csr))
    elif (out / "key.pem").exists():
        old = load_identity(out)
        if old.holder.name != name or old.holder.domain != made_by.domain:
            raise TrustError("malformed", f"{out} holds {old.holder.uri}: choose another --out for {name!r}")
        public, is_renewal = old.holder.key, True
    make_directory(out)
    holder, key = made_by.issue(name, hours, is_tdn=tdn, public_key=public)
    if key is not None:
        write_private(out / "key.pem", key_pem(key))
    write_public(out / "authority.pem", read_bytes(authority / "authority.pem"))
    if made_by.revoked.exists():
        write_public(out / "revoked.pem", read_bytes(made_by.revoked))
    pem = holder.certificate.public_bytes(serialization.Encoding.PEM)
    write_public(out / "certificate.pem", pem)
    return {"identity": str(out), **_described(holder), "renewed": is_renewal}


@keys_app.command()
@_told
def show(
    place: Annotated[Path, typer.Argument(help="An authority's directory, or an identity.")],
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Show what an authority issued and revoked, or whom an identity names and whether it is valid now."""
    del as_json
    now = time.time()
    if (place / "authority.key").exists():
        authority = Authority(place, now)
        revoked = authority.revoked_serials()
        issued = [{**each, "revoked": each["serial"] in revoked} for each in authority.issued()]
        return {
            "authority": str(place),
            "domain": authority.domain,
            "not_after": _end(authority),
            "issued": issued,
        }
    identity = load_identity(place)
    try:
        identity.trust(now).check(identity.holder, now)
        state, reason = "valid", ""
    except TrustError as error:
        state, reason = error.reason, str(error)
    told: dict[str, Any] = {"identity": str(place), **_described(identity.holder), "state": state}
    return {**told, "reason": reason} if reason else told


@keys_app.command()
@_told
def revoke(
    authority: AuthorityDir,
    who: Annotated[str, typer.Argument(metavar="NAME", help="Name of a peer, or one serial.")],
    days: Annotated[float, typer.Option("--days", help="When the list shall be renewed.")] = 30.0,
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Revoke what a peer was issued. Copy the list to one running peer's identity: it tells the others."""
    del as_json
    checked_number("--days", days, 0.001, 36500)
    made_by = Authority(authority, time.time())
    return {"revoked": who, "serials": made_by.revoke(who, days), "list": str(made_by.revoked)}


@keys_app.command()
@_told
def bundle(
    identity: Annotated[Path, typer.Argument(help="Directory of an identity.")],
    out: Annotated[Path, typer.Option("--out", help="The file to write.")],
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Put an identity into one file, which `identity=` takes as well."""
    del as_json
    loaded = load_identity(identity)
    parts = [key_pem(loaded.key)]
    parts += [
        each.public_bytes(serialization.Encoding.PEM)
        for each in (loaded.holder.certificate, *loaded.authorities)
    ]
    write_private(out, b"".join([*parts, loaded.revocations]))
    return {"bundle": str(out), **_described(loaded.holder)}


def _described(holder: Holder) -> dict[str, Any]:
    return {
        "uri": holder.uri,
        "name": holder.name,
        "roles": sorted(holder.roles),
        "serial": f"{holder.serial:x}",
        "not_before": when(holder.not_before),
        "not_after": when(holder.not_after),
        "fingerprint": holder.fingerprint.hex(),
    }


def _end(authority: Authority) -> str:
    return when(authority.certificate.not_valid_after_utc.timestamp())


def _print(key: str, value: Any) -> None:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        sys.stdout.write(f"{key}:\n")
        for each in value:
            state = "  revoked" if each["revoked"] else ""
            columns = (each["name"], ",".join(each["roles"]), each["not_after"], each["serial"] + state)
            sys.stdout.write("  ".join(("", *columns)) + "\n")
        return
    text = ", ".join(map(str, value)) if isinstance(value, list) else value
    sys.stdout.write(f"{key}: {text}\n")
