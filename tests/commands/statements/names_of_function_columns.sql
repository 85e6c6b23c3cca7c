-- A function in FROM with an alias keeps the names of its OUT parameters, and its row is its value.
SELECT * FROM jsonb_array_elements('[1, 2]') q;
SELECT q.value, q FROM jsonb_array_elements('[1, 2]') q;
SELECT value FROM json_array_elements_text('["a"]') AS q;
SELECT * FROM jsonb_array_elements('[1, 2]') q(v);
SELECT * FROM jsonb_array_elements('[1, 2]') WITH ORDINALITY q;
SELECT g, g.g FROM generate_series(1, 2) g;
SELECT k FROM jsonb_each('{"a": 1}') k;
CREATE TABLE documents (j jsonb);
INSERT INTO documents VALUES ('[[1], [2]]');
SELECT e.value, value, e, e -> 0 AS first FROM documents, jsonb_array_elements(j) e;
SELECT count(e) FROM documents, jsonb_array_elements(j) e;
SELECT a FROM documents, unnest(ARRAY[1, 2]) a ORDER BY a;
DROP TABLE documents;
SELECT interval '2:03' MINUTE TO SECOND, interval '1 -2:03' MINUTE TO SECOND, interval '1 2:03' HOUR TO MINUTE;
SELECT interval 'P.Y0M3DT4H5M6S';
SELECT interval 'P.5Y1.5M-.5DT1.S';
