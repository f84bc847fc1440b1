"""Scenario files: a mesh, its network, its traffic and what happens to them, in one TOML file."""
