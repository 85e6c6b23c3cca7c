"""What a node publishes: slots, snapshots, what a slot sends of each change, and the stream itself."""
