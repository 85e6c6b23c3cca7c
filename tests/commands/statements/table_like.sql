CREATE TABLE src (a int PRIMARY KEY, b text DEFAULT 'x', c int GENERATED ALWAYS AS (a * 2) STORED);
COMMENT ON COLUMN src.b IS 'the b';
COMMENT ON TABLE src IS 'the table';
CREATE UNIQUE INDEX src_b ON src (b);
CREATE TABLE copy (LIKE src INCLUDING ALL);
\d+ copy
SELECT col_description('copy'::regclass, 2), obj_description('copy'::regclass, 'pg_class');
INSERT INTO copy VALUES (1, 'a'), (2, 'a');
CREATE TABLE plain (LIKE src);
\d+ plain
CREATE TABLE commented (LIKE src INCLUDING COMMENTS EXCLUDING INDEXES);
\d+ commented
CREATE TABLE collated (a int GENERATED ALWAYS AS IDENTITY (MAXVALUE 3 CACHE 5 CYCLE), b text COLLATE "C" UNIQUE DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE collated_too (LIKE collated INCLUDING ALL);
\d collated_too
SELECT seqcache, seqcycle, seqmax FROM pg_sequence WHERE seqrelid = 'collated_too_a_seq'::regclass;
