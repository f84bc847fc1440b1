"""`anabranch topics` and the blocking form: what a user does on three hosts, with processes on loopback."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from support_identities import Identities

from anabranch import UsageError
from anabranch.blocking import Peer
from anabranch.tools.bench.topics import topics as measure

LAUNCH = [
    sys.executable,
    "-c",
    "import sys; sys.argv[0] = 'anabranch'; from anabranch.tools.cli import main; main()",
]
ENVIRON = {key: value for key, value in os.environ.items() if not key.startswith("ANABRANCH_")}
PATIENCE_S = 30.0


class Host:
    """Where the commands of one mesh run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.identities = Identities(directory)
        self.identities.issue("registry", is_tdn=True)
        self.address = ""

    def _options(self, who: str) -> list[str]:
        places = [
            "--identity",
            str(self.identities[who]),
            "--store-dir",
            str(self.directory / f"{who}-state"),
        ]
        return [*places, "--join", self.address, "--json", "--log-level", "error"]

    def run(self, who: str, *arguments: str) -> tuple[int, Any, str]:
        """(exit code, JSON on stdout, stderr)."""
        done = subprocess.run(
            [*LAUNCH, "topics", *arguments, *self._options(who)],
            capture_output=True,
            timeout=PATIENCE_S,
            env=ENVIRON,
        )
        out = done.stdout.decode()
        return done.returncode, json.loads(out) if out else None, done.stderr.decode()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    made = Host(tmp_path_factory.mktemp("mesh"))
    options = ["--identity", str(made.identities["registry"]), "--tdn", str(made.directory / "topics")]
    process = subprocess.Popen(
        [*LAUNCH, "peer", *options, "--listen", "tcp://127.0.0.1:0", "--json", "--log-level", "error"],
        stdout=subprocess.PIPE,
        env=ENVIRON,
    )
    assert process.stdout is not None
    made.address = json.loads(process.stdout.readline())["addresses"][0]
    yield made
    process.terminate()
    process.communicate(timeout=PATIENCE_S)


def test_topics_are_created_found_granted_shown_and_revoked_by_commands(host: Host, tmp_path: Path) -> None:
    xml = tmp_path / "radar.xml"
    xml.write_text("<radar><band>X</band></radar>")
    code, topic, said = host.run(
        "tower",
        "create",
        "air/radar",
        "--restricted",
        "--property",
        "range=40",
        "--xml",
        str(xml),
        "--text",
        "plots",
        "--path",
        "sensors/radar",
        "--institution",
        "Observatory",
    )
    assert (code, said) == (0, "")
    assert topic["synopsis"] == f"air/radar/!topic-{topic['id']}"
    assert topic["descriptors"]["properties"] == {"range": 40}
    for query, by in (("plots", "string"), ("pl.ts", "regex"), ("range > 30", "sql"), ("//band", "xpath")):
        code, found, _ = host.run("field", "find", query, "--by", by)
        assert (code, [each["id"] for each in found["topics"]], found["answered"]) == (
            0,
            [topic["id"]],
            ["registry"],
        ), by
    code, found, _ = host.run("field", "find", "nothing like it")
    assert (code, found["topics"]) == (1, [])
    grant = tmp_path / "field.grant"
    code, given, _ = host.run(
        "tower", "grant", topic["uuid"], "field", "--subscribe", "--hours", "1", "--out", str(grant)
    )
    assert (code, given["verbs"], given["handed"]) == (0, ["subscribe"], False)
    assert given["not_after"] < time.time() + 3700
    assert grant.stat().st_mode & 0o077 == 0
    code, shown, _ = host.run("field", "show", str(grant))
    assert [each["holder"] for each in shown["grants"]] == ["field"]
    plain = subprocess.run(
        [*LAUNCH, "topics", "show", str(grant), "--identity", str(host.identities["field"])],
        capture_output=True,
        timeout=PATIENCE_S,
        env=ENVIRON,
    )
    assert plain.stdout.startswith(b"field\ttower\tsubscribe\tuntil 20"), "what it allows, and until when"
    code, shown, _ = host.run("field", "show", topic["id"])
    assert (code, shown["creator"]) == (0, "tower")
    code, kept, _ = host.run("tower", "advertise", topic["id"])
    assert (code, kept["kept"]) == (0, ["registry"])
    code, revoked, _ = host.run("tower", "revoke", topic["id"], "field")
    assert (code, revoked["told"]) == (0, ["registry"])
    with Peer("field", join=host.address, identity=host.identities["field"]) as late:
        late.wait_for_peers("registry", timeout=10)
        held = late.use_grant(grant)
        with pytest.raises(UsageError, match="no right to subscribe"):
            held.subscribe()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("create", "air//x"), 2, "levels such as"),
        (("create", "air", "--property", "range"), 2, "NAME=VALUE"),
        (("create", "air", "--tdn", "nowhere"), 1, "'nowhere' does not answer"),
        (("find", "(", "--by", "regex"), 2, "regular expression"),
        (("find", "SELECT", "--by", "sql"), 2, "query"),
        (("find", "x", "--by", "guess"), 2, "one of string"),
        (("grant", "no-such-topic", "field", "--subscribe"), 1, "0 topics are found"),
        (("show", "00000000-0000-4000-8000-000000000000"), 1, "0 topics are found"),
    ],
)
def test_what_is_wrong_is_named_with_the_fix(
    host: Host, arguments: tuple[str, ...], code: int, said: str
) -> None:
    result = host.run("field", *arguments)
    assert (result[0], result[1]) == (code, None)
    assert said in result[2]


def test_programs_without_an_event_loop_do_the_same(host: Host) -> None:
    with (
        Peer("maker", join=host.address, identity=host.identities["maker"]) as maker,
        Peer("reader", join=host.address, identity=host.identities["reader"]) as reader,
    ):
        maker.wait_for_peers("registry", "reader", timeout=10)
        reader.wait_for_peers("registry", "maker", timeout=10)
        topic = maker.create_topic("blocking/one", restricted=True, sealed=True, text="for threads")
        assert topic.grant("reader", subscribe=True).handed
        (found,) = reader.discover("for threads").topics
        assert (found == topic, found.creator, reader.known_topics() == [found]) == (True, "maker", True)
        assert [each.name for each in reader.locate_tdns()] == ["registry"]
        with found.subscribe() as wanted, topic.publisher() as publisher:
            maker.wait_for_subscribers(topic.name, timeout=10)
            publisher.put([1, 2])
            assert wanted.receive(timeout=10).payload == [1, 2]
        assert topic.advertise(["registry"]) == ["registry"]
        assert topic.revoke("reader") == ["registry"]


def test_the_benchmark_has_a_row_per_operation() -> None:
    rows = measure(3, 50)
    assert [row["operation"] for row in rows] == [
        "create",
        "discover_1",
        "discover_10",
        "discover_100",
        "stored_string",
        "stored_property",
    ]
    assert all(row["p50_ms"] > 0 for row in rows)
