"""The location of the tables: the data location, the object stores that can hold it, its owner, and the lease for writing to it."""
