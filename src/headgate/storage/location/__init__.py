"""Where the tables lie: the data location, the object stores that it may be in, whose it is, and who may write there."""
