"""The sub-commands of `anabranch`, one module each, and what they share."""
