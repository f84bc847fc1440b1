"""A persistent publisher and a durable subscription: nothing is lost while either of them is away.

Run it: `python examples/persistent.py`
"""

import asyncio
import tempfile

from anabranch import Peer


async def main() -> None:
    """Publish while the subscriber is away, restart the publisher, then let the subscriber come back."""
    with tempfile.TemporaryDirectory() as stores:
        async with Peer("shop", listen="tcp://127.0.0.1:0", store_dir=stores, open=True) as shop:
            async with Peer("billing", join=shop.addresses, store_dir=stores, open=True) as billing:
                billing.subscribe("orders/*", durable="invoices")
                await shop.wait_for_subscribers("orders/new", timeout=5)
            publisher = await shop.publisher("orders/new", guarantee="persistent")
            await asyncio.gather(*(publisher.put({"id": number}) for number in range(3)))

        async with (
            Peer("shop", listen="tcp://127.0.0.1:0", store_dir=stores, open=True) as shop,
            Peer("billing", join=shop.addresses, store_dir=stores, open=True) as billing,
            billing.subscribe("orders/*", durable="invoices") as orders,
        ):
            for _ in range(3):
                order = await orders.receive(timeout=5)
                print(f"{order.sequence}: {order.payload}")


if __name__ == "__main__":
    asyncio.run(main())
