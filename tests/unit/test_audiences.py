"""Whom messages are kept for: what other peers announce is believed, up to a limit."""

from support_nodes import Driver, record

from anabranch.overlay.actions import ForgetConsumer, KeepConsumer
from anabranch.overlay.durables import DURABLES_MAX, DurableEntry
from anabranch.overlay.headers import Record, RecordKind


def durables_record(sequence: int, *entries: DurableEntry) -> Record:
    return record("b", RecordKind.DURABLES, list(entries), sequence=sequence)


def test_a_peer_that_leaves_names_behind_has_room_again_only_for_those_it_forgets() -> None:
    driver = Driver()
    driver.node.know_consumers(())
    link = driver.neighbour("b")
    first = [DurableEntry(f"first-{number}", "t", True) for number in range(DURABLES_MAX)]
    driver.records(link, durables_record(1, *first))
    assert len(driver.take(KeepConsumer)) == DURABLES_MAX
    driver.records(link, durables_record(2, DurableEntry("second", "t", True)))
    assert not driver.take(KeepConsumer)
    assert driver.drops()["table_full"] == 1

    forgotten = DurableEntry("first-0", "t", False, is_forgotten=True)
    driver.records(link, durables_record(3, forgotten))
    assert driver.take(ForgetConsumer) == [ForgetConsumer("b", "first-0")]
    driver.records(link, durables_record(4, DurableEntry("second", "t", True)))
    assert driver.take(KeepConsumer) == [KeepConsumer("b", "second", "t")]
