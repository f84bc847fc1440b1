"""From logs to answers: Spark jobs over what peers wrote, a report, and a profile for the peers."""
