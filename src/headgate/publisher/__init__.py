"""The publisher of a node: slots, snapshots, the published form of each change, and the stream of a slot."""
