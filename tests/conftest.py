"""Most tests are not about trust: their peers make open meshes, unless they say otherwise."""

import os

os.environ.setdefault("ANABRANCH_OPEN", "1")
