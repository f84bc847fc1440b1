"""The shells that run the core: ZeroMQ on asyncio, and the simulator in virtual time."""
