"""Topics on sockets: creation, discovery, grants, sealed payloads, and who gets nothing."""

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from support_topics_mesh import world

from anabranch import AnabranchError, Peer, UsageError
from anabranch.transport import loops
from anabranch.transport.topics.policy import Tdn


def test_a_topic_is_created_found_and_used(tmp_path: Path) -> None:
    async def scene() -> None:
        async with world(tmp_path) as w:
            await w.add("tdn", tdn=w.store())
            creator = await w.add("creator")
            seeker = await w.add("seeker")
            topic = await creator.create_topic(
                "air/radar/nyc",
                institution="Observatory",
                paths=["sensors/radar"],
                text="plots of the radar",
                properties={"region": "north", "range": 40},
                xml="<radar><band>X</band></radar>",
            )
            assert topic.synopsis.startswith("air/radar/nyc/topic-")
            other = await creator.create_topic("air/sonar", properties={"region": "south", "range": 5})
            for query, by, expected in (
                ("radar", "string", [topic]),
                ("SENSORS/ra", "string", [topic]),
                ("xy", "string", []),
                ("", "string", [topic, other]),
                (r"(?i)PLOTS of .* radar", "regex", [topic]),
                ("region = 'north' AND range > 30", "sql", [topic]),
                ("creator = 'creator'", "sql", [topic, other]),
                ("nothing_known = 3", "sql", []),
                ("/radar/band[.='X']", "xpath", [topic]),
                ("/radar/band[.='S']", "xpath", []),
            ):
                found = await seeker.discover(query, by=by)
                assert list(found.topics) == sorted(expected, key=lambda each: each.synopsis), (query, by)
                assert (found.answered, found.from_creators, found.unanswered) == (("tdn",), False, ())
            now = time.time()
            assert (await seeker.discover(created_after=now + 10)).topics == ()
            assert len((await seeker.discover(created_before=now + 10, lasts_at_least=3600)).topics) == 2
            assert (await seeker.discover(expires_before=now + 60)).topics == ()
            (same,) = (await seeker.discover("radar")).topics
            async with same.subscribe() as wanted, await topic.publisher() as publisher:
                await creator.wait_for_subscribers(topic.name, timeout=5)
                await publisher.put(b"plot")
                assert (await wanted.receive(timeout=5)).payload == b"plot"

    loops.run(scene())


def test_restricted_topics_are_for_holders_of_grants_alone(tmp_path: Path) -> None:
    async def scene() -> None:
        async with world(tmp_path) as w:
            await w.add("tdn", tdn=w.store())
            owner, a, b, thief = [await w.add(name) for name in ("owner", "a", "b", "thief")]
            topic = await owner.create_topic("air/secret", restricted=True)
            with pytest.raises(UsageError, match="no right to publish"):
                await thief.publisher(topic.name)
            with pytest.raises(UsageError, match="no right to publish"):
                await thief.request(topic.name)
            with pytest.raises(UsageError, match="may not grant"):
                await (await a.discover("secret")).topics[0].grant("b", subscribe=True)
            given = await topic.grant("a", subscribe=True, delegate=1)
            assert given.handed
            (known,) = a.known_topics()
            with pytest.raises(UsageError, match="wider"):
                await known.grant("b", publish=True)
            await known.grant("b", subscribe=True)
            with pytest.raises(UsageError, match="shows a grant of 'a'"):
                thief.use_grant(given.packed)
            with pytest.raises(UsageError, match="only 'owner' can"):
                await known.revoke("b")
            async with (
                known.subscribe() as for_a,
                b.known_topics()[0].subscribe() as for_b,
                thief.subscribe("**") as stolen,
                await topic.publisher() as publisher,
            ):
                with pytest.raises(UsageError, match="no right to subscribe"):
                    (await thief.discover("secret")).topics[0].subscribe()
                await owner.wait_for_subscribers(topic.name, count=2, timeout=5)
                await publisher.put("one")
                for each in (for_a, for_b):
                    assert (await each.receive(timeout=5)).payload == "one"
                harvest = await owner.request(topic.name, "who?", expects=str, within=5.0)
                for each in (for_a, for_b):
                    await (await each.receive(timeout=5)).reply("here")
                assert (await harvest).asked == ("a", "b")
                assert (await harvest).complete
                assert owner.subscribers(topic.name) == ("a", "b")
                assert await topic.revoke("a") == ["tdn"]
                assert owner.subscribers(topic.name) == ()
                await publisher.put("two")
                await owner.put("open", "three")
                assert (await stolen.receive(timeout=5)).payload == "three"
                assert (for_a.pending, for_b.pending, stolen.pending) == (0, 0, 0)
            late = await w.add("late")
            await late.wait_for_peers("a", timeout=5)
            assert late.subscribers(topic.name) == ()

    loops.run(scene())


