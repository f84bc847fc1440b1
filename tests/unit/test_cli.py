"""The command line without a mesh: what is loaded, what is refused, how things are shown."""

import asyncio
import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
from rich.console import Console

from anabranch.overlay.actions import DeliveredRun
from anabranch.overlay.errors import UsageError
from anabranch.overlay.qos import Role
from anabranch.tools import cli
from anabranch.tools.commands import program_log, running, sub, tables, views
from anabranch.tools.commands.options import with_settings
from anabranch.tools.commands.printing import stdin_lines
from anabranch.transport.message import Message
from anabranch.transport.settings import Settings

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def restore(monkeypatch: pytest.MonkeyPatch) -> object:
    for name in [name for name in os.environ if name.startswith("ANABRANCH_") and name != "ANABRANCH_OPEN"]:
        monkeypatch.delenv(name)
    yield
    structlog.reset_defaults()


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["anabranch", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        code = ended.value.code
        return code if isinstance(code, int) else 0, printed.out, printed.err

    return call


def test_help_lists_every_command_and_loads_none_of_them() -> None:
    program = (
        "import sys\nfrom anabranch.tools.cli import main\n"
        "sys.argv = ['anabranch', '--help']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({'zmq', 'asyncio', 'rich', 'structlog', 'anabranch.tools.bench'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    *shown, loaded = done.stdout.splitlines()
    assert loaded == "[]"
    for name in ("peer", "pub", "sub", "links", "routes", "sim", "demo", "bench"):
        assert any(line.split()[:1] == [name] for line in shown), name


@pytest.mark.parametrize("name", list(cli._COMMANDS))
def test_every_command_can_be_loaded_and_helps(call: Call, name: str) -> None:
    code, printed, _ = call(name, "--help")
    assert code == 0
    assert printed.startswith(f"Usage: anabranch {name} ")


def test_a_peer_carries_no_library_along_that_it_does_not_use() -> None:
    code = (
        "import sys; from anabranch.tools import cli\n"
        "sys.argv = ['anabranch', 'peer', '--listen', 'nonsense']\n"
        "try: cli.main()\n"
        "finally: print([name for name in ('pydantic', 'sqlite3') if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert ran.returncode == 2
    assert "nonsense" in ran.stderr
    assert ran.stdout.split() == ["[]"]


def test_the_version_is_printed(call: Call) -> None:
    from anabranch import __version__

    assert call("--version") == (0, f"anabranch {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pubb"], ["'pubb'", "did you mean 'pub'?"]),
        (["zzz"], ["'zzz'", "one of peer, pub, sub"]),
        (["peer", "--lisen", "x"], ["--lisen", "--listen"]),
        (["peer", "--listen", "nonsense"], ["--listen", "'nonsense'", "tcp://HOST:PORT"]),
        (["peer", "--join", "tcp://0.0.0.0:7400"], ["--join", "'tcp://0.0.0.0:7400'", "one host"]),
        (["peer", "--name", "a b"], ["--name", "'a b'", "letters, digits"]),
        (["peer", "--preset", "moon"], ["--preset", "'moon'", "local, lan, wan, harmony"]),
        (["peer", "--set", "probe_intervall_s=1"], ["probe_intervall_s", "did you mean 'probe_interval_s'?"]),
        (["peer", "--beacon", "udp://10.0.0.1:7400"], ["--beacon", "'udp://10.0.0.1:7400'", "multicast"]),
        (
            ["peer", "--beacon-unicast", "10.0.0.1:7400"],
            ["beacon_unicast", "10.0.0.1:7400", "--beacon udp://"],
        ),
        (["peer", "--join", "tcp://h:1", "--advertise", "tcp://h:2"], ["advertise", "tcp://h:2", "--listen"]),
        (["peer", "--file", "gone.toml"], ["'gone.toml'", "No such file"]),
        (["peer", "--log-level", "loud"], ["--log-level", "'loud'", "debug, info, warning, error"]),
        (["pub"], ["topic"]),
        (["pub", "a/*", "x"], ["'a/*'", "without it"]),
        (["pub", "a", "x", "--size", "3"], ["'x'", "--size 3", "one of them"]),
        (["pub", "a", "x", "--count", "0"], ["--count 0", "from 1"]),
        (["pub", "a", "x", "--count", "many"], ["--count", "int"]),
        (["pub", "a", "x", "--rate", "-1"], ["--rate -1", "from 0"]),
        (["pub", "a", "--size", "99999999"], ["--size 99999999", "to 16777216"]),
        (["pub", "a", "{", "--json"], ["'{'", "is not JSON", "leave out --json"]),
        (["sub"], ["patterns"]),
        (["sub", "a//b"], ["'a//b'", "empty level"]),
        (["sub", "a/b*"], ["'a/b*'", "whole level"]),
        (["sub", "a", "--json", "--raw"], ["--json and --raw", "one of them"]),
        (["sub", "a", "--overflow", "spill"], ["--overflow 'spill'", "drop_oldest, drop_newest, block"]),
        (["request", "a", "--open", "--merge", "zzz"], ["merge 'zzz'", "one of", "histogram"]),
        (["request", "a", "--open", "--tau", "-1"], ["--tau -1", "from 0.001"]),
        (["peer", "--open", "--tdn", "somewhere"], ["'somewhere'", "needs an identity", "keys issue --tdn"]),
        (["peer", "--open", "--listen", "ipc:///no/such/x"], ["ipc:///no/such/x", "a path in a directory"]),
        (["links", "--join", "h:1"], ["--join", "'h:1'", "tcp://HOST:PORT"]),
        (["routes", "--interval", "0"], ["--interval 0", "from 0.05"]),
        (["bench", "rtt", "--size", "x"], ["--size 'x'", "whole numbers"]),
    ],
)
def test_a_mistake_names_itself_and_the_fix_with_code_2(
    call: Call, arguments: list[str], said: list[str]
) -> None:
    code, printed, told = call(*arguments)
    assert code == 2
    assert printed == ""
    for part in said:
        assert part in told
    assert "Traceback" not in told


