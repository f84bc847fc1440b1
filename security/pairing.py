"""Keys that two peers have in common, agreed without a word: X25519 of what each tells in a signed record.

With them a peer proves to one other that a message is its own. Nobody else can make or check such a proof.
"""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32
ID_BYTES = 4
TAG_BYTES = 16
KEPT_PER_PEER = 2
"""The key that a peer tells now, and the one before: what its former self sent may still be under way."""
_PURPOSE = b"anabranch-pair-v1"


class Pair:
    """The keys of one direction."""

    __slots__ = ("_cipher", "id")

    def __init__(self, key: bytes, receiver_id: bytes) -> None:
        self._cipher = AESGCM(key)
        self.id = receiver_id
        """Tells a receiver which of the tags in a seal is meant for it."""

    def tag(self, nonce: bytes, data: bytes) -> bytes:
        """The proof for this data; a nonce must never serve twice."""
        return self._cipher.encrypt(nonce, b"", data)

    def holds(self, nonce: bytes, tag: bytes, data: bytes) -> bool:
        """Whether a proof is for this data."""
        try:
            self._cipher.decrypt(nonce, tag, data)
        except InvalidTag:
            return False
        return True


class Pairing:
    """The exchange key of one peer, those of the others, and what follows from them."""

    def __init__(self, me: str, secret: bytes, peers_max: int) -> None:
        """`secret`: 32 random bytes, other ones with each start: numbers of seals begin anew then."""
        self._me = me
        self._secret = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._secret.public_key().public_bytes_raw()
        self.id = id_of(self.public)
        self._peers_max = peers_max
        self._public: dict[str, list[bytes]] = {me: [self.public]}
        """By peer; also our own, for what we say to ourselves past others."""
        self._to: dict[str, Pair] = {}
        self._from: dict[tuple[str, bytes], Pair] = {}
        self._number = 0

    def next_number(self) -> int:
        """Numbers everything that is proven: what makes a nonce new."""
        self._number += 1
        return self._number

    def know(self, peer: str, public: bytes) -> bool:
        """A peer told its exchange key; whether it can be one."""
        known = self._public.get(peer)
        if known is None:
            if len(self._public) >= self._peers_max:
                self.forget(next(each for each in self._public if each != self._me))
            known = self._public[peer] = []
        if len(public) != KEY_BYTES:
            return False
        if public not in known[:1]:
            self._to.pop(peer, None)
            known[:] = [public, *(each for each in known if each != public)][:KEPT_PER_PEER]
            kept = {id_of(each) for each in known}
            for key in [key for key in self._from if key[0] == peer and key[1] not in kept]:
                del self._from[key]
        return True

    def forget(self, peer: str) -> None:
        """A peer is trusted no more, or there is no room for it."""
        for public in self._public.pop(peer, []):
            self._from.pop((peer, id_of(public)), None)
        self._to.pop(peer, None)

    def to(self, peer: str) -> Pair | None:
        """What proves to this peer that something is ours; None while its key is unknown."""
        pair = self._to.get(peer)
        if pair is None and (known := self._public.get(peer)):
            key = self._agree(known[0], self._me, self.public, peer, known[0])
            if key:
                pair = self._to[peer] = Pair(key, id_of(known[0]))
        return pair

    def of(self, peer: str, key_id: bytes) -> Pair | None:
        """What proves to us that something is this peer's, by the id of the key that it used."""
        pair = self._from.get((peer, key_id))
        if pair is None:
            for public in self._public.get(peer, ()):
                if id_of(public) == key_id and (
                    key := self._agree(public, peer, public, self._me, self.public)
                ):
                    pair = self._from[peer, key_id] = Pair(key, self.id)
        return pair

    def _agree(self, public: bytes, sender: str, its: bytes, receiver: str, theirs: bytes) -> bytes:
        try:
            shared = self._secret.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:  # a point that makes every secret the same
            return b""
        parts = (_PURPOSE, sender.encode(), its, receiver.encode(), theirs)
        info = b"".join(len(part).to_bytes(2, "big") + part for part in parts)
        return HKDF(hashes.SHA256(), 32, salt=None, info=info).derive(shared)


def id_of(public: bytes) -> bytes:
    """A short name for an exchange key; two that share it are told apart by the tag."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(public)
    return digest.finalize()[:ID_BYTES]
