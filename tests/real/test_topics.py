"""Topics on sockets: creation, discovery, grants, sealed payloads, and who gets nothing."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from support_topics_mesh import world

from anabranch.transport import loops


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
