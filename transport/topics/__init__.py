"""Topics on sockets: their discovery nodes, their creators, and those who look for them."""
