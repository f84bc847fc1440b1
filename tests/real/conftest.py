"""The files that take longest begin first, so that none of them is left when the others are through."""

import pytest

LONGEST = (
    "test_testbed.py",
    "test_replay_real.py",
    "test_topics_command.py",
    "test_examples.py",
    "test_cli.py",
    "test_demo.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(LONGEST)))
