"""Keeps the allocator from returning memory to the system between bundles."""

FREED_BLOCK_BYTES = 16 * 1024 * 1024


def keep_freed_memory() -> None:
    """Allocate and free one large block, untouched.

    glibc returns freed memory to the system beyond twice the largest block it has seen freed. After this it
    keeps up to 32 MiB, so that bundles do not have their pages mapped anew each time: that took a third of
    the time of large payloads. Elsewhere it does nothing.
    """
    bytearray(FREED_BLOCK_BYTES)
