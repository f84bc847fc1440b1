"""Programs of a scenario on emulated hosts: a command with the addresses of its host, and its end."""

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from anabranch.tools.testbed import program_process
from anabranch.tools.testbed.backends import Host
from anabranch.tools.testbed.children import Child


class Program(Child):
    """A process that knows nothing of the testbed. It is told to leave by SIGTERM."""

    def leave(self) -> None:
        """Let it end in order."""
        self.signal(signal.SIGTERM)

    async def end(self, timeout_s: float = 2.0) -> None:
        """SIGTERM, then SIGKILL if that takes too long. Idempotent."""
        self.leave()
        await super().end(timeout_s)


async def start_program(
    name: str, template: Sequence[str], host: Host, join: Sequence[str], stderr: Path
) -> Program:
    """Run a command on a host; see `command_of` for what its arguments may hold."""
    command = command_of(template, name, host.listen, join)
    arguments = (str(len(host.namespaces)), *host.namespaces, *command)
    return await Program.start(name, program_process.__name__, stderr, *arguments)


def command_of(template: Sequence[str], name: str, listen: str, join: Sequence[str]) -> list[str]:
    """The command with what is known of its host filled in.

    `{name}` and `{listen}` may stand anywhere in an argument. An argument `{join}` becomes `--join ADDRESS`
    for each peer to dial. `python` at the beginning is the Python that runs the testbed.
    """
    command: list[str] = []
    for argument in template:
        if argument == "{join}":
            command += [text for address in join for text in ("--join", address)]
        else:
            command.append(argument.replace("{name}", name).replace("{listen}", listen))
    return [sys.executable, *command[1:]] if command[0] == "python" else command
