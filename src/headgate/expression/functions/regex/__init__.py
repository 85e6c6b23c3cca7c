"""PostgreSQL's regular expressions under the C collation: AREs, EREs, BREs and literal strings, with exactly its choice of match.

`parser` reads a pattern into the tree that decides what matches and where the parts lie. `matcher` matches it against a string. `java`
translates it to a Java regular expression if only the existence of a match counts. `functions` has regexp_replace and similar functions,
`similar` the patterns of SIMILAR TO. Called by `regex`, on the driver for constants and in Spark's workers for columns.
"""
