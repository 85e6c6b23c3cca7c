# SQL that nodes do not support, and the SQL that is sent in its place.
#
# Each entry: [ the number of the test, a pattern of ours, a function that returns the replacement, the reason, whether PostgreSQL
# subscribers of a node get the replacement too (default: nodes only) ].
our $postponed;
[
	[ '002', qr/CREATE EXTENSION hstore WITH SCHEMA public;/, sub { '' }, 'extensions: hstore' ],
	[ '002', qr/(\bb|\ba) (public\.hstore)/, sub { "$_[0] text" }, 'hstore: these columns are text on a node' ],
	[ '002', qr/CREATE FUNCTION public\.monot_incr.*?';\s*' *;?|SET check_function_bodies=off;\s*CREATE FUNCTION public\.monot_incr.*?;\s*';/s, sub { '' }, 'user-defined functions' ],
	[ '002', qr/ CHECK \(monot_incr\(VALUE\)\)/, sub { '' }, 'user-defined functions' ],
	[ '009', qr/CREATE MATERIALIZED VIEW.*/s, sub { '' }, 'materialized views' ],
	[ '012', qr/CREATE COLLATION ctest_nondet .*/s, sub { '' }, 'collations other than C' ],
	[ '012', qr/ COLLATE ctest_nondet\b/, sub { '' }, 'collations other than C' ],
	[ '100', qr/CREATE FUNCTION double\(x int\).*/s, sub { '' }, 'user-defined functions' ],
	[ '100', qr/ WHERE a > double\(1\)/, sub { ' WHERE a > 2' }, 'user-defined functions' ],
	[ '001', qr/options=''-c log_statement_stats=on''/, sub { "options=''-c log_min_duration_statement=0''" }, 'a node rejects log_statement_stats (documented)', 1 ],
	[ '015', qr/BEGIN;\s*INSERT INTO test_tab SELECT i, md5\(i::text\) FROM generate_series\(5001, 9999\) s\(i\);\s*DELETE FROM test_tab WHERE a > 5000;\s*COMMIT;/, sub { '' }, 'a second writer waits for a transaction that deletes rows of the table (documented); this transaction has no net effect' ],
	[ '023', qr/^INSERT INTO test_tab VALUES \(99999, 'foobar'\)$/, sub { $postponed = 1; '' }, 'a prepared transaction that has changed rows blocks other writers of the table (documented): the INSERT is sent after its end' ],
	[ '023', qr/((?:COMMIT|ROLLBACK) PREPARED 'test_prepared_tab';)/, sub { my $end = $_[0] . ($postponed ? " INSERT INTO test_tab VALUES (99999, 'foobar');" : ''); $postponed = 0; $end }, 'the INSERT that was postponed' ],
]
