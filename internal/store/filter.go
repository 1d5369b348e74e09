package store

import (
	"strings"
	"time"
)

// filter are conditions of a query, each of which has to hold.
type filter struct {
	*dialect
	conditions []string
	args       []any
}

// and adds a condition.
func (f *filter) and(condition string, args ...any) {
	f.conditions, f.args = append(f.conditions, condition), append(f.args, args...)
}

// span asks for a time in [from, to); a zero time is no bound.
func (f *filter) span(column string, from, to time.Time) {
	if !from.IsZero() {
		f.and(column+" >= ?", at(from))
	}
	if !to.IsZero() {
		f.and(column+" < ?", at(to))
	}
}

// times asks for a time that is one of the given; nil is no condition.
func (f *filter) times(column string, times []time.Time) {
	if times != nil {
		f.and(column+" IN (SELECT CAST(value AS BIGINT) FROM "+f.elements+")",
			document[[]int64]{convert(times, time.Time.UnixMicro)})
	}
}

// among asks for a text that is one of the given; nil is no condition. The texts are one
// parameter, because databases take only so many.
func among[Text ~string](f *filter, column string, texts []Text) {
	if texts != nil {
		f.and(column+" IN (SELECT value FROM "+f.elements+")", document[[]Text]{texts})
	}
}

// where returns the conditions as a query has them.
func (f *filter) where() string {
	if len(f.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(f.conditions, " AND ")
}
