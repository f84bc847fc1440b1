"""The entry of each process of a bench: `python -m anabranch.tools.bench.child JOB`, run by the parent."""

import importlib
import sys

import msgspec

from anabranch.tools.bench.jobs import Job, Parent

MODULES = {
    "anabranch": "anabranch.tools.bench.product",
    "raw": "anabranch.tools.bench.raw_asyncio",
    "raw_blocking": "anabranch.tools.bench.raw",
    "zenoh": "anabranch.tools.bench.zenoh_binding",
    "nats": "anabranch.tools.bench.nats_client",
    "replies": "anabranch.tools.bench.replies.peers",
}


def main() -> None:
    """Run the role that the job names."""
    job = msgspec.json.decode(sys.argv[1], type=Job)
    module = importlib.import_module(MODULES[job.system])
    getattr(module, job.role)(job, Parent())


if __name__ == "__main__":
    main()
