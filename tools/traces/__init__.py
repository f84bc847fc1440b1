"""Recorded networks: read from files, made from the logs of peers, played back as conditions of links."""
