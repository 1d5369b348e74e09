package store

import (
	"strings"
	"time"
)

// filter collects the conditions of a query, joined by AND.
type filter struct {
	*dialect
	conditions []string
	args       []any
}

// and adds a condition.
func (f *filter) and(condition string, args ...any) {
	f.conditions, f.args = append(f.conditions, condition), append(f.args, args...)
}

// span requires a time in [from, to); a zero time is unbounded.
func (f *filter) span(column string, from, to time.Time) {
	if !from.IsZero() {
		f.and(column+" >= ?", at(from))
	}
	if !to.IsZero() {
		f.and(column+" < ?", at(to))
	}
}

// times requires one of the given times; nil means no condition.
func (f *filter) times(column string, times []time.Time) {
	if times != nil {
		f.and(column+" IN (SELECT CAST(value AS BIGINT) FROM "+f.elements+")",
			document[[]int64]{convert(times, time.Time.UnixMicro)})
	}
}

// among requires one of the given texts; nil means no condition. They are passed as one parameter,
// because databases limit the number of parameters.
func among[Text ~string](f *filter, column string, texts []Text) {
	if texts != nil {
		f.and(column+" IN (SELECT value FROM "+f.elements+")", document[[]Text]{texts})
	}
}

// where returns the conditions in SQL.
func (f *filter) where() string {
	if len(f.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(f.conditions, " AND ")
}
