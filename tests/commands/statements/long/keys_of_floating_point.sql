-- ON UPDATE CASCADE updates references if only the sign of a zero key changes.
CREATE TABLE p (f float8 PRIMARY KEY, g float4 UNIQUE);
CREATE TABLE c (f float8 REFERENCES p ON UPDATE CASCADE, g float4 REFERENCES p (g) ON UPDATE CASCADE);
INSERT INTO p VALUES (0, 0), (1, 1);
INSERT INTO c VALUES (0, 0), (1, 1);
UPDATE p SET f = -0.0::float8 WHERE f = 0;
UPDATE p SET g = '-0' WHERE g = 0;
SELECT * FROM p ORDER BY 1;
SELECT * FROM c ORDER BY 1;
