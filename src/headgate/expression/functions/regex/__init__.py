"""PostgreSQL's regular expressions under the C collation: AREs, EREs, BREs and literal strings, with exactly its choice of match.

`parser` reads a pattern into the tree that decides what matches and where the parts lie, `matcher` runs it over a string, `java`
writes it as a regular expression of Java where a yes or no is all that is asked, `functions` has regexp_replace and its kin,
`similar` the patterns of SIMILAR TO. Called by `regex`, on the driver for constants and in Spark's workers for columns.
"""
