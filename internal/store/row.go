package store

import (
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// table holds the statements for one table, derived from its row type.
type table struct {
	// query selects all columns; insert writes a row; update writes the row of an ID if it has the
	// previous version.
	query, insert, update string
}

// describe returns the statements of a table whose columns are the db tags of a row. They are built
// on the first call, so that commands without a database do not pay for them at start.
func describe(name string, row any) func() table {
	return sync.OnceValue(func() table {
		columns := tags(reflect.TypeOf(row))
		set := make([]string, len(columns))
		for i, c := range columns {
			set[i] = c + " = :" + c
		}
		return table{
			query: "SELECT " + strings.Join(columns, ", ") + " FROM " + name,
			insert: "INSERT INTO " + name + " (" + strings.Join(columns, ", ") + ") VALUES (:" +
				strings.Join(columns, ", :") + ")",
			update: "UPDATE " + name + " SET " + strings.Join(set, ", ") +
				" WHERE id = :id AND version + 1 = :version",
		}
	})
}

func tags(row reflect.Type) []string {
	var out []string
	for i := range row.NumField() {
		f := row.Field(i)
		if tag := f.Tag.Get("db"); tag != "" {
			out = append(out, tag)
		} else if f.Anonymous {
			out = append(out, tags(f.Type)...)
		}
	}
	return out
}

// instant is the stored form of a time: microseconds since 1970 in UTC, NULL for none.
type instant struct{ time.Time }

// at returns a time as read back from the database.
func at(t time.Time) instant { return instant{utc(t)} }

// utc truncates a time to microseconds in UTC.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}

// Value returns the stored form.
func (i instant) Value() (driver.Value, error) {
	if i.IsZero() {
		return nil, nil
	}
	return i.UnixMicro(), nil
}

// Scan implements sql.Scanner.
func (i *instant) Scan(from any) error {
	switch v := from.(type) {
	case nil:
		i.Time = time.Time{}
	case int64:
		i.Time = time.UnixMicro(v).UTC()
	default:
		return fmt.Errorf("a time is kept as %T", from)
	}
	return nil
}

// document is a value stored as JSON text.
type document[T any] struct{ of T }

// Value returns the stored form.
func (d document[T]) Value() (driver.Value, error) {
	text, err := json.Marshal(d.of)
	return string(text), err
}

// Scan implements sql.Scanner.
func (d *document[T]) Scan(from any) error {
	switch v := from.(type) {
	case string:
		return json.Unmarshal([]byte(v), &d.of)
	case []byte:
		return json.Unmarshal(v, &d.of)
	}
	return fmt.Errorf("a document is kept as %T", from)
}

// refRow is the stored form of an inventory.Ref.
type refRow struct {
	Cloud   string         `db:"cloud" json:"cloud"`
	Account string         `db:"cloud_account" json:"account"`
	Region  string         `db:"region" json:"region"`
	Kind    inventory.Kind `db:"kind" json:"kind"`
	ID      string         `db:"resource_id" json:"id"`
}

func refOf(r inventory.Ref) refRow { return refRow(r) }

func (r refRow) ref() inventory.Ref { return inventory.Ref(r) }

// convert converts every element; nil stays nil.
func convert[From, To any](from []From, one func(From) To) []To {
	if from == nil {
		return nil
	}
	to := make([]To, len(from))
	for i, f := range from {
		to[i] = one(f)
	}
	return to
}

// prose makes a text for people storable: messages of providers may contain invalid bytes, which
// must not prevent recording an outcome.
func prose(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// exact refuses texts that some database would not return byte for byte.
func exact(texts ...string) error {
	for _, s := range texts {
		if s != prose(s) {
			return errors.New("its text is not plain UTF-8 and cannot be kept byte for byte")
		}
	}
	return nil
}

// flag is a boolean stored as 0 or 1.
type flag bool

// Value returns the stored form.
func (f flag) Value() (driver.Value, error) {
	if f {
		return int64(1), nil
	}
	return int64(0), nil
}
