"""An acknowledged publisher: who confirmed a message, and who did not.

Run it: `python examples/acknowledged.py`
"""

import asyncio

from anabranch import AssuredPublisher, Config, Peer


async def main() -> None:
    """One reader takes what is sent, the other one's queue is full."""
    config = Config.local(confirm_limit_s=1.0)
    async with (
        Peer("shop", listen="tcp://127.0.0.1:0", config=config, open=True) as shop,
        Peer("billing", join=shop.addresses, open=True) as billing,
        Peer("archive", join=shop.addresses, open=True) as archive,
        billing.subscribe("orders/*"),
        archive.subscribe("orders/*", queue_max=1),
    ):
        await shop.wait_for_subscribers("orders/new", 2, timeout=5)
        publisher = await shop.publisher("orders/new", guarantee="acknowledged")
        assert isinstance(publisher, AssuredPublisher)
        for number in range(2):
            receipt = await publisher.put({"id": number})
            outcome = await receipt.confirmed(timeout=5)
            print(f"order {number}: complete={outcome.complete} {outcome.confirmed} {outcome.missing}")


if __name__ == "__main__":
    asyncio.run(main())
