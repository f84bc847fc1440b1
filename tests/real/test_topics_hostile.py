"""Topics under attack: nodes that lie, peers that go beyond their rights, queries that shall do harm."""

import asyncio
import contextlib
import sys
import time
from pathlib import Path

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

sys.path.insert(0, str(Path(__file__).parent))
from support_peers import until
from support_topics_mesh import World, world

from anabranch import AnabranchError, Config, Peer, UsageError
from anabranch.overlay.actions import QuestionCame
from anabranch.security import advertisements, grants
from anabranch.security.advertisements import Advertisement
from anabranch.security.sealing import digest
from anabranch.transport import loops
from anabranch.transport.topics import calls
from anabranch.transport.topics.calls import Bundle, Here
from anabranch.transport.topics.office import Office
from anabranch.transport.topics.query import Query
from anabranch.transport.topics.topic import Topic

HOSTILE = (
    ("(a+)+$", "regex"),
    ("(.*)*(.*)*x{500}", "regex"),
    ("(SELECT count(*) FROM topics a, topics b, topics c) > 0", "sql"),
    ("length(printf('%900000000d', 1)) > 0", "sql"),
    ("synopsis LIKE '%a%b%c%d%e%f%g%h%i%j%k%l%m%n%o%p%q%r%s%t%' OR height > 1", "sql"),
    ("count(//*[count(//*[count(//*)])])", "xpath"),
    ("//*[count(//*) = count(//*[count(//*) > 1])]", "xpath"),
)


def office(peer: Peer) -> Office:
    assert peer._office is not None
    return peer._office


def lie(peer: Peer, what: str, content: bytes) -> None:
    """From now on this peer answers such questions with this."""
    desk = office(peer).desk
    honest = office(peer)._answering.asked

    def asked(action: QuestionCame) -> None:
        context = calls.asking_context(action.token)
        to = "" if action.is_flooded else desk.me
        key = desk.key if action.letter[:1] == b"s" else None
        call = calls.call_decoder.decode(desk.letters.read(action.asker, to, context, action.letter, key))
        if call.what != what:
            honest(action)
            return
        context = calls.answering_context(digest(action.letter))
        letter = desk.letters.write(action.asker, context, content, call.reply_key)
        desk.node.answer(action.asker, action.token, letter, time.monotonic())

    desk.shell.perform_too({QuestionCame: asked})


def test_a_lying_node_gets_nobody_to_believe_a_topic(tmp_path: Path) -> None:
    """Checked without the look at the creator's signature."""

    async def scene() -> None:
        async with world(tmp_path) as w:
            liar = await w.add("liar", tdn=w.store())
            owner, seeker = await w.add("owner"), await w.add("seeker")
            topic = await owner.create_topic("air/true", restricted=True)
            other = await owner.create_topic("air/other")
            desk = office(liar).desk
            mine, foreign = topic.advertisement, other.advertisement
            alone = advertisements.mint(mine.body.terms, mine.descriptors, "liar", desk.sign, desk.now())
            stolen_terms = msgspec.structs.replace(
                mine.body.terms, creator="liar", creator_certificate=desk.identity.holder.fingerprint
            )
            stolen = msgspec.structs.replace(mine.body, terms=stolen_terms)
            raw = msgspec.msgpack.encode(stolen)
            forged = Advertisement(
                raw,
                desk.sign(b"anabranch-advertisement-tdn-v1", raw),
                desk.sign(b"anabranch-advertisement-creator-v1", raw),
                mine.descriptors,
            )
            secret = await owner.create_topic("air/not-for-you", discoverers=["liar"])
            lies = [
                alone,
                forged,
                Advertisement(mine.raw, mine.tdn_signature, foreign.creator_signature, mine.descriptors),
                Advertisement(
                    mine.raw, mine.tdn_signature, mine.creator_signature, b"\x94\x90\xa3bad\x80\xa0"
                ),
                secret.advertisement,
            ]
            signatures = [each for lie in (mine, foreign, forged) for each in lie.packed()[1:3]]
            certificates = desk.certificates_for(signatures)
            packed = Bundle(certificates, [each.packed() for each in [*lies, mine]])
            lie(liar, calls.FIND, msgspec.msgpack.encode(packed))
            found = await seeker.discover("air")
            assert list(found.topics) == [topic]
            assert seeker.counters["topics_refused"] == len(lies)
            for nonsense in (b"", b"\xdd\xff\xff\xff\xff", msgspec.msgpack.encode(Bundle([b"x"], []))):
                lie(liar, calls.FIND, nonsense)
                assert (await seeker.discover("air", tdns=["liar"], within=1)).topics == ()
            lie(liar, calls.CREATE, msgspec.msgpack.encode(Bundle(certificates, [mine.packed(whole=False)])))
            with pytest.raises(AnabranchError, match="other terms"):
                await owner.create_topic("air/new", within=1)
            with pytest.raises(UsageError, match="did not create"):
                seeker.use_grant(office(owner).desk.hand_over(mine, ()))

    loops.run(scene())


