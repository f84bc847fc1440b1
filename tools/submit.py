"""`anabranch analyze` as a file, because spark-submit wants one."""

import sys

from anabranch.tools.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "analyze")
    main()