def test_an_unknown_variable_is_a_mistake_too(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_LISEN", "tcp://127.0.0.1:0")
    code, _, told = call("peer")
    assert (code, told) == (2, "Error: unknown variable ANABRANCH_LISEN: did you mean ANABRANCH_LISTEN?\n")


def test_options_beat_variables_beat_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "peer.toml"
    file.write_text(
        'name = "f"\nlog_level = "error"\njoin = ["tcp://f:1"]\n[config]\nlinks_max = 1\ncache_max = 1'
    )
    monkeypatch.setenv("ANABRANCH_NAME", "v")
    monkeypatch.setenv("ANABRANCH_JOIN", "tcp://v:1")
    monkeypatch.setenv("ANABRANCH_CONFIG_LINKS_MAX", "2")
    seen = []

    @with_settings()
    def command(settings: Settings, extra: int = 0) -> int:
        seen.append((settings, extra))
        return 7

    nothing: dict[str, object] = dict.fromkeys(
        [
            "listen",
            "advertise",
            "beacon",
            "beacon_unicast",
            "log_dir",
            "store_dir",
            "profile",
            "identity",
            "open",
            "preset",
            "log_format",
            "log_level",
        ]
    )
    with pytest.raises(RuntimeError) as ended:
        command(extra=3, file=file, name="o", join=[], set=["links_max=3"], **nothing)
    assert ended.value.exit_code == 7  # type: ignore[attr-defined]
    ((settings, extra),) = seen
    assert extra == 3
    assert (settings.name, settings.join, settings.log_level) == ("o", ["tcp://v:1"], "error")
    assert (settings.config.links_max, settings.config.cache_max) == (3, 1)


def test_pub_and_sub_are_light_clients_unless_they_listen() -> None:
    client = running.make_endpoint(Settings(join=["tcp://127.0.0.1:7499"]), "pub")
    assert client.config.role is Role.CLIENT
    assert client.name.startswith("pub-")
    assert running.make_endpoint(Settings(), "sub").config.role is Role.CLIENT
    assert running.make_endpoint(Settings(beacon="udp://239.1.2.3:7400"), "sub").config.role is Role.CLIENT
    assert running.make_endpoint(Settings(listen=["tcp://127.0.0.1:0"]), "sub").config.role is Role.PEER


def test_an_observer_never_takes_the_name_of_the_peer_it_looks_at() -> None:
    assert running.make_observer(Settings(name="tower-7")).name.startswith("observer-")


def test_a_beacon_can_be_switched_off_on_the_command_line() -> None:
    assert running.make_peer(Settings(beacon=""), "peer").name.startswith("peer-")


def message(payload: object, **changes: object) -> Message:
    parts = {"age_s": 0.0125, "deadline_s": 0.0, "path": ("a", "b"), **changes}
    run = DeliveredRun(
        "air/radar", "a", 1, 5, [payload], parts["age_s"], 0.0, parts["deadline_s"], parts["path"]
    )  # type: ignore[arg-type]
    return Message(payload, 5, run)


@pytest.mark.parametrize(
    ("payload", "shown", "encoding"),
    [
        (b"hello", "hello", "text"),
        ("grün".encode(), "grün", "text"),
        (b"\xff\x00", base64.b64encode(b"\xff\x00").decode(), "base64"),
        ({"kw": [5, None]}, {"kw": [5, None]}, "value"),
        ("text as a value", "text as a value", "value"),
        ({(1, 2): b"x"}, {"(1, 2)": "eA=="}, "value"),
    ],
)
def test_a_message_as_json_tells_what_its_payload_was(payload: object, shown: object, encoding: str) -> None:
    line = sub.as_json_line(message(payload, deadline_s=0.01))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "air/radar",
        "payload": shown,
        "encoding": encoding,
        "origin": "a",
        "sequence": 5,
        "path": ["a", "b"],
        "age_ms": 12.5,
        "late": True,
    }


