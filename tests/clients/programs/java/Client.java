import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.Array;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Types;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Timer;
import java.util.TimerTask;
import java.util.UUID;
import org.postgresql.PGConnection;
import org.postgresql.PGNotification;
import org.postgresql.util.PSQLException;

/** JDBC: the program that ../conversation.py describes, in Java. */
public class Client {
    static final int COLUMNS = 11;

    interface Scene {
        Object play(Connection link) throws Exception;
    }

    public static void main(String[] none) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintWriter output = new PrintWriter(System.out, true, StandardCharsets.UTF_8);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            try {
                output.println("{\"said\": " + json(play(words[0], words[1])) + "}");
            } catch (Throwable problem) {
                StringWriter trace = new StringWriter();
                problem.printStackTrace(new PrintWriter(trace));
                output.println("{\"failed\": " + json(trace.toString()) + "}");
            }
        }
    }

    static Object play(String name, String url) throws Exception {
        Scene scene = switch (name) {
            case "values" -> Client::values;
            case "errors" -> Client::errors;
            case "transaction" -> Client::transaction;
            case "copy" -> Client::copy;
            case "parts" -> Client::parts;
            case "cancel" -> Client::cancel;
            case "plans" -> Client::plans;
            case "batches" -> Client::batches;
            case "updatable" -> Client::updatable;
            case "scrolling" -> Client::scrolling;
            case "notifications" -> Client::notifications;
            case "metadata" -> Client::metadata;
            case "autosave" -> Client::autosave;
            default -> throw new IllegalArgumentException(name);
        };
        // at its third execution a statement is prepared, and its values are sent in binary
        try (Connection link = DriverManager.getConnection("jdbc:" + url.replaceFirst("//[^@]*@", "//") + "?user=postgres&prepareThreshold=2")) {
            return scene.play(link);
        }
    }

    static Connection again(Connection link, String more) throws SQLException {
        return DriverManager.getConnection(link.getMetaData().getURL() + "&user=postgres&" + more);
    }

    static String json(Object value) {
        if (value == null || value instanceof Integer || value instanceof Long || value instanceof Boolean || value instanceof Double) return String.valueOf(value);
        if (value instanceof List<?> all) return "[" + String.join(", ", all.stream().map(Client::json).toList()) + "]";
        StringBuilder text = new StringBuilder("\"");
        for (char one : value.toString().toCharArray()) {
            text.append(one == '"' || one == '\\' ? "\\" + one : one < ' ' ? String.format("\\u%04x", (int) one) : String.valueOf(one));
        }
        return text.append('"').toString();
    }

    static List<Object> list(Object... values) {
        return new ArrayList<>(Arrays.asList(values));
    }

    static void run(Connection link, String... statements) throws SQLException {
        try (Statement statement = link.createStatement()) {
            for (String each : statements) statement.execute(each);
        }
    }

    static Object one(Connection link, String query) throws SQLException {
        try (Statement statement = link.createStatement(); ResultSet rows = statement.executeQuery(query)) {
            rows.next();
            return rows.getObject(1);
        }
    }

    static Object plain(Object value) throws SQLException {
        if (value instanceof Array array) return list((Object[]) array.getArray());
        if (value instanceof byte[] bytes) return HexFormat.of().formatHex(bytes);
        if (value instanceof OffsetDateTime at) return at.withOffsetSameInstant(ZoneOffset.UTC).toLocalDateTime().toString();
        return value instanceof BigDecimal || value instanceof UUID || value instanceof Long ? value.toString() : value;
    }

    static Object values(Connection link) throws Exception {
        Object[] row = {1, "Größe 'q' \\ 😀", new BigDecimal("12345678.90"), Long.MIN_VALUE, true, 0.1,
            OffsetDateTime.of(LocalDateTime.of(2024, 2, 29, 10, 30, 15, 123456000), ZoneOffset.UTC), HexFormat.of().parseHex("00ff5c27"),
            UUID.fromString("00112233-4455-6677-8899-aabbccddeeff"), link.createArrayOf("text", new Object[] {"x", null, "y,z\""}),
            link.createArrayOf("int4", new Object[] {1, null, -3})};
        int[] kinds = {Types.INTEGER, Types.VARCHAR, Types.NUMERIC, Types.BIGINT, Types.BOOLEAN, Types.DOUBLE, Types.TIMESTAMP_WITH_TIMEZONE, Types.BINARY,
            Types.OTHER, Types.ARRAY, Types.ARRAY};
        try (PreparedStatement put = link.prepareStatement("INSERT INTO items VALUES (?" + ", ?".repeat(COLUMNS - 1) + ")")) {
            for (int n = 0; n < COLUMNS; n++) put.setObject(n + 1, row[n]);
            put.executeUpdate();
            put.setInt(1, 2);
            for (int n = 1; n < COLUMNS; n++) put.setNull(n + 1, kinds[n]);
            put.executeUpdate();
        }
        List<Object> said = list();
        try (PreparedStatement get = link.prepareStatement("SELECT * FROM items WHERE id = ANY (?) ORDER BY id")) {
            get.setArray(1, link.createArrayOf("int4", new Object[] {1, 2}));
            for (int turn = 0; turn < 4; turn++) { // in text, and once it is prepared in binary
                said.clear();
                try (ResultSet rows = get.executeQuery()) {
                    while (rows.next()) {
                        List<Object> seen = list();
                        for (int n = 1; n <= COLUMNS; n++) seen.add(plain(n == 7 ? rows.getObject(n, OffsetDateTime.class) : rows.getObject(n)));
                        said.add(seen);
                    }
                }
            }
        }
        return said;
    }

    static Object errors(Connection link) throws Exception {
        run(link, "INSERT INTO items (id) VALUES (1)");
        List<Object> said = list();
        Object[][] statements = {{"INSERT INTO items (id) VALUES (?)", 1}, {"SELEC 1"}, {"SELECT ?::text::int", "x"}, {"SELECT nosuch FROM items"}};
        for (Object[] each : statements) {
            try (PreparedStatement statement = link.prepareStatement((String) each[0])) {
                if (each.length > 1) statement.setObject(1, each[1]);
                statement.execute();
            } catch (PSQLException refused) {
                said.add(list(refused.getSQLState(), refused.getServerErrorMessage().getConstraint()));
            }
        }
        said.add(one(link, "SELECT 1"));
        return said;
    }

    static Object transaction(Connection link) throws Exception {
        link.setAutoCommit(false);
        run(link, "INSERT INTO items (id, name) VALUES (1, 'outer')");
        Savepoint inner = link.setSavepoint("inner");
        try {
            run(link, "INSERT INTO items (id, name) VALUES (2, 'inner'), (1, 'again')");
        } catch (SQLException refused) {
            link.rollback(inner);
        }
        run(link, "INSERT INTO items (id, name) VALUES (3, 'behind')");
        link.commit();
        run(link, "DELETE FROM items");
        link.rollback();
        return null;
    }

    static Object copy(Connection link) throws Exception {
        var api = link.unwrap(PGConnection.class).getCopyAPI();
        long came = api.copyIn("COPY items (id, name) FROM STDIN (FORMAT csv)", new StringReader("1,\"a,b\"\n2,\n3,\"\"\n"));
        StringWriter out = new StringWriter();
        api.copyOut("COPY (SELECT id, name FROM items ORDER BY id) TO STDOUT (FORMAT csv)", out);
        return list(came, out.toString());
    }

    static Object parts(Connection link) throws Exception {
        link.setAutoCommit(false);
        try (PreparedStatement query = link.prepareStatement("SELECT g FROM generate_series(1, ?) g")) {
            query.setInt(1, 20000);
            query.setFetchSize(1000);
            int count = 0;
            long sum = 0;
            try (ResultSet rows = query.executeQuery()) {
                for (; rows.next(); count++) sum += rows.getInt(1);
            }
            return list(count, sum);
        }
    }

    static Object cancel(Connection link) throws Exception {
        String state = null;
        Timer timer = new Timer();
        try (Statement statement = link.createStatement()) {
            timer.schedule(new TimerTask() {
                @Override
                public void run() {
                    try {
                        statement.cancel();
                    } catch (SQLException failed) {
                        throw new IllegalStateException(failed);
                    }
                }
            }, 200);
            statement.execute("SELECT pg_sleep(100)");
        } catch (SQLException cancelled) {
            state = cancelled.getSQLState();
        }
        timer.cancel();
        return list(state, one(link, "SELECT 1"));
    }

    /** A plan whose result has changed is prepared again, also in a transaction if the driver sets savepoints. */
    static Object plans(Connection link) throws Exception {
        try (Connection careful = again(link, "prepareThreshold=1&autosave=conservative")) {
            List<Object> said = list();
            try (PreparedStatement query = careful.prepareStatement("SELECT * FROM items WHERE id = ?")) {
                for (String change : new String[] {"SELECT 1", "ALTER TABLE items ADD COLUMN more int", "ALTER TABLE items ALTER COLUMN big TYPE text",
                    "ALTER TABLE items DROP COLUMN name"}) {
                    run(careful, change);
                    careful.setAutoCommit(said.size() % 2 == 0);
                    for (int turn = 0; turn < 3; turn++) {
                        query.setInt(1, 1);
                        try (ResultSet rows = query.executeQuery()) {
                            rows.next();
                            ResultSetMetaData about = rows.getMetaData();
                            if (turn == 2) said.add(list(about.getColumnCount(), about.getColumnTypeName(3), about.getColumnName(about.getColumnCount())));
                        }
                    }
                    if (!careful.getAutoCommit()) careful.commit();
                    careful.setAutoCommit(true);
                }
            }
            return said;
        }
    }

    static Object batches(Connection link) throws Exception {
        List<Object> said = list();
        for (String rewritten : new String[] {"false", "true"}) {
            try (Connection other = again(link, "reWriteBatchedInserts=" + rewritten)) {
                other.setAutoCommit(false);
                run(other, "TRUNCATE items");
                try (PreparedStatement put = other.prepareStatement("INSERT INTO items (id, name) VALUES (?, ?)", Statement.RETURN_GENERATED_KEYS)) {
                    for (int n = 0; n < 300; n++) {
                        put.setInt(1, n);
                        put.setString(2, n % 2 == 0 ? null : "n" + n);
                        put.addBatch();
                    }
                    said.add(put.executeBatch().length);
                    int keys = 0;
                    for (ResultSet made = put.getGeneratedKeys(); made.next();) keys++;
                    said.add(keys);
                    other.commit();
                    put.setInt(1, 1000);
                    put.addBatch();
                    put.setInt(1, 7);
                    put.addBatch();
                    put.executeBatch();
                } catch (BatchUpdateException refused) {
                    said.add(refused.getSQLState());
                    other.rollback();
                }
                said.add(one(other, "SELECT count(*) FROM items"));
            }
        }
        return said;
    }

    /** Change, delete and add rows through a result, by their key. */
    static Object updatable(Connection link) throws Exception {
        try (Statement statement = link.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_UPDATABLE);
                ResultSet rows = statement.executeQuery("SELECT id, name, tags FROM items WHERE id <= 4 ORDER BY id")) {
            rows.absolute(2);
            rows.updateString("name", "changed");
            rows.updateArray("tags", link.createArrayOf("text", new Object[] {"a", null}));
            rows.updateRow();
            rows.last();
            rows.deleteRow();
            rows.moveToInsertRow();
            rows.updateInt("id", 100);
            rows.updateNull("name");
            rows.insertRow();
            rows.absolute(2);
            return list(rows.getString("name"), rows.getInt("id"));
        }
    }

    static Object scrolling(Connection link) throws Exception {
        link.setAutoCommit(false);
        List<Object> said = list();
        try (Statement held = link.createStatement(ResultSet.TYPE_FORWARD_ONLY, ResultSet.CONCUR_READ_ONLY, ResultSet.HOLD_CURSORS_OVER_COMMIT)) {
            held.setFetchSize(5);
            try (ResultSet rows = held.executeQuery("SELECT id FROM items ORDER BY id")) {
                for (int n = 0; n < 12 && rows.next(); n++) said.add(rows.getInt(1));
                said.add(rows.getRow());
            }
        }
        link.commit();
        try (Statement scrolled = link.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY);
                ResultSet rows = scrolled.executeQuery("SELECT id FROM items ORDER BY id")) {
            rows.last();
            said.add(rows.getRow());
            rows.relative(-3);
            said.add(rows.getInt(1));
        }
        return said;
    }

    static Object notifications(Connection link) throws Exception {
        run(link, "LISTEN news", "NOTIFY news, 'first'", "SELECT pg_notify('news', 'second')");
        List<Object> said = list();
        while (said.size() < 2) {
            PGNotification[] heard = link.unwrap(PGConnection.class).getNotifications(60000);
            if (heard == null || heard.length == 0) throw new IllegalStateException("no notification came");
            for (PGNotification each : heard) said.add(list(each.getName(), each.getParameter()));
        }
        return said;
    }

    static Object metadata(Connection link) throws Exception {
        run(link, "CREATE SCHEMA shop", "CREATE TABLE shop.parts (item int REFERENCES items, n numeric(8,3) NOT NULL DEFAULT 1.5, at timestamptz, PRIMARY KEY (item, n))",
            "CREATE INDEX by_time ON shop.parts (at DESC)", "CREATE VIEW shop.seen AS SELECT item FROM shop.parts", "COMMENT ON COLUMN shop.parts.n IS 'how many'");
        DatabaseMetaData about = link.getMetaData();
        List<Object> said = list();
        try (ResultSet rows = about.getTables(null, "shop", "%", null)) {
            while (rows.next()) said.add(list(rows.getString("TABLE_NAME"), rows.getString("TABLE_TYPE")));
        }
        try (ResultSet rows = about.getColumns(null, "shop", "parts", "%")) {
            while (rows.next()) {
                said.add(list(rows.getString("COLUMN_NAME"), rows.getString("TYPE_NAME"), rows.getInt("COLUMN_SIZE"), rows.getInt("DECIMAL_DIGITS"), rows.getString("IS_NULLABLE"),
                    rows.getString("COLUMN_DEF"), rows.getString("REMARKS")));
            }
        }
        try (ResultSet rows = about.getPrimaryKeys(null, "shop", "parts")) {
            while (rows.next()) said.add(list(rows.getString("COLUMN_NAME"), rows.getInt("KEY_SEQ"), rows.getString("PK_NAME")));
        }
        try (ResultSet rows = about.getImportedKeys(null, "shop", "parts")) {
            while (rows.next()) said.add(list(rows.getString("PKTABLE_NAME"), rows.getString("PKCOLUMN_NAME"), rows.getString("FKCOLUMN_NAME"), rows.getString("FK_NAME")));
        }
        try (ResultSet rows = about.getIndexInfo(null, "shop", "parts", false, true)) {
            while (rows.next()) said.add(list(rows.getString("INDEX_NAME"), rows.getBoolean("NON_UNIQUE"), rows.getString("COLUMN_NAME"), rows.getString("ASC_OR_DESC")));
        }
        return said;
    }

    /** With autosave=always an error within a transaction undoes only its statement. */
    static Object autosave(Connection link) throws Exception {
        try (Connection careful = again(link, "autosave=always")) {
            careful.setAutoCommit(false);
            List<Object> said = list();
            run(careful, "INSERT INTO items (id) VALUES (1)");
            try {
                run(careful, "INSERT INTO items (id) VALUES (1)");
            } catch (SQLException refused) {
                said.add(refused.getSQLState());
            }
            run(careful, "INSERT INTO items (id) VALUES (2)");
            careful.commit();
            said.add(one(careful, "SELECT count(*) FROM items"));
            return said;
        }
    }
}
