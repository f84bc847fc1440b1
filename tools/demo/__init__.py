"""The demonstration: a small mesh on one machine that loses links and keeps delivering."""
