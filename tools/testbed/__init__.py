"""Emulated networks for peers on one machine."""