def test_payloads_of_sealed_topics_are_read_by_holders_and_not_under_the_old_key_after_revocation(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        async with world(tmp_path) as w:
            relay = await w.add("tdn", tdn=w.store())
            owner, a, b = [await w.add(name) for name in ("owner", "a", "b")]
            topic = await owner.create_topic("air/sealed", restricted=True, sealed=True)
            for name in ("a", "b"):
                await topic.grant(name, publish=name == "b", subscribe=True)
            mine, theirs = a.known_topics()[0], b.known_topics()[0]
            async with mine.subscribe() as wanted, await theirs.publisher() as publisher:
                await b.wait_for_subscribers(topic.name, timeout=5)
                await publisher.put({"height": 3})
                assert (await wanted.receive(timeout=5)).payload == {"height": 3}
                old = await topic.key()
                async with a.subscribe(topic.name) as raw:
                    await b.wait_for_subscribers(topic.name, timeout=5)
                    await publisher.put(b"hidden")
                    carried = (await raw.receive(timeout=5)).payload
                assert isinstance(carried, bytes)
                assert b"hidden" not in carried
                assert (await wanted.receive(timeout=5)).payload == b"hidden"
                await topic.revoke("a")
                await publisher.put(b"after")
                fresh = await theirs.key()
                assert fresh.made_at_us > old.made_at_us
                with pytest.raises(AnabranchError, match="no key"):
                    await mine.key(made_at_us=fresh.made_at_us)
                assert owner.counters["topic_keys_denied"] + b.counters["topic_keys_denied"] >= 1
            assert relay.counters["dropped.denied"] == 0

    loops.run(scene())


def test_without_discovery_nodes_creators_answer_and_a_restarted_node_knows_its_topics(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        async with world(tmp_path) as w:
            hub = await w.add("hub")
            creators = [await w.add(f"creator-{number}") for number in range(4)]
            seeker = await w.add("seeker")
            tdns = [w.new(name, tdn=w.store(name)) for name in ("tdn-1", "tdn-2")]
            for tdn in tdns:
                await tdn.open()
                for peer in w.peers:
                    await peer.wait_for_peers(tdn.name, timeout=10)
            for number, creator in enumerate(creators):
                await creator.create_topic(f"news/{number}", text="daily")
            found = await seeker.discover("daily")
            assert (len(found.topics), found.answered) == (4, ("tdn-1", "tdn-2"))
            assert len((await seeker.discover("daily", tdns=["tdn-2"])).topics) == 4
            assert {each.name for each in await seeker.locate_tdns()} == {"tdn-1", "tdn-2"}
            for tdn in tdns:
                await tdn.close()
            for query, by in (("daily", "string"), ("da.ly", "regex"), ("creator LIKE 'creator%'", "sql")):
                found = await seeker.discover(query, by=by)
                assert (len(found.topics), found.from_creators) == (4, True), by
                assert set(found.answered) >= {each.name for each in creators}
            assert hub.counters["topics_searched"] == 0
            again = w.new("tdn-1", tdn=w.store("tdn-1"))
            async with again:
                for peer in w.peers:
                    await peer.wait_for_peers("tdn-1", timeout=10)
                found = await seeker.discover("daily")
                assert (len(found.topics), found.answered) == (4, ("tdn-1",))

    loops.run(scene())


def test_a_node_that_was_missed_answers_with_everybody(tmp_path: Path) -> None:
    """Its creator is gone, and the seeker hears of no node. Checked with nodes that then answer for their
    own topics alone."""

    async def nobody(*_: object) -> dict[str, object]:
        return {}

    async def scene() -> None:
        async with world(tmp_path) as w:
            await w.add("tdn", tdn=w.store())
            seeker = await w.add("seeker")
            async with w.new("creator") as creator:
                await creator.wait_for_peers("tdn", "seeker", timeout=10)
                topic = await creator.create_topic("air/radar")
            assert seeker._office is not None
            seeker._office.asking.tdns = nobody  # type: ignore[assignment,method-assign]
            found = await seeker.discover("radar")
            assert (list(found.topics), found.from_creators) == ([topic], True)

    loops.run(scene())


def test_each_node_keeps_what_its_policy_says_and_private_ones_are_silent_to_others(tmp_path: Path) -> None:
    """Checked with nodes that answer everybody."""

    async def scene() -> None:
        async with world(tmp_path) as w:
            await w.add("by-place", tdn=Tdn(store=tmp_path / "1", institutions=("Observatory",)))
            await w.add(
                "by-path", tdn=Tdn(store=tmp_path / "2", descriptors=("air/*",), creators=("creator",))
            )
            vault = await w.add("vault", tdn=Tdn(store=tmp_path / "3", private=True, entitled=("creator",)))
            creator, other = await w.add("creator"), await w.add("other")
            assert {each.name for each in await creator.locate_tdns()} == {"by-place", "by-path", "vault"}
            assert {each.name for each in await other.locate_tdns()} == {"by-place", "by-path"}
            air = await creator.create_topic("air/radar", tdn="by-place")
            sea = await creator.create_topic(
                "sea/sonar", institution="Observatory", tdn="vault", tdns=["by-place"]
            )
            for name, expected in (("by-place", [sea]), ("by-path", [air]), ("vault", [air])):
                found = await creator.discover(tdns=[name], within=2)
                assert list(found.topics) == expected, name
            hidden = await other.discover(tdns=["vault"], within=0.5)
            assert (hidden.topics, hidden.answered, hidden.unanswered) == ((), (), ("vault",))
            with pytest.raises(AnabranchError, match="does not answer"):
                await other.create_topic("sea/mine", tdn="vault", within=0.5)
            shy = await creator.create_topic("air/shy", discoverers=["by-path"])
            assert shy in (await creator.discover("shy")).topics
            assert (await other.discover("shy")).topics == ()
            assert (await other.discover("EXISTS (SELECT 1)", by="string")).topics == ()
            assert len(vault.known_topics()) == 0

    loops.run(scene())


def test_topics_need_a_secured_mesh_and_nodes_a_certificate_for_it(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Peer("plain", open=True) as peer:
            with pytest.raises(UsageError, match="secured mesh alone"):
                await peer.create_topic("a")
        with pytest.raises(UsageError, match="needs an identity"):
            Peer("plain", open=True, tdn=tmp_path / "x")
        async with world(tmp_path) as w:
            impostor = w.new("impostor", tdn=None)
            impostor._tdn = Tdn(store=tmp_path / "y")
            with pytest.raises(UsageError, match="--tdn"):
                await impostor.open()
            lonely = await w.add("lonely")
            with pytest.raises(AnabranchError, match="no discovery node answers"):
                await lonely.create_topic("a", within=0.2)
            for wrong in (
                {"synopsis": "a//b"},
                {"synopsis": "a", "lifetime": -1},
                {"synopsis": "a", "sealed": True},
            ):
                with pytest.raises(UsageError):
                    await lonely.create_topic(**wrong)  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="one of string"):
                await lonely.discover("a", by="guess")

    loops.run(scene())