def test_a_peer_that_is_no_node_cannot_pass_for_one(tmp_path: Path) -> None:
    """Checked without the look at its role."""

    async def scene() -> None:
        async with world(tmp_path) as w:
            fake, seeker = await w.add("fake"), await w.add("seeker")
            lie(fake, calls.LOCATE, msgspec.msgpack.encode(Here(office(fake).desk.key.public, False)))
            fake._running().node.serve("tdn", time.monotonic())
            fake._running().turn()
            assert await seeker.locate_tdns() == []
            found = await seeker.discover("anything", within=1)
            assert found.from_creators
            assert seeker.counters["topics_refused"] >= 1
            with pytest.raises(AnabranchError, match="no discovery node"):
                await seeker.create_topic("a", within=0.3)

    loops.run(scene())


def test_a_holder_cannot_go_beyond_its_grant(tmp_path: Path) -> None:
    """Checked with peers that let everybody publish."""
    structlog.reset_defaults()

    async def scene() -> None:
        async with world(tmp_path) as w:
            await w.add("tdn", tdn=w.store())
            owner, holder, friend = [await w.add(name) for name in ("owner", "holder", "friend")]
            topic = await owner.create_topic("air/narrow", restricted=True)
            await topic.grant("holder", subscribe=True)
            await topic.grant("friend", subscribe=True)
            (known,) = holder.known_topics()
            desk = office(holder).desk
            for verbs, depth in ((grants.PUBLISH, 0), (grants.SUBSCRIBE, 0), (grants.SUBSCRIBE, 3)):
                wider = grants.issue(
                    topic.id,
                    "holder",
                    "friend",
                    desk.sign,
                    verbs=verbs,
                    depth=depth,
                    not_before=desk.now(),
                    not_after=desk.now() + 1e6,
                    parent=desk.rights.own[topic.id],
                )
                with pytest.raises(UsageError, match="wider"):
                    friend.use_grant(desk.hand_over(known.advertisement, wider))
            itself = grants.issue(
                topic.id,
                "holder",
                "holder",
                desk.sign,
                verbs=3,
                depth=1,
                not_before=0.0,
                not_after=desk.now() + 9,
            )
            with pytest.raises(UsageError, match="where 'owner' has to grant"):
                holder.use_grant(desk.hand_over(known.advertisement, itself))
            # A peer whose own checks are switched off still gets nothing past the others.
            holder._running().node._parts.restricting.may_publish = lambda peer, name: True  # type: ignore[method-assign]
            async with Topic(office(friend), known.advertisement).subscribe() as wanted:
                for each in (owner, holder):
                    await each.wait_for_subscribers(topic.name, count=1, timeout=5)
                rogue = await holder.publisher(topic.name)
                await rogue.put(b"not allowed")
                await holder.put("open", b"allowed")
                async with friend.subscribe("open") as others, await topic.publisher() as publisher:
                    await holder.wait_for_subscribers("open", timeout=5)
                    await holder.put("open", b"allowed")
                    assert (await others.receive(timeout=5)).payload == b"allowed"
                    await publisher.put(b"from the owner")
                    assert (await wanted.receive(timeout=5)).payload == b"from the owner"
            deniers = [peer for peer in w.peers if peer is not holder and peer.counters["dropped.denied"]]
            assert deniers
            assert "publishes to" in str([each for each in logs if each.get("peer") == "holder"])

    with capture_logs() as logs:
        loops.run(scene())


async def _pings(w: World, peer: Peer, other: Peer, until: asyncio.Event) -> list[float]:
    """Round trips of an unrelated request, in seconds."""
    times = []
    async with other.subscribe("ping", callback=lambda message: message.reply(1)):
        await peer.wait_for_subscribers("ping", timeout=5)
        while not until.is_set():
            began = time.perf_counter()
            assert (await (await peer.request("ping", 0, within=10))).complete
            times.append(time.perf_counter() - began)
    return times


