"""`python -m anabranch` is the command `anabranch`."""

from anabranch.tools.cli import main

main()
