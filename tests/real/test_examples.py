"""Every program in examples/ runs as it stands, ends with code 0 and prints what it is there to show."""

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT_S = 40

EXPECTED: dict[str, list[str]] = {
    "acknowledged_command": [
        "north: done",
        "complete: False, declined: 1",
        "missing: west, no answer in time",
    ],
    "advertised_topics": [
        r"granted: \['subscribe'\] to field, handed over: True",
        "found 1 topic of tower at registry",
        "stranger: no right to subscribe",
        r"field reads {'altitude': 9100}",
        "after revocation 0 subscribers",
    ],
    "beacon_join": ["alice found bob", "we met"],
    "blocking_pubsub": ["jobs/1: sweep", "jobs/1: polish", "bob got 3 messages"],
    "callback": [
        *(f"(plain|async): counter = {number}" for number in range(3)),
        "async: counter = 2",
        "callback errors: 0",
    ],
    "deadline_and_age": [
        r"within five seconds: in time after \d+\.\d+ ms",
        r"within a microsecond: late after \d+\.\d+ ms",
    ],
    "distributed_query": [
        r"histogram: {18: 2, 24: 1} of 3, complete: True",
        "mean: 20.0 of 3, complete: True",
        r"span: \[18, 24\] of 3, complete: True",
    ],
    "acknowledged": [
        r"order 0: complete=True \('archive', 'billing'\) {}",
        r"order 1: complete=False \('billing',\) {'archive': 'busy'}",
    ],
    "persistent": ["0: {'id': 0}", "1: {'id': 1}", "2: {'id': 2}"],
    "hello": ["alice says {'text': 'hello'} on greetings/world"],
    "inspect_mesh": [
        r"first \(adaptive\)",
        r" +link to inspector: up, client, .* ms",
        r" +link to second: up, peer, .* ms",
        " +third wants to/third",
        " +published 1",
    ],
    "light_client": [
        "attached: handset > north > south",
        "north is closed",
        "moved: handset > south",
    ],
    "long_running_view": [
        "so far: {'yes': 1}, outstanding: 1, complete: False",
        r"in the end: \[\('no', 1\), \('yes', 1\)\], complete: True",
    ],
    "overflow_policies": [
        "drop_oldest kept 900 to 999, dropped 900",
        "drop_newest kept 0 to 99, dropped 900",
        r"block gave 0 to \d+, dropped \d{1,3}",
        r"counter dropped.subscription_full: \d+",
    ],
    "publisher": [r"listening on tcp://127\.0\.0\.1:\d+", "nobody subscribed to .* within 0.1 s"],
    "relay_around_a_failed_link": [
        "path: a > c",
        "the link between a and c carries nothing any more",
        "path: a > b > c",
        r"messages arrive again after [0-2]\.\d+ s",
    ],
    "select_sites": [
        r"for harbour \(to: region = 'north' and load > 0.8\)",
        r"for mine \(to: tags superset \{'crane'\} and not region = 'north'\)",
        r"the mill got busy: now \('harbour', 'mill'\)",
        "the mine hears of 0.15",
    ],
    "simulate": [
        r"settled after \d+\.\d\d s",
        "published 6000, delivered 6000, lost 0",
        r"oldest on arrival: \d\d\d ms",
        "paths: a > c, a > b > c",
        r"\d+ events, fingerprint [0-9a-f]{16}",
    ],
    "subscriber": [r"listening on tcp://127\.0\.0\.1:\d+", "0.1 s are over", "received 0 messages"],
    "two_peers_one_process": [
        "alice published 1, bob published 0",
        "alice delivered 0, bob delivered 1",
        "peer bob is closed",
        "alice still works: b'second'",
    ],
    "values": [
        r"b'\\x00\\x01' arrives as b'\\x00\\x01'",
        r"None arrives as None",
        r"Reading\(.*\) arrives as {'celsius': 21.5, 'tags': \['attic'\]}",
        r"converted back: Reading\(celsius=21.5, tags=\['attic'\]\)",
        "payload of type object cannot be encoded .*",
    ],
}
"""By example: patterns of lines that it prints, in this order; other lines may stand between."""


@pytest.fixture(autouse=True)
def as_users_run_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples say themselves that their mesh is open."""
    monkeypatch.delenv("ANABRANCH_OPEN")


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_shows_what_it_is_there_for(name: str) -> None:
    done = subprocess.run(command(name, *options(name)), capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = iter(done.stdout.splitlines())
    for pattern in EXPECTED[name]:
        assert any(re.fullmatch(pattern, line) for line in lines), f"no line {pattern!r} in\n{done.stdout}"


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_says_what_it_shows_and_how_to_run_it(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    head = text.split('"""')[1]
    assert f"Run it: `python examples/{name}.py" in head
    assert 'if __name__ == "__main__":\n' in text


def test_publisher_and_subscriber_meet_as_two_processes() -> None:
    subscriber = subprocess.Popen(command("subscriber", "--count", "3"), stdout=subprocess.PIPE, text=True)
    try:
        assert subscriber.stdout is not None
        address = subscriber.stdout.readline().removeprefix("listening on ").strip()
        publisher = subprocess.run(
            command("publisher", "--join", address, "--count", "3", "--interval", "0.01"),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        output, _ = subscriber.communicate(timeout=LIMIT_S)
    finally:
        if subscriber.poll() is None:
            subscriber.kill()
            subscriber.communicate()
    assert publisher.returncode == 0, publisher.stderr
    assert publisher.stdout.splitlines()[1:] == ["publishing to subscriber", "published 3 messages"]
    assert output.splitlines() == [
        "sensors/attic/temperature from publisher: {'number': 0, 'celsius': 20.0}",
        "sensors/attic/temperature from publisher: {'number': 1, 'celsius': 20.1}",
        "sensors/attic/temperature from publisher: {'number': 2, 'celsius': 20.2}",
        "received 3 messages",
    ]


def test_a_simulation_gives_the_same_answer_every_time() -> None:
    outputs = [
        subprocess.run(
            command("simulate", "--seed", seed), capture_output=True, text=True, timeout=LIMIT_S
        ).stdout
        for seed in ("7", "7", "8")
    ]
    assert outputs[0]
    assert outputs[0] == outputs[1] != outputs[2]


def test_the_inspector_looks_at_a_mesh_of_others() -> None:
    subscriber = subprocess.Popen(
        command("subscriber", "--seconds", "20", "--count", "1"), stdout=subprocess.PIPE, text=True
    )
    try:
        assert subscriber.stdout is not None
        address = subscriber.stdout.readline().removeprefix("listening on ").strip()
        done = subprocess.run(
            command("inspect_mesh", "--join", address), capture_output=True, text=True, timeout=LIMIT_S
        )
    finally:
        subscriber.kill()
        subscriber.communicate()
    assert done.returncode == 0, done.stderr
    assert "subscriber wants sensors/**" in done.stdout


def command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-u", "-W", "error", str(EXAMPLES / f"{name}.py"), *arguments]


def options(name: str) -> list[str]:
    if name == "publisher":
        return ["--wait", "0.1"]
    if name == "subscriber":
        return ["--seconds", "0.1"]
    if name == "beacon_join":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            return ["--beacon", f"udp://lo;239.192.7.40:{probe.getsockname()[1]}"]
    return []
