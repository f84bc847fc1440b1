"""What the command of a program on an emulated host is made of."""

import sys

from anabranch.tools.testbed.programs import command_of


def test_a_command_learns_its_host_and_whom_to_dial() -> None:
    template = ["python", "radar.py", "--name={name}", "--listen", "{listen}", "{join}"]
    made = command_of(template, "p1", "tcp://10.0.0.1:7400", ["tcp://10.0.0.2:7400", "tcp://10.0.0.3:7400"])
    assert made == [
        *(sys.executable, "radar.py", "--name=p1", "--listen", "tcp://10.0.0.1:7400"),
        *("--join", "tcp://10.0.0.2:7400", "--join", "tcp://10.0.0.3:7400"),
    ]


def test_other_commands_and_an_empty_list_of_peers_stay_as_they_are() -> None:
    assert command_of(["radar", "{join}", "x{join}"], "p", "l", []) == ["radar", "x{join}"]
