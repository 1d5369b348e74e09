package store

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// reader runs queries: a writing transaction, or reading connections.
type reader interface {
	get(ctx context.Context, to any, query string, args ...any) error
	list(ctx context.Context, to any, query string, args ...any) error
}

// parameters bounds the parameters of one statement; SQLite allows 32,766 and PostgreSQL 65,535.
const parameters = 16_000

// bulk writes many rows with few statements.
type bulk struct {
	tx         *tx
	head, tail string
	width      int
	args       []any
	// written counts the inserted or changed rows.
	written int64
}

// bulk starts a bulk write to the given columns; tail resolves conflicts with existing rows.
func (t *tx) bulk(table string, columns []string, tail string) *bulk {
	return &bulk{
		tx: t, head: "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES ", tail: tail,
		width: len(columns),
	}
}

// add adds a row, and flushes if the statement is full.
func (b *bulk) add(ctx context.Context, values ...any) error {
	if b.args = append(b.args, values...); len(b.args)+b.width <= parameters {
		return nil
	}
	return b.flush(ctx)
}

// flush writes the buffered rows.
func (b *bulk) flush(ctx context.Context) error {
	if len(b.args) == 0 {
		return nil
	}
	row := "(?" + strings.Repeat(", ?", b.width-1) + ")"
	statement := b.head + row + strings.Repeat(", "+row, len(b.args)/b.width-1) + b.tail
	n, err := b.tx.run(ctx, statement, b.args...)
	if err != nil {
		return err
	}
	b.written, b.args = b.written+n, b.args[:0]
	return err
}

// fields returns the values of a row in column order.
func fields(row any) []any { return appendFields(nil, reflect.ValueOf(row)) }

func appendFields(to []any, row reflect.Value) []any {
	for i := range row.NumField() {
		f := row.Type().Field(i)
		if f.Tag.Get("db") != "" {
			to = append(to, row.Field(i).Interface())
		} else if f.Anonymous {
			to = appendFields(to, row.Field(i))
		}
	}
	return to
}

// digest identifies a row by all of its columns: the first 128 bits of a SHA-256 over
// them as a JSON array.
func digest(row []any) (string, error) {
	text, err := json.Marshal(row)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:16]), nil
}

// lookup returns the IDs of the rows that a table has, and the digests of the others. The table
// holds equal rows once.
func lookup[Row comparable](ctx context.Context, on reader, d *dialect, table string, rows []Row) (ids map[Row]int64,
	missing map[string]Row, err error) {
	ids, missing = make(map[Row]int64, len(rows)), make(map[string]Row, len(rows))
	for _, row := range rows {
		if _, seen := ids[row]; seen {
			continue
		}
		ids[row] = 0
		key, err := digest(fields(row))
		if err != nil {
			return nil, nil, err
		}
		missing[key] = row
	}
	if len(rows) == 0 {
		return ids, missing, nil
	}
	var found []struct {
		ID     int64  `db:"id"`
		Digest string `db:"digest"`
	}
	digests := slices.Sorted(maps.Keys(missing))
	query := "SELECT id, digest FROM " + table + " WHERE digest IN (SELECT value FROM " + d.elements + ")"
	if err := on.list(ctx, &found, query, document[[]string]{digests}); err != nil {
		return nil, nil, err
	}
	for _, f := range found {
		ids[missing[f.Digest]] = f.ID
		delete(missing, f.Digest)
	}
	for _, row := range missing {
		delete(ids, row)
	}
	return ids, missing, nil
}

// intern returns the IDs of rows, after writing those that the table lacks.
func intern[Row comparable](ctx context.Context, t *tx, table string, rows []Row) (map[Row]int64, error) {
	ids, missing, err := lookup(ctx, t, t.dialect, table, rows)
	if err != nil || len(missing) == 0 {
		return ids, err
	}
	var row Row
	into := t.bulk(table, append([]string{"digest"}, tags(reflect.TypeOf(row))...), " ON CONFLICT DO NOTHING")
	// Concurrent transactions write rows in the same order, to avoid deadlocks.
	for _, key := range slices.Sorted(maps.Keys(missing)) {
		if err := into.add(ctx, append([]any{key}, fields(missing[key])...)...); err != nil {
			return nil, err
		}
	}
	if err := into.flush(ctx); err != nil {
		return nil, err
	}
	added, _, err := lookup(ctx, t, t.dialect, table, slices.Collect(maps.Values(missing)))
	maps.Copy(ids, added)
	return ids, err
}
