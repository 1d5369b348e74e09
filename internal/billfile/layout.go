package billfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/bill"
)

// schema is a way to write a bill: which columns mean something, and what a row says.
type schema struct {
	name string
	// columns by field; the first name is the usual one.
	columns []column
	// known says by the names of a header, in lower case, whether it is this schema.
	known func(has func(string) bool) bool
	// version of the schema, by the names of a header.
	version func(has func(string) bool) string
	// lines passes on what a row says.
	lines func(r *record, emit func(*bill.Line) error) error
}

// column is one that means something.
type column struct {
	names []string
	kind  kind
	// needed columns must be there. Others that are missing are named, unless they are
	// extra: not in every version.
	needed, extra bool
}

// kind is what the values of a column are.
type kind int

const (
	text kind = iota
	number
	instant
	tags // a JSON object, or a map
)

var schemas = []*schema{&focus, &cur}

// layout is where the columns of a file are.
type layout struct {
	schema  *schema
	version string
	// header holds the names of the file, at the field of each column or -1.
	header  []string
	at      []int
	column  []int // of each field in the file, or -1
	missing []string
	notes   []string
}

// newLayout recognizes a header. The error has no place yet; column counts from 1.
func newLayout(names []string) (l *layout, column int, err error) {
	l = &layout{header: names, at: make([]int, len(names))}
	first := map[string]int{}
	for i, n := range names {
		low := strings.ToLower(strings.TrimSpace(n))
		if j, twice := first[low]; twice {
			return nil, i + 1, fmt.Errorf("columns %d and %d have the same name", j+1, i+1)
		}
		first[low] = i
		l.at[i] = -1
	}
	has := func(name string) bool { _, ok := first[strings.ToLower(name)]; return ok }
	k := slices.IndexFunc(schemas, func(s *schema) bool { return s.known(has) })
	if k < 0 {
		return nil, 0, fmt.Errorf("it is no bill that is known: FOCUS has a column BilledCost, the AWS Cost and Usage Report 2.0 line_item_unblended_cost; this file has %s%s",
			columns(len(names)), legacy(has))
	}
	l.schema = schemas[k]
	l.version = l.schema.version(has)
	l.column = make([]int, len(l.schema.columns))
	var lacking []string
	for f, c := range l.schema.columns {
		l.column[f] = -1
		for _, name := range c.names {
			i, ok := first[strings.ToLower(name)]
			if !ok {
				continue
			}
			l.column[f], l.at[i] = i, f
			if written := strings.TrimSpace(names[i]); written != name {
				l.notes = append(l.notes, fmt.Sprintf("column %s is written %s", name, written))
			}
			break
		}
		switch {
		case l.column[f] >= 0 || c.extra:
		case c.needed:
			lacking = append(lacking, c.names[0])
		default:
			l.missing = append(l.missing, c.names[0])
		}
	}
	if len(lacking) > 0 {
		return nil, 0, fmt.Errorf("it looks like %s, and lacks %s, without which nothing can be imported; this file has %s", l.version, strings.Join(lacking, ", "), columns(len(names)))
	}
	return l, 0, nil
}

// legacy explains the older report of AWS, whose columns are named otherwise.
func legacy(has func(string) bool) string {
	if has("lineItem/UnblendedCost") || has("line_item_blended_cost") {
		return "; this looks like the legacy Cost and Usage Report: export CUR 2.0 or FOCUS with AWS Data Exports"
	}
	return ""
}

// columns counts the columns of a file. Their names are not repeated: a file that is no
// bill may hold secrets.
func columns(n int) string {
	if n == 1 {
		return "1 column"
	}
	return fmt.Sprintf("%d columns", n)
}
