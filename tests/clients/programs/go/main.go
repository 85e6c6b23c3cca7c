// pgx: the program that ../conversation.py describes, in Go.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

type list = []any

var scenes = map[string]func(context.Context, *pgx.Conn) (any, error){
	"values": values, "errors": failures, "transaction": transaction, "copy": copied, "parts": parts, "cancel": cancel,
	"modes": modes, "plans": plans, "bulk": bulk, "batch": batch, "notifications": notifications, "pool": pool, "types": types,
}

func main() {
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		words := strings.Fields(input.Text())
		answer := map[string]any{}
		if said, err := play(words[0], words[1]); err != nil {
			answer["failed"] = fmt.Sprintf("%v", err)
		} else {
			answer["said"] = said
		}
		line, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(line))
	}
}

func play(name, url string) (any, error) {
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
	defer stop()
	link, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer link.Close(ctx)
	return scenes[name](ctx, link)
}

const marks = "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11"

func text(value string) *string { return &value }

func row() list {
	three := []*int32{new(int32), nil, new(int32)}
	*three[0], *three[2] = 1, -3
	return list{1, "Größe 'q' \\ 😀", "12345678.90", int64(math.MinInt64), true, 0.1, time.Date(2024, 2, 29, 10, 30, 15, 123456000, time.UTC),
		[]byte{0, 255, '\\', '\''}, "00112233-4455-6677-8899-aabbccddeeff", []*string{text("x"), nil, text(`y,z"`)}, three}
}

func values(ctx context.Context, link *pgx.Conn) (any, error) {
	nulls := append(list{2}, make(list, 10)...)
	for _, each := range []list{row(), nulls} {
		if _, err := link.Exec(ctx, "INSERT INTO items VALUES ("+marks+")", each...); err != nil {
			return nil, err
		}
	}
	rows, err := link.Query(ctx, "SELECT id, name, price::text, big::text, good, real8, seen, raw, code::text, tags, nums FROM items WHERE id = ANY ($1) ORDER BY id", []int{1, 2})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(found pgx.CollectableRow) (list, error) {
		got, err := found.Values()
		for at, value := range got {
			switch value := value.(type) {
			case time.Time:
				got[at] = value.UTC().Format("2006-01-02T15:04:05.999999")
			case []byte:
				got[at] = hex.EncodeToString(value)
			}
		}
		return got, err
	})
}

func code(err error) (string, any) {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return fmt.Sprintf("%v", err), nil
	}
	if refused.ConstraintName != "" {
		return refused.Code, refused.ConstraintName
	}
	return refused.Code, nil
}

func failures(ctx context.Context, link *pgx.Conn) (any, error) {
	if _, err := link.Exec(ctx, "INSERT INTO items (id) VALUES (1)"); err != nil {
		return nil, err
	}
	said := list{}
	for _, each := range []list{{"INSERT INTO items (id) VALUES ($1)", 1}, {"SELEC 1"}, {"SELECT $1::text::int", "x"}, {"SELECT nosuch FROM items"}} {
		_, err := link.Exec(ctx, each[0].(string), each[1:]...)
		state, constraint := code(err)
		said = append(said, list{state, constraint})
	}
	var one int
	err := link.QueryRow(ctx, "SELECT 1").Scan(&one)
	return append(said, one), err
}

func transaction(ctx context.Context, link *pgx.Conn) (any, error) {
	err := pgx.BeginFunc(ctx, link, func(outer pgx.Tx) error {
		if _, err := outer.Exec(ctx, "INSERT INTO items (id, name) VALUES ($1, $2)", 1, "outer"); err != nil {
			return err
		}
		inner := pgx.BeginFunc(ctx, outer, func(inner pgx.Tx) error {
			_, err := inner.Exec(ctx, "INSERT INTO items (id, name) VALUES (2, 'inner'), (1, 'again')")
			return err
		})
		if state, _ := code(inner); state != "23505" {
			return inner
		}
		_, err := outer.Exec(ctx, "INSERT INTO items (id, name) VALUES ($1, $2)", 3, "behind")
		return err
	})
	if err != nil {
		return nil, err
	}
	undone, err := link.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := undone.Exec(ctx, "DELETE FROM items"); err != nil {
		return nil, err
	}
	return nil, undone.Rollback(ctx)
}

