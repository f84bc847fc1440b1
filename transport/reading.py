"""Takes messages off a socket: within a budget, uncopied but for the first frame, sparing system calls."""

from collections.abc import Callable

import zmq

from anabranch.overlay.codec import Frame

READ_BYTES = 512 * 1024
"""Read from one socket before others and the application get their turn; little, so that it stays cached."""
READ_MESSAGES = 64
FRAMES_MAX = 4096
"""A message of more frames is no bundle of ours; it is read to its end and dropped."""

_NOBLOCK = int(zmq.NOBLOCK)
_EVENTS = int(zmq.EVENTS)
_POLLIN = int(zmq.POLLIN)

Take = Callable[[bytes, zmq.Frame, list[Frame]], None]
"""Gets the routing id (empty unless the socket is a ROUTER), the first frame, and all frames to pass on."""


def has_input(socket: zmq.SyncSocket) -> bool:
    """Whether something can be read. Also lets ZeroMQ notice what the edge-triggered descriptor told."""
    return bool(socket.get(_EVENTS) & _POLLIN)  # type: ignore[operator]


def drain(socket: zmq.SyncSocket, is_router: bool, take: Take, messages_max: int) -> tuple[bool, int]:
    """Read what is there, up to the budget; whether more may wait, and how many bytes were read."""
    recv = socket.recv
    left = READ_BYTES
    routing_id = b""
    try:
        for _ in range(messages_max):
            if is_router:
                routing_id = recv(_NOBLOCK)
            first = recv(_NOBLOCK, False)
            frames: list[Frame] = [first.bytes]
            if first.more:
                left -= _read_rest(socket, frames)
            take(routing_id, first, frames)
            left -= len(frames[0])
            if left <= 0:
                break
    except zmq.Again:
        return False, READ_BYTES - left
    return True, READ_BYTES - left


def _read_rest(socket: zmq.SyncSocket, frames: list[Frame]) -> int:
    """The other frames of a message: a relay hands them back to ZeroMQ as they are."""
    size = 0
    more = True
    while more:
        frame = socket.recv(_NOBLOCK, False)
        more = frame.more
        size += len(frame)
        frames.append(frame)  # type: ignore[arg-type]  # it has a length and a buffer
        if len(frames) > FRAMES_MAX:
            del frames[1:]  # the node will drop what is left as malformed
    return size
