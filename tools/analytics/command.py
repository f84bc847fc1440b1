"""`anabranch analyze`: parses options, makes the session, runs the jobs, writes what came out."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console

from anabranch.overlay.config import Config
from anabranch.overlay.errors import UsageError
from anabranch.overlay.profiles import Profile
from anabranch.tools.analytics.session import INSTALL, make_session
from anabranch.transport.profiles import save_profile

if TYPE_CHECKING:
    from anabranch.transport.identities import MeshIdentity

WIDTH_IN_FILES = 120


def analyze(
    logs: Annotated[str, typer.Argument(metavar="LOGDIR", help="Where peers wrote their logs (log_dir).")],
    out: Annotated[Path, typer.Option("--out", help="Where to write tables, report and profile.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as one JSON object instead of tables.")
    ] = False,
    master: Annotated[
        str | None,
        typer.Option("--master", help="A Spark cluster, as in spark://HOST:7077; embedded without."),
    ] = None,
    remote: Annotated[
        str | None, typer.Option("--remote", help="A Spark Connect server, as in sc://HOST:15002.")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; repeatable.")
    ] = None,
    baseline: Annotated[
        float | None,
        typer.Option("--baseline", help="Seconds from the start to compare with; by default a quarter."),
    ] = None,
    identity: Annotated[
        Path | None,
        typer.Option(
            "--identity", metavar="PATH", help="Sign the profile with it, for the peers of a secured mesh."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what peers write, until told to stop; per minute.")
    ] = False,
) -> None:
    """Say from logs what links, topics and peers did: tables, a report, a profile for the peers."""
    if find_spec("pyspark") is None:
        raise UsageError(f"analysis needs PySpark: {INSTALL}")
    from anabranch.tools.analytics.loading import bytes_of, check_directory
    from anabranch.tools.analytics.session import FEW_BYTES

    if baseline is not None and not 0 < baseline < 1e9:
        raise UsageError(f"--baseline {baseline:g}: seconds above 0")
    check_directory(logs)
    _make_directory(out)
    settings = _settings(conf or [])
    signer = _signer_of(identity)
    err = Console(stderr=True, highlight=False)
    if follow:
        from anabranch.tools.analytics.following import follow_logs

        session = make_session(master=master, remote=remote, settings=settings, name="anabranch follow")
        follow_logs(session, logs, str(out.resolve()), lambda line: err.print(line, markup=False))
        return
    with err.status("starting Spark") as status:
        size = bytes_of(logs)
        few = size is not None and size <= FEW_BYTES
        session = make_session(master=master, remote=remote, settings=settings, few=few)
        summary = run(session, logs, out, baseline, status.update, signer)
    places = {
        "report": str(out / "report.html"),
        "profile": str(out / "profile.json"),
        "tables": str(out / "tables"),
    }
    if as_json:
        sys.stdout.write(json.dumps(summary, indent=2) + "\n")
    else:
        from anabranch.tools.analytics.printing import print_summary

        width = None if sys.stdout.isatty() else WIDTH_IN_FILES
        print_summary(summary, Console(highlight=False, width=width), places)


def run(
    session: Any,
    logs: str,
    out: Path,
    baseline: float | None,
    on_progress: Any,
    signer: "MeshIdentity | None" = None,
) -> dict[str, Any]:
    """All of it with a session that is there; returns the summary. `signer` signs the profile."""
    from anabranch.tools.analytics.jobs import analyze as run_jobs
    from anabranch.tools.analytics.report import report_of
    from anabranch.tools.analytics.summary import summarize

    analysis = run_jobs(session, logs, str(out.resolve()), baseline_s=baseline, on_progress=on_progress)
    on_progress("report")
    summary = summarize(analysis, logs)
    profile = msgspec.convert(summary["profile"], Profile)
    save_profile(profile.signed(signer.name, signer.signer) if signer else profile, out / "profile.json")
    _write(out / "summary.json", json.dumps(summary, indent=2) + "\n")
    _write(out / "report.html", report_of(summary))
    return summary


def _signer_of(identity: Path | None) -> "MeshIdentity | None":
    """Checked before the long work begins."""
    if identity is None:
        return None
    from anabranch.transport.identities import MeshIdentity

    return MeshIdentity(identity, Config())


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    part.replace(path)


def _make_directory(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        marker = out / ".writable"
        marker.touch()
        marker.unlink()
    except OSError as error:
        raise UsageError(
            f"--out {out}: cannot be written ({error.strerror}); name another directory"
        ) from None


def _settings(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for text in pairs:
        key, separator, value = text.partition("=")
        if not separator or not key.startswith("spark."):
            raise UsageError(f"--conf {text!r}: use KEY=VALUE, as in spark.driver.memory=4g")
        settings[key.strip()] = value.strip()
    return settings