func copied(ctx context.Context, link *pgx.Conn) (any, error) {
	rows := []list{{int32(1), "a,b"}, {int32(2), nil}, {int32(3), ""}}
	count, err := link.CopyFrom(ctx, pgx.Identifier{"items"}, []string{"id", "name"}, pgx.CopyFromSlice(len(rows), func(at int) (list, error) { return rows[at], nil }))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	_, err = link.PgConn().CopyTo(ctx, &out, "COPY (SELECT id, name FROM items ORDER BY id) TO STDOUT (FORMAT csv)")
	return list{count, out.String()}, err
}

func parts(ctx context.Context, link *pgx.Conn) (any, error) {
	rows, err := link.Query(ctx, "SELECT g FROM generate_series(1, $1::int) g", 20000)
	if err != nil {
		return nil, err
	}
	var number, count, sum int
	_, err = pgx.ForEachRow(rows, []any{&number}, func() error {
		count, sum = count+1, sum+number
		return nil
	})
	return list{count, sum}, err
}

// cancel sends a cancel request and keeps the connection. pgx itself would close it when a context ends.
func cancel(ctx context.Context, link *pgx.Conn) (any, error) {
	time.AfterFunc(200*time.Millisecond, func() { _ = link.PgConn().CancelRequest(ctx) })
	_, err := link.Exec(ctx, "SELECT pg_sleep(100)")
	state, _ := code(err)
	var one int
	err = link.QueryRow(ctx, "SELECT 1").Scan(&one)
	return list{state, one}, err
}

// modes writes and reads the same row in each of pgx's five modes of running a statement.
func modes(ctx context.Context, link *pgx.Conn) (any, error) {
	said := list{}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol} {
		if _, err := link.Exec(ctx, "INSERT INTO items VALUES ("+marks+")", append(list{mode}, row()...)...); err != nil {
			return nil, fmt.Errorf("%v: %w", mode, err)
		}
		var name string
		var tags []*string
		err := link.QueryRow(ctx, "DELETE FROM items WHERE id = $1 AND good = $2 RETURNING name, tags", mode, 1, true).Scan(&name, &tags)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", mode, err)
		}
		said = append(said, list{name, tags})
	}
	return said, nil
}

func plans(ctx context.Context, link *pgx.Conn) (any, error) {
	columns := func() any {
		rows, err := link.Query(ctx, "SELECT * FROM items WHERE id = $1", 1)
		if err != nil {
			state, _ := code(err)
			return state
		}
		rows.Close()
		if err := rows.Err(); err != nil {
			state, _ := code(err)
			return state
		}
		return len(rows.FieldDescriptions())
	}
	said := list{columns(), columns()}
	if _, err := link.Exec(ctx, "ALTER TABLE items DROP COLUMN tags"); err != nil {
		return nil, err
	}
	return append(said, columns(), columns()), nil // pgx forgets a plan that has failed
}

func bulk(ctx context.Context, link *pgx.Conn) (any, error) {
	const count = 200000
	at := time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)
	came, err := link.CopyFrom(ctx, pgx.Identifier{"items"}, []string{"id", "name", "real8", "seen", "nums"}, pgx.CopyFromSlice(count, func(n int) (list, error) {
		return list{int32(n), fmt.Sprintf("row %d", n), float64(n) / 4, at, []int32{int32(n)}}, nil
	}))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if _, err := link.PgConn().CopyTo(ctx, &out, "COPY (SELECT id, name, real8, seen, nums FROM items WHERE id % 2 = 0) TO STDOUT (FORMAT binary)"); err != nil {
		return nil, err
	}
	if _, err := link.Exec(ctx, "CREATE TABLE half AS SELECT id, name, real8, seen, nums FROM items LIMIT 0"); err != nil {
		return nil, err
	}
	tag, err := link.PgConn().CopyFrom(ctx, &out, "COPY half FROM STDIN (FORMAT binary)")
	if err != nil {
		return nil, err
	}
	var rows, sum, first int64
	err = link.QueryRow(ctx, "SELECT count(*), sum(id), min(nums[1]) FROM half").Scan(&rows, &sum, &first)
	return list{came, tag.RowsAffected(), rows, sum, first}, err
}

