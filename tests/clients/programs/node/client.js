// node-postgres: the program that ../conversation.py describes, in JavaScript.
const { Client, Pool, types } = require("pg");
const Cursor = require("pg-cursor");
const copy = require("pg-copy-streams");
const readline = require("readline");
const { pipeline } = require("stream/promises");
const { Readable } = require("stream");

types.setTypeParser(1184, (text) => text.replace(" ", "T").replace("+00", "")); // its Date has no microseconds

const COLUMNS = 11;
const VALUES = [1, "Größe 'q' \\ 😀", "12345678.90", "-9223372036854775808", true, 0.1, "2024-02-29T10:30:15.123456Z", Buffer.from("00ff5c27", "hex"),
  "00112233-4455-6677-8899-aabbccddeeff", ["x", null, 'y,z"'], [1, null, -3]];
const plain = (value) => (Buffer.isBuffer(value) ? value.toString("hex") : value);

const scenes = {
  async values(client) {
    const marks = Array.from({ length: COLUMNS }, (_, at) => `$${at + 1}`).join(", ");
    for (const row of [VALUES, [2, ...Array(COLUMNS - 1).fill(null)]]) {
      await client.query({ name: "put", text: `INSERT INTO items VALUES (${marks})`, values: row });
    }
    const got = await client.query({ name: "get", text: "SELECT * FROM items WHERE id = ANY ($1) ORDER BY id", values: [[1, 2]], rowMode: "array" });
    return got.rows.map((row) => row.map(plain));
  },

  async errors(client) {
    await client.query("INSERT INTO items (id) VALUES (1)");
    const said = [];
    for (const [text, ...values] of [["INSERT INTO items (id) VALUES ($1)", 1], ["SELEC 1"], ["SELECT $1::text::int", "x"], ["SELECT nosuch FROM items"]]) {
      await client.query(text, values).catch((error) => said.push([error.code, error.constraint ?? null]));
    }
    return [...said, (await client.query("SELECT 1 AS one")).rows[0].one];
  },

  async transaction(client) {
    await client.query("BEGIN");
    await client.query("INSERT INTO items (id, name) VALUES ($1, $2)", [1, "outer"]);
    await client.query("SAVEPOINT deeper");
    await client.query("INSERT INTO items (id, name) VALUES (2, 'inner'), (1, 'again')").catch(() => client.query("ROLLBACK TO SAVEPOINT deeper"));
    await client.query("INSERT INTO items (id, name) VALUES ($1, $2)", [3, "behind"]);
    await client.query("COMMIT");
    await client.query("BEGIN; DELETE FROM items");
    await client.query("ROLLBACK");
    return null;
  },

  async copy(client) {
    const into = client.query(copy.from("COPY items (id, name) FROM STDIN (FORMAT csv)"));
    await pipeline(Readable.from(['1,"a,b"\n2,', '\n3,""\n']), into);
    let out = "";
    for await (const part of client.query(copy.to("COPY (SELECT id, name FROM items ORDER BY id) TO STDOUT (FORMAT csv)"))) out += part;
    return [into.rowCount, out];
  },

  async parts(client) {
    const cursor = client.query(new Cursor("SELECT g FROM generate_series(1, $1::int) g", [20000]));
    let count = 0, sum = 0;
    for (let rows = await cursor.read(1000); rows.length; rows = await cursor.read(1000)) {
      count += rows.length;
      for (const row of rows) sum += row.g;
    }
    await cursor.close();
    return [count, sum];
  },

  async cancel(client, url) {
    const running = client.query("SELECT pg_sleep(100)").catch((error) => error.code);
    const other = new Client({ connectionString: url });
    await other.connect();
    for (let found = 0; !found;) {
      found = (await other.query("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT pg_sleep(100)'")).rowCount;
    }
    await other.end();
    return [await running, (await client.query("SELECT 1 AS one")).rows[0].one];
  },

  async plans(client) {
    const query = { name: "all", text: "SELECT * FROM items WHERE id = $1", values: [1], rowMode: "array" };
    const before = (await client.query(query)).fields.length;
    await client.query("ALTER TABLE items DROP COLUMN tags");
    const code = await client.query(query).catch((error) => error.code);
    await client.query("DEALLOCATE ALL");
    return [before, code, (await client.query({ ...query, name: "again" })).fields.length];
  },

  async several(client) {
    const results = await client.query("SELECT 1 AS a; INSERT INTO items (id) VALUES (1), (2); SELECT count(*)::int AS n FROM items");
    return results.map((result) => [result.command, result.rowCount, result.rows]);
  },

  async notifications(client) {
    const heard = [];
    const both = new Promise((done) => client.on("notification", (note) => heard.push([note.channel, note.payload]) === 2 && done()));
    await client.query("LISTEN news");
    await client.query("NOTIFY news, 'first'; SELECT pg_notify('news', 'second')");
    await both;
    return heard;
  },

  async pool(client, url) {
    const pool = new Pool({ connectionString: url, max: 3 });
    await Promise.all(Array.from({ length: 30 }, (_, id) => pool.query("INSERT INTO items (id) VALUES ($1)", [id])));
    const said = [pool.totalCount <= 3, (await pool.query("SELECT count(*)::int AS n, sum(id)::int AS s FROM items")).rows[0]];
    await pool.end();
    return said;
  },
};

async function answer(name, url) {
  const client = new Client({ connectionString: url, options: "-c TimeZone=UTC" });
  await client.connect();
  try {
    return { said: await scenes[name](client, url) };
  } finally {
    await client.end();
  }
}

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const said = await answer(...line.split(" ")).catch((problem) => ({ failed: String(problem.stack ?? problem) }));
    console.log(JSON.stringify(said));
  }
})();
