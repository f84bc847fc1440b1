"""The command as its users call it: processes on loopback, exit codes, what is on stdout and on stderr."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

LAUNCH = [
    sys.executable,
    "-c",
    "import sys; sys.argv[0] = 'anabranch'; from anabranch.tools.cli import main; main()",
]
ENVIRON = {key: value for key, value in os.environ.items() if not key.startswith("ANABRANCH_")}
ENVIRON["ANABRANCH_OPEN"] = "1"
PATIENCE_S = 30.0

Start = Callable[..., "subprocess.Popen[bytes]"]


def run(*arguments: str, stdin: bytes = b"", environ: dict[str, str] | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        [*LAUNCH, *arguments],
        input=stdin,
        capture_output=True,
        timeout=PATIENCE_S,
        env={**ENVIRON, **(environ or {})},
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def launch(*arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [*LAUNCH, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRON, **options
    )


def stop(process: "subprocess.Popen[bytes]", number: int = signal.SIGTERM) -> tuple[int, str, str]:
    """Signal it; exit code, and the output that was not read before."""
    if process.poll() is None:
        process.send_signal(number)
    try:
        out, told = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, out.decode(), told.decode()


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a command that is stopped after the test, if the test did not see to that."""
    processes = []

    def start(*arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
        processes.append(launch(*arguments, **options))
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def tower() -> Iterator[str]:
    """The address of a running peer."""
    process = launch("peer", "--name", "tower", "--listen", "tcp://127.0.0.1:0", "--json")
    assert process.stdout is not None
    yield json.loads(process.stdout.readline())["addresses"][0]
    code, _, told = stop(process)
    assert code == 0, told
    assert "Traceback" not in told


def ready(process: "subprocess.Popen[bytes]") -> "subprocess.Popen[bytes]":
    """A sub, once it is subscribed."""
    assert process.stderr is not None
    said: list[bytes] = []
    while not said or b"subscribed" not in said[-1]:
        said.append(process.stderr.readline())
        assert said[-1], b"".join(said)
    return process


def test_what_is_published_is_printed_by_who_subscribed(tower: str, start: Start) -> None:
    sub = start("sub", "air/**", "--join", tower, "--json", "--count", "3", "--name", "reader")
    assert run("pub", "air/radar", "hello", "--join", tower, "--name", "writer") == (
        0,
        "published 1 message to 'air/radar' for reader\n",
        "",
    )
    assert run("pub", "air/wind", "--join", tower, stdin=b"gr\xc3\xbcn\n\xff\x00")[0] == 0
    out, _ = sub.communicate(timeout=PATIENCE_S)
    assert sub.returncode == 0
    first, second, third = map(json.loads, out.splitlines())
    assert 0 < first.pop("age_ms") < 10_000
    assert first == {
        "topic": "air/radar",
        "payload": "hello",
        "encoding": "text",
        "origin": "writer",
        "sequence": 0,
        "path": ["writer", "tower", "reader"],
        "late": False,
    }
    assert (second["topic"], second["payload"], second["encoding"]) == ("air/wind", "grün", "text")
    assert (third["payload"], third["encoding"]) == (base64.b64encode(b"\xff\x00").decode(), "base64")


def test_lines_of_stdin_arrive_in_order(tower: str, start: Start) -> None:
    sub = start("sub", "numbers", "--join", tower, "--raw", "--count", "5000")
    lines = b"".join(b"%d\n" % number for number in range(5000))
    code, told, _ = run("pub", "numbers", "-", "--join", tower, stdin=lines)
    assert code == 0
    assert told.startswith("published 5000 messages to 'numbers' for sub-")
    assert sub.communicate(timeout=PATIENCE_S)[0] == lines


def test_json_travels_as_a_value_and_the_outcome_is_json(tower: str, start: Start) -> None:
    sub = start("sub", "grid/*", "--join", tower, "--json", "--count", "1", "--name", "reader-v")
    code, out, _ = run("pub", "grid/shed", '{"kw": [5, null]}', "--json", "--join", tower)
    outcome = json.loads(out)
    assert code == 0
    assert outcome.pop("seconds") > 0
    assert outcome == {
        "topic": "grid/shed",
        "messages": 1,
        "subscribers": ["reader-v"],
        "unwanted": 0,
        "dropped": 0,
        "guarantee": "best_effort",
        "missing": {},
    }
    line = json.loads(sub.communicate(timeout=PATIENCE_S)[0])
    assert (line["payload"], line["encoding"]) == ({"kw": [5, None]}, "value")


def test_a_line_that_is_no_json_is_named_by_its_number(tower: str, start: Start) -> None:
    ready(start("sub", "grid/lines", "--join", tower))
    code, _, told = run("pub", "grid/lines", "--json", "--join", tower, stdin=b"1\noops\n")
    assert code == 2
    assert "line 2 of stdin 'oops' is not JSON" in told


def test_random_payloads_come_at_a_rate(tower: str, start: Start) -> None:
    sub = start("sub", "load", "--join", tower, "--json", "--count", "6")
    begun = time.monotonic()
    arguments = ("--size", "100", "--count", "6", "--rate", "20")
    code, out, _ = run("pub", "load", *arguments, "--json", "--join", tower)
    assert code == 0
    assert json.loads(out)["messages"] == 6
    assert time.monotonic() - begun >= 6 / 20
    payloads = [json.loads(line)["payload"] for line in sub.communicate(timeout=PATIENCE_S)[0].splitlines()]
    assert [len(base64.b64decode(payload)) for payload in payloads] == [100] * 6
    assert len(set(payloads)) == 6


def test_a_message_that_matches_two_patterns_is_printed_once(tower: str, start: Start) -> None:
    sub = start("sub", "both/*", "both/**", "both/x", "--join", tower, "--count", "2")
    assert run("pub", "both/x", "one", "--count", "2", "--join", tower)[0] == 0
    assert sub.communicate(timeout=PATIENCE_S)[0] == b"both/x\tone\n" * 2


def test_publishing_to_nobody_says_so_with_code_1(tower: str) -> None:
    code, out, told = run("pub", "no/one", "x", "--join", tower, "--timeout", "0.5")
    assert (code, out) == (1, "")
    assert "nobody wants 'no/one' after 0.5 s" in told
    assert "--wait 0" in told
    code, out, told = run("pub", "no/one", "x", "--join", tower, "--wait", "0")
    assert (code, out) == (1, "")
    assert "nobody wanted 'no/one': 1 message" in told


def test_too_few_subscribers_are_counted(tower: str, start: Start) -> None:
    ready(start("sub", "few", "--join", tower))
    code, _, told = run("pub", "few", "x", "--join", tower, "--wait", "2", "--timeout", "1")
    assert code == 1
    assert "1 of 2 peers want 'few'" in told


@pytest.mark.parametrize("arguments", [("pub", "a", "x"), ("links",), ("routes",)])
def test_a_peer_that_is_not_there_is_named_with_code_1(arguments: tuple[str, ...]) -> None:
    code, out, told = run(*arguments, "--join", "tcp://127.0.0.1:9", "--timeout", "0.3")
    assert (code, out) == (1, "")
    assert "no peer answered at tcp://127.0.0.1:9 within 0.3 s" in told
    assert "anabranch peer" in told


def test_a_sub_that_hears_nothing_in_time_ends_with_code_1(tower: str) -> None:
    code, out, _ = run("sub", "silence", "--join", tower, "--timeout", "0.3")
    assert (code, out) == (1, "")


def test_links_mesh_and_routes_tell_what_the_peer_measures(tower: str, start: Start) -> None:
    reader = ready(
        start("sub", "seen", "--listen", "tcp://127.0.0.1:0", "--join", tower, "--name", "listener")
    )
    assert run("pub", "seen", "x", "--join", tower)[1] == "published 1 message to 'seen' for listener\n"
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"seen\tx\n"

    code, out, _ = run("links", "--join", tower, "--json")
    view = json.loads(out)
    assert (code, view["peer"]) == (0, "tower")
    (link,) = [link for link in view["links"] if link["peer"] == "listener"]
    assert (link["state"], link["role"]) == ("up", "peer")
    assert 0 <= link["delay_ms"] < 1000
    assert {"jitter_ms", "loss", "availability"} < link.keys()
    assert not [link for link in view["links"] if link["peer"].startswith("observer-")]

    edges = {
        (edge["from"], edge["to"])
        for edge in json.loads(run("links", "--mesh", "--join", tower, "--json")[1])["mesh"]
    }
    assert {("tower", "listener"), ("listener", "tower")} <= edges

    view = json.loads(run("routes", "--join", tower, "--json")[1])
    (route,) = [route for route in view["routes"] if route["destination"] == "listener"]
    assert route["path"] == ["tower", "listener"]
    assert route["delay_ms"] >= 0

    code, out, _ = run("links", "--join", tower)
    assert code == 0
    for part in ("links of tower", "delay ms", "listener", "up"):
        assert part in out
    assert "tower > listener" in run("routes", "--join", tower)[1]


def test_a_watch_repeats_itself_until_it_is_stopped(tower: str, start: Start) -> None:
    watch = start("links", "--watch", "--interval", "0.05", "--json", "--join", tower)
    assert watch.stdout is not None
    for _ in range(3):
        assert json.loads(watch.stdout.readline())["peer"] == "tower"
    assert stop(watch)[0] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_peer_that_is_stopped_leaves_in_order_with_code_0(
    start: Start, tower: str, tmp_path: Path, number: int
) -> None:
    peer = start(
        "peer", "--join", tower, "--name", "guest", "--log-format", "json", "--log-dir", str(tmp_path)
    )
    assert peer.stdout is not None
    assert peer.stderr is not None
    assert peer.stdout.readline() == b"guest listens on nothing: it only dials\n"
    change = json.loads(peer.stderr.readline())
    assert (change["event"], change["neighbour"], change["state"]) == ("link", "tower", "up")
    code, _, told = stop(peer, number)
    assert code == 0
    assert "Traceback" not in told
    (records,) = tmp_path.glob("guest-*.jsonl")
    assert any(json.loads(line)["kind"] == "link" for line in records.read_text().splitlines())
    links = json.loads(run("links", "--join", tower, "--json")[1])["links"]
    assert "guest" not in [link["peer"] for link in links]


def test_stopping_a_sub_is_its_ordinary_end_unless_it_counts(tower: str, start: Start) -> None:
    assert stop(ready(start("sub", "a", "--join", tower)), signal.SIGINT)[0] == 0
    assert stop(ready(start("sub", "a", "--join", tower)), signal.SIGTERM)[0] == 0
    assert (
        stop(ready(start("sub", "a", "--join", tower, "--count", "1")), signal.SIGINT)[0]
        == 128 + signal.SIGINT
    )


def test_a_pub_that_is_stopped_before_its_end_says_so(tower: str, start: Start) -> None:
    sub = start("sub", "endless", "--join", tower)
    pub = start("pub", "endless", "--join", tower, stdin=subprocess.PIPE)
    assert pub.stdin is not None
    assert sub.stdout is not None
    pub.stdin.write(b"one\n")
    pub.stdin.flush()
    assert sub.stdout.readline() == b"endless\tone\n", "a line is published when it comes, not at the end"
    pub.send_signal(signal.SIGTERM)
    assert pub.wait(PATIENCE_S) == 128 + signal.SIGTERM


def test_a_sub_whose_output_nobody_reads_any_more_ends(tower: str, start: Start) -> None:
    sub = ready(start("sub", "head", "--join", tower))
    assert sub.stdout is not None
    assert run("pub", "head", "x", "--join", tower)[0] == 0
    assert sub.stdout.readline() == b"head\tx\n"
    sub.stdout.close()
    for _ in range(20):
        run("pub", "head", "x", "--join", tower, "--timeout", "1")
        if sub.poll() is not None:
            break
    assert sub.wait(PATIENCE_S) == 0


def test_a_reader_that_stands_still_does_not_cost_the_sub_its_link(tower: str, start: Start) -> None:
    ready(start("sub", "flood", "--join", tower, "--name", "stuck"))
    assert run("pub", "flood", "--size", "100000", "--count", "100", "--join", tower)[0] == 0
    watch = start("links", "--watch", "--interval", "0.5", "--json", "--join", tower)
    assert watch.stdout is not None
    for _ in range(5):  # longer than it takes to give up a silent link
        links = json.loads(watch.stdout.readline())["links"]
        assert [link["state"] for link in links if link["peer"] == "stuck"] == ["up"]
    assert stop(watch)[0] == 0


def test_an_address_in_use_is_named_with_code_2(tower: str) -> None:
    code, out, told = run("peer", "--listen", tower)
    assert (code, out) == (2, "")
    assert f"cannot listen on {tower}" in told
    assert "choose a free port" in told


def test_settings_come_from_file_variables_and_options(tmp_path: Path) -> None:
    file = tmp_path / "peer.toml"
    file.write_text('name = "from-file"\nlog_level = "error"\nlisten = ["tcp://nowhere.invalid:1"]')
    environ = {
        **ENVIRON,
        "ANABRANCH_LISTEN": "tcp://127.0.0.1:0,tcp://127.0.0.1:0",
        "ANABRANCH_LOG_LEVEL": "error",
    }
    process = subprocess.Popen(
        [
            *LAUNCH,
            "peer",
            "--file",
            str(file),
            "--json",
            "--log-level",
            "info",
            "--set",
            "neighbours_target=0",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
    )
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    assert stop(process)[0] == 0
    assert told["peer"] == "from-file"
    assert told["pid"] == process.pid
    assert len(told["addresses"]) == 2


@pytest.mark.parametrize(
    ("arguments", "environ", "said"),
    [
        (["pub", "air/*", "x"], {}, ["'air/*'", "without it"]),
        (["sub", "air//x"], {}, ["'air//x'", "empty level"]),
        (["links", "--join", "7400"], {}, ["--join", "'7400'", "tcp://HOST:PORT"]),
        (["routes", "--jion", "x"], {}, ["--jion", "--join"]),
        (["peer", "--set", "links_max=many"], {}, ["links_max = 'many'", "a whole number"]),
        (["peer"], {"ANABRANCH_LISEN": "x"}, ["ANABRANCH_LISEN", "did you mean ANABRANCH_LISTEN?"]),
        (["serve"], {}, ["'serve'", "one of peer, pub, sub"]),
    ],
)
def test_a_mistake_is_told_on_stderr_with_code_2(
    arguments: list[str], environ: dict[str, str], said: list[str]
) -> None:
    code, out, told = run(*arguments, environ=environ)
    assert (code, out) == (2, "")
    for part in said:
        assert part in told
    assert "Traceback" not in told
