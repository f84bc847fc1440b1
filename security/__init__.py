"""Keys, certificates, signing, sealing, grants. No sockets, no clock."""
