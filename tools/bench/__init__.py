"""Benchmarks: the product side by side with raw ZeroMQ, Zenoh and NATS, each in processes of its own."""