@pytest.mark.parametrize(
    ("payload", "text", "raw"),
    [
        (b"hello", "hello", b"hello"),
        (b"two\nlines \x1b[31m", "two\\nlines \\x1b[31m", b"two\nlines \x1b[31m"),
        (b"\xff", "base64:/w==", b"\xff"),
        ([1, "x"], '[1,"x"]', b'[1,"x"]'),
    ],
)
def test_text_is_safe_for_a_terminal_and_raw_is_untouched(payload: object, text: str, raw: bytes) -> None:
    assert sub.text_line(message(payload)) == f"air/radar\t{text}\n".encode()
    assert sub.raw_line(message(payload)) == raw + b"\n"


EDGE = {"delay_ms": 1.5, "loss": 0.25, "availability": 0.75}
REPORT = {
    "peer": "tower",
    "variant": "bp",
    "switches": 2,
    "links": [
        {"peer": name, "role": "peer", "state": "suspect", "jitter_ms": 0.5, "silent_s": 0.1, **EDGE}
        for name in ("b", "observer-1")
    ],
    "mesh": {"tower": {"b": EDGE, "observer-1": EDGE}, "b": {"tower": EDGE}},
    "routes": [
        {"destination": "c", "path": ["tower", "b", "c"], "delay_ms": 3.25},
        {"destination": "observer-1", "path": ["tower", "observer-1"], "delay_ms": 1.0},
    ],
}


def rendered(view: dict[str, object], note: str = "") -> str:
    console = Console(width=120, file=open(os.devnull, "w"), record=True)  # noqa: SIM115, PTH123 - closed below
    console.print(tables.table_of(view, note))
    console.file.close()
    return console.export_text()


def test_views_leave_the_observer_out() -> None:
    assert [link["peer"] for link in views.links_view(REPORT, "observer-1")["links"]] == ["b"]
    assert views.mesh_view(REPORT, "observer-1")["mesh"] == [
        {"from": "tower", "to": "b", **EDGE},
        {"from": "b", "to": "tower", **EDGE},
    ]
    assert [route["destination"] for route in views.routes_view(REPORT, "observer-1")["routes"]] == ["c"]


def test_tables_show_what_the_views_hold() -> None:
    links = rendered(views.links_view(REPORT, "observer-1"), "no answer for 5 s")
    for part in (
        "links of tower",
        "b",
        "suspect",
        "1.500",
        "0.500",
        "25.00 %",
        "75.00 %",
        "no answer for 5 s",
    ):
        assert part in links
    assert "observer-1" not in links
    assert "as tower knows them" in rendered(views.mesh_view(REPORT, "observer-1"))
    routes = rendered(views.routes_view(REPORT, "observer-1"))
    for part in ("routes of tower (bp)", "tower > b > c", "2", "3.250"):
        assert part in routes
    assert "none in use" in rendered(views.routes_view({**REPORT, "routes": []}, "x"))


def test_the_log_is_json_lines_on_stderr_above_its_level(capsys: pytest.CaptureFixture[str]) -> None:
    program_log.configure("json", "warning")
    log = structlog.get_logger("anabranch")
    log.info("unseen")
    log.warning("seen", neighbour="b")
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    entry = json.loads(line)
    assert (entry["event"], entry["level"], entry["neighbour"]) == ("seen", "warning", "b")
    assert entry["timestamp"].endswith("Z")


def test_the_log_for_people_has_no_colours_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    program_log.configure("console", "debug")
    structlog.get_logger("anabranch").debug("seen", neighbour="b")
    told = capsys.readouterr().err
    assert "neighbour=b" in told
    assert "\x1b" not in told


def lines_of(data: bytes, monkeypatch: pytest.MonkeyPatch, line_max_bytes: int = 100) -> list[bytes]:
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0) as stdin, open(writing, "wb") as source:  # noqa: PTH123 - descriptors
        source.write(data)
        source.close()
        monkeypatch.setattr(sys, "stdin", stdin)

        async def gather() -> list[bytes]:
            return [line async for line in stdin_lines(line_max_bytes)]

        try:
            return asyncio.run(gather())
        finally:
            for thread in threading.enumerate():
                if thread.name == "stdin":
                    thread.join(5)


def test_stdin_is_read_by_lines_with_or_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines_of(b"one\n\ntwo\r\n\xff", monkeypatch) == [b"one", b"", b"two", b"\xff"]
    assert lines_of(b"", monkeypatch) == []


def test_a_line_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="more than 100 bytes"):
        lines_of(b"x" * 200, monkeypatch)


def test_usage_errors_of_the_core_are_what_main_reports() -> None:
    with pytest.raises(UsageError, match="needs --listen"):
        running.make_endpoint(Settings(advertise=["tcp://h:1"], join=["tcp://h:2"]), "pub")
