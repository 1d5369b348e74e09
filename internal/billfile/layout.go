package billfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/bill"
)

// schema is a format of bills: its columns, and the lines of a row.
type schema struct {
	name string
	// columns by field; the first name is the usual one.
	columns []column
	// known says by the names of a header, in lower case, whether it is this schema.
	known func(has func(string) bool) bool
	// version of the schema, by the names of a header.
	version func(has func(string) bool) string
	// lines emits the lines of a row.
	lines func(r *record, emit func(*bill.Line) error) error
}

// column is one that means something.
type column struct {
	names []string
	kind  kind
	// needed columns must be there. Others that are missing are named, unless they are
	// extra: not in every version.
	needed, extra bool
	// money is true if amounts depend on the column: values that cannot be read are a mistake.
	// Of others they are named, and the import goes on without them.
	money bool
}

// kind is the type of a column's values.
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
	// tagKeys are the keys of columns that hold one tag each, as those of the legacy AWS
	// report do. Their fields follow those of the schema.
	tagKeys []string
}

// kind returns the kind of the values of a field.
func (l *layout) kind(field int) kind {
	if field < len(l.schema.columns) {
		return l.schema.columns[field].kind
	}
	return text
}

// vital reports whether the import needs the values of a field.
func (l *layout) vital(field int) bool {
	return field < len(l.schema.columns) && (l.schema.columns[field].needed || l.schema.columns[field].money)
}

// newLayout recognizes a header. The error has no place yet; column counts from 1.
func newLayout(names []string) (l *layout, column int, err error) {
	l = &layout{header: names, at: make([]int, len(names))}
	first, again := map[string]int{}, map[string]int{}
	for i, n := range names {
		low := athenaName(strings.TrimSpace(n))
		if _, twice := first[low]; twice {
			again[low] = i
		} else {
			first[low] = i
		}
		l.at[i] = -1
	}
	has := func(name string) bool { _, ok := first[strings.ToLower(name)]; return ok }
	k := slices.IndexFunc(schemas, func(s *schema) bool { return s.known(has) })
	if k < 0 {
		return nil, 0, fmt.Errorf(
			"it is no bill that is known: FOCUS has a column BilledCost, the AWS Cost and Usage "+
				"Report 2.0 line_item_unblended_cost; this file has %s%s",
			columns(len(names)), legacy(has))
	}
	l.schema = schemas[k]
	l.version = l.schema.version(has)
	if l.schema == &cur && slices.ContainsFunc(names, isLegacy) {
		l.version = "legacy Cost and Usage Report"
	}
	l.column = make([]int, len(l.schema.columns))
	var lacking []string
	for f, c := range l.schema.columns {
		l.column[f] = -1
		for _, name := range c.names {
			i, ok := first[strings.ToLower(name)]
			if !ok {
				continue
			}
			if j, twice := again[strings.ToLower(name)]; twice {
				return nil, j + 1, fmt.Errorf("columns %d and %d have the same name", i+1, j+1)
			}
			l.column[f], l.at[i] = i, f
			if written := strings.TrimSpace(names[i]); written != name &&
				athenaName(written) == strings.ToLower(written) {
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
		return nil, 0, fmt.Errorf(
			"it looks like %s, and lacks %s, without which nothing can be imported; this file has %s",
			l.version, strings.Join(lacking, ", "), columns(len(names)))
	}
	if l.schema == &cur && !has("resource_tags") {
		l.tagColumns(names)
	}
	return l, 0, nil
}

// isLegacy reports whether a column is one that only the legacy AWS report has.
func isLegacy(name string) bool {
	name = strings.TrimSpace(name)
	return strings.HasPrefix(name, "lineItem/") || strings.HasPrefix(strings.ToLower(name), "resource_tags_")
}

// athenaName returns a column's name in lower case, and names of the legacy AWS report
// ("lineItem/UnblendedCost", "resourceTags/user:Team") as its Athena and Parquet form and CUR
// 2.0 have them: each capital letter begins a word.
func athenaName(name string) string {
	group, column, ok := strings.Cut(name, "/")
	if !ok {
		return strings.ToLower(name)
	}
	var b strings.Builder
	for i, r := range group + "/" + column {
		switch {
		case r == '/' || r == ':':
			b.WriteByte('_')
		case r >= 'A' && r <= 'Z':
			if i > 0 && !strings.HasSuffix(b.String(), "_") {
				b.WriteByte('_')
			}
			b.WriteRune(r - 'A' + 'a')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// tagColumns finds the columns that hold one tag each.
func (l *layout) tagColumns(names []string) {
	for i, n := range names {
		n = strings.TrimSpace(n)
		key, ok := strings.CutPrefix(n, "resourceTags/")
		if !ok {
			key, ok = strings.CutPrefix(strings.ToLower(n), "resource_tags_")
		}
		if !ok || l.at[i] >= 0 {
			continue
		}
		l.at[i] = len(l.column)
		l.column = append(l.column, i)
		l.tagKeys = append(l.tagKeys, key)
	}
	if len(l.tagKeys) > 0 {
		l.missing = slices.DeleteFunc(l.missing, func(name string) bool { return name == "resource_tags" })
	}
}

// legacy explains the older report of AWS, whose columns are named otherwise.
func legacy(has func(string) bool) string {
	if has("line_item_blended_cost") {
		return "; this looks like a Cost and Usage Report without unblended costs: export CUR 2.0 or FOCUS with AWS Data " +
			"Exports"
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
