"""What can be wrong with keys and certificates. Layers above make it their caller's or a peer's error."""


class TrustError(Exception):
    """A key, certificate or signature that cannot be accepted; the text names it and the fix."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        """One word for counters and logs: `expired`, `early`, `foreign`, `role`, `revoked` or `malformed`."""
