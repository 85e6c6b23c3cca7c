-- Numbers of thousands of digits are read, or refused as too large.
\set VERBOSITY terse
SELECT left(('0x' || repeat('f', 5000))::float8::text, 10);
SELECT left(('-0x' || repeat('f', 5000))::float4::text, 10);
SELECT ('(0x' || repeat('f', 5000) || ',1)')::point;
SET TIME ZONE '0xfffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff';
SELECT '0/1'::pg_lsn + repeat('9', 5000)::numeric;
SELECT '0/1'::pg_lsn - repeat('9', 5000)::numeric;
SELECT width_bucket(repeat('9', 5000)::numeric, 1, repeat('9', 5000)::numeric + 5, 2147483647);
CREATE TABLE shares (n numeric(38, 38));
INSERT INTO shares VALUES (1e-38), (-1e-38), (0.5);
SELECT n, mod(n, n), n % 1e-38::numeric(38, 38) FROM shares ORDER BY n;
SELECT n FROM shares WHERE trunc(mod(n, n)) > sign(n);
INSERT INTO shares VALUES (0);
SELECT mod(n, n) FROM shares;