@pytest.mark.alone
def test_hostile_queries_slow_nobody_down(tmp_path: Path) -> None:
    """Checked with searches in the peer's own process: nothing else is done there."""
    structlog.reset_defaults()

    async def scene() -> None:
        async with world(tmp_path) as w:
            tdn = await w.add("tdn", tdn=w.store(), config=Config(questions_rate_max=1000.0))
            creator, rogue, peer = [await w.add(name) for name in ("creator", "rogue", "peer")]
            xml = "<r>" + "<a/>" * 3000 + "</r>"
            for number in range(40):
                await creator.create_topic(
                    f"air/{number}", text="a" * 4000 + "!", xml=xml, properties={"height": number}
                )
            await office(tdn).desk.workers.warm()
            done = asyncio.Event()
            pings = asyncio.create_task(_pings(w, peer, tdn, done))

            async def attack(text: str, by: str) -> None:
                with contextlib.suppress(UsageError):
                    await rogue.discover(text, by=by, tdns=["tdn"], within=4)

            for _ in range(2):
                await asyncio.gather(*(attack(text, by) for text, by in HOSTILE))
            found = await peer.discover("air/7", within=5)
            done.set()
            times = sorted(await pings)
            assert len(found.topics) == 1
            assert found.answered == ("tdn",)
            assert tdn.counters["queries_ended"] >= 2
            assert any(each.get("peer") == "rogue" for each in logs), "it is known who asked"
            assert len(times) > 100
            assert times[int(len(times) * 0.99)] < 0.05, times[-5:]

    with capture_logs() as logs:
        loops.run(scene())


def test_who_asks_too_often_hears_nothing_more_and_others_do(tmp_path: Path) -> None:
    """Checked without the rate."""

    async def scene() -> None:
        async with world(tmp_path) as w:
            tdn = await w.add("tdn", tdn=w.store(), config=Config(questions_rate_max=20.0))
            greedy, modest = await w.add("greedy"), await w.add("modest")
            await modest.create_topic("air/one")
            await greedy.locate_tdns()
            body = msgspec.msgpack.encode(Query("air"))
            asking = office(greedy).asking
            key = (await asking.tdns(["tdn"], 1.0))["tdn"].key
            asked = [asking.ask(calls.FIND, body, ["tdn"], 0.4, {"tdn": key}) for _ in range(60)]
            answers = 0
            for each in asked:
                answers += len([1 async for _ in each])
            assert answers < 40
            assert tdn.counters["dropped.asks_too_often"] > 20
            assert len((await modest.discover("air")).topics) == 1

    loops.run(scene())


def test_topics_of_a_revoked_creator_are_found_no_more(tmp_path: Path) -> None:
    async def scene() -> None:
        async with world(tmp_path) as w:
            tdn = await w.add("tdn", tdn=w.store())
            owner, seeker = await w.add("owner"), await w.add("seeker")
            topic = await owner.create_topic("air/gone", restricted=True)
            await until(lambda: topic.id in office(seeker).desk.rights.known, "known")
            await seeker.create_topic("air/stays")
            assert len((await seeker.discover("air")).topics) == 2
            w.identities.revoke("owner", tell="seeker")
            verifiers = [office(each).desk.identity.verifier for each in (tdn, seeker)]
            await until(lambda: all(each.revocations() for each in verifiers), "revoked")
            (left,) = (await seeker.discover("air")).topics
            assert left.creator == "seeker"
            assert topic.id not in office(seeker).desk.rights.known

    loops.run(scene())


def test_nobody_fills_the_table_of_another_with_grants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.transport.topics.desk.PER_CREATOR_MAX", 2)

    async def scene() -> None:
        async with world(tmp_path) as w:
            await w.add("tdn", tdn=w.store())
            pushy, victim, other = [await w.add(name) for name in ("pushy", "victim", "other")]
            topics = [await pushy.create_topic(f"air/{number}", restricted=True) for number in range(3)]
            handed = [(await each.grant("victim", subscribe=True)).handed for each in topics[:2]]
            monkeypatch.setattr("anabranch.transport.topics.topic.HANDING_S", 0.3)
            handed.append((await topics[2].grant("victim", subscribe=True)).handed)
            assert handed == [True, True, False]
            assert victim.counters["topics_refused"] >= 1
            mine = await other.create_topic("air/other", restricted=True)
            assert (await mine.grant("victim", subscribe=True)).handed

    loops.run(scene())