func batch(ctx context.Context, link *pgx.Conn) (any, error) {
	sent := &pgx.Batch{}
	said := list{}
	note := func(tag pgconn.CommandTag) error {
		said = append(said, tag.String())
		return nil
	}
	sent.Queue("INSERT INTO items (id, name) VALUES ($1, $2), (2, 'two')", 1, "one").Exec(note)
	sent.Queue("UPDATE items SET name = $1 WHERE id = $2", "zwei", 2).Exec(note)
	sent.Queue("SELECT name FROM items WHERE id = $1", 2).QueryRow(func(row pgx.Row) error {
		var name string
		err := row.Scan(&name)
		said = append(said, name)
		return err
	})
	if err := link.SendBatch(ctx, sent).Close(); err != nil {
		return nil, err
	}
	failing := &pgx.Batch{}
	failing.Queue("INSERT INTO items (id) VALUES (3)")
	failing.Queue("INSERT INTO items (id) VALUES ($1)", 1)
	state, constraint := code(link.SendBatch(ctx, failing).Close())
	var count int
	err := link.QueryRow(ctx, "SELECT count(*) FROM items").Scan(&count) // a batch is one transaction
	return append(said, state, constraint, count), err
}

func notifications(ctx context.Context, link *pgx.Conn) (any, error) {
	if _, err := link.Exec(ctx, "LISTEN news"); err != nil {
		return nil, err
	}
	if _, err := link.Exec(ctx, "NOTIFY news, 'first'; SELECT pg_notify('news', 'second')", pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, err
	}
	said := list{}
	for range 2 {
		heard, err := link.WaitForNotification(ctx)
		if err != nil {
			return nil, err
		}
		said = append(said, list{heard.Channel, heard.Payload})
	}
	return said, nil
}

func pool(ctx context.Context, link *pgx.Conn) (any, error) {
	config, err := pgxpool.ParseConfig(link.Config().ConnString())
	if err != nil {
		return nil, err
	}
	config.MaxConns = 3
	made, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer made.Close()
	ended := make(chan error)
	for id := range 30 {
		go func() {
			_, err := made.Exec(ctx, "INSERT INTO items (id) VALUES ($1)", id)
			ended <- err
		}()
	}
	for range 30 {
		if err := <-ended; err != nil {
			return nil, err
		}
	}
	var count, sum int
	err = made.QueryRow(ctx, "SELECT count(*), sum(id) FROM items").Scan(&count, &sum)
	return list{made.Stat().TotalConns() <= 3, count, sum}, err
}

func types(ctx context.Context, link *pgx.Conn) (any, error) {
	if _, err := link.Exec(ctx, "CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE DOMAIN short AS varchar(3)"); err != nil {
		return nil, err
	}
	loaded, err := link.LoadTypes(ctx, []string{"mood", "_mood", "short"})
	if err != nil {
		return nil, err
	}
	link.TypeMap().RegisterTypes(loaded)
	var moods []string
	var short string
	var span pgtype.Interval
	err = link.QueryRow(ctx, "SELECT $1::mood[], 'abc'::short, '1 mon 2 days 03:00'::interval", []string{"happy", "sad"}).Scan(&moods, &short, &span)
	return list{moods, short, span.Months, span.Days, span.Microseconds}, err
}
