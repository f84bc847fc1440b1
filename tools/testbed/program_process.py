"""Becomes a program of the scenario on an emulated host: enters its namespaces, then runs the command.

Run with `python -m`; its arguments are how many namespaces to enter, their paths, and the command.
"""

import os
import sys

from anabranch.tools.testbed import kernel


def main() -> None:
    """Never returns: the command takes this process over."""
    count = int(sys.argv[1])
    paths, command = sys.argv[2 : 2 + count], sys.argv[2 + count :]
    if len(paths) > 1:
        kernel.enter(paths[1], kernel.CLONE_NEWUSER)
    if paths:
        kernel.enter(paths[0], kernel.CLONE_NEWNET)
    if sys.platform == "linux":
        kernel.end_with_parent()
    os.environ.setdefault("PYTHONUNBUFFERED", "1")  # what a program says is seen when it says it
    try:
        os.execvp(command[0], command)  # noqa: S606 - the scenario's own command, with no shell between
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
