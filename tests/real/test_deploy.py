"""The files of examples/deploy, in three network namespaces, by the commands of docs/deploy.md."""

import asyncio
import configparser
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from support_identities import Identities

from anabranch.tools.testbed.backends import BackendKind, why_not
from anabranch.tools.testbed.wan import address_of
from anabranch.tools.testbed.wan_process import WanProcess
from anabranch.transport.settings import load_settings
from anabranch.transport.simulator import Conditions

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"
HOSTS = ("north", "south", "west")
INSIDE = (
    "import sys; from anabranch.tools.testbed import kernel; "
    "[kernel.enter(path, kind) for path, kind in zip(sys.argv[1].split(',')[::-1], "
    "(kernel.CLONE_NEWUSER, kernel.CLONE_NEWNET)[-len(sys.argv[1].split(',')):])]; "
    "from anabranch.tools.cli import main; sys.argv = ['anabranch', *sys.argv[2:]]; main()"
)


def command(namespace: str, *words: str) -> list[str]:
    return [sys.executable, "-c", INSIDE, namespace, *words]


def call(namespace: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(namespace, *words), capture_output=True, text=True, timeout=30)


@contextmanager
def running(process: "subprocess.Popen[bytes]") -> Iterator["subprocess.Popen[bytes]"]:
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.mark.parametrize("host", HOSTS)
def test_the_configuration_of_each_host_is_valid(host: str) -> None:
    settings = load_settings(file=DEPLOY / f"{host}.toml", environ={}, options={})
    assert settings.name == host
    assert len(settings.join) == 2
    assert settings.identity is not None
    assert settings.advertise[0] not in settings.join


def test_the_service_and_the_container_start_a_peer_with_that_file() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((DEPLOY / "anabranch.service").read_text())
    words = unit["Service"]["ExecStart"].split()
    assert words[1:] == ["peer", "--file", "/etc/anabranch/peer.toml"]
    container = (DEPLOY / "Containerfile").read_text()
    assert json.loads(re.search(r"^CMD (.*)$", container, re.MULTILINE)[1]) == words[1:]  # type: ignore[index]
    assert "USER anabranch" in container
    assert "EXPOSE 7400" in container


def test_three_hosts_form_a_mesh_and_messages_cross_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANABRANCH_OPEN")
    if reason := why_not(BackendKind.NAMESPACES):
        pytest.skip(f"no network namespaces: {reason}")
    asyncio.run(walk_through(tmp_path))


async def walk_through(tmp_path: Path) -> None:
    wan = await WanProcess.start(tmp_path / "wan.stderr")
    try:
        made = await wan.make(3, Conditions(delay_s=0.01), 1, own_user=os.geteuid() != 0)
        places = [",".join([path, *([made.user] if made.user else [])]) for path in made.namespaces]
        await asyncio.to_thread(_by_the_book, dict(zip(HOSTS, places, strict=True)), tmp_path)
    finally:
        await wan.child.end()


def _by_the_book(places: dict[str, str], tmp_path: Path) -> None:
    peers = []
    identities = Identities(tmp_path / "identities")
    try:
        for host, place in places.items():
            text = (DEPLOY / f"{host}.toml").read_text()
            for number in range(1, 4):
                text = text.replace(f"192.0.2.1{number}", address_of(number))
            text = text.replace("/etc/anabranch/identity", str(identities[host]))
            file = tmp_path / f"{host}.toml"
            file.write_text(text.replace("/var/lib/anabranch/records", str(tmp_path / host)))
            log = (tmp_path / f"{host}.log").open("wb")
            with log:
                peers.append(
                    subprocess.Popen(command(place, "peer", "--file", str(file)), stdout=log, stderr=log)
                )
        links = _until_linked(places["north"], identities["operator-north"])
        assert sorted(link["peer"] for link in links) == ["south", "west"]
        assert all(8 < link["delay_ms"] < 40 for link in links)
        _say_hello(
            (places["south"], identities["operator-south"]), (places["west"], identities["operator-west"])
        )
    finally:
        for peer in peers:
            peer.terminate()
        codes = [peer.wait(15) for peer in peers]
    assert codes == [0, 0, 0], (tmp_path / "north.log").read_text()
    assert list((tmp_path / "west").glob("west-*.jsonl")), "records have their final names"


def _until_linked(place: str, identity: Path) -> list[dict[str, object]]:  # type: ignore[return]
    deadline = time.monotonic() + 40
    while True:
        done = call(place, "links", "--join", "tcp://127.0.0.1:7400", "--json", "--identity", str(identity))
        found = json.loads(done.stdout)["links"] if done.returncode == 0 else []
        links = [link for link in found if link["peer"] in HOSTS and link["state"] == "up"]
        if len(links) == 2:
            return links
        assert time.monotonic() < deadline, f"{found} {done.stderr}"
        time.sleep(0.2)


def _say_hello(here: tuple[str, Path], there: tuple[str, Path]) -> None:
    listener = subprocess.Popen(
        command(here[0], "sub", "hello/**", "--count", "1", "--timeout", "25", "--identity", str(here[1])),
        stdout=subprocess.PIPE,
    )
    with running(listener):
        said = call(
            there[0], "pub", "hello/world", "from west", "--timeout", "20", "--identity", str(there[1])
        )
        assert said.returncode == 0, said.stderr
        out, _ = listener.communicate(timeout=30)
        assert b"from west" in out
