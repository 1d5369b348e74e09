package billfile

import (
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/curfew-dev/curfew/internal/usage"
)

// group is one row group of a Parquet file.
type group struct {
	file  *parquet.File
	in    io.ReaderAt
	size  int64
	at    int // among the row groups
	first int // rows of the file before it
}

// openParquet reads a file's footer and returns its row groups; a file without rows has
// one that is empty, so that its columns are looked at.
func openParquet(in io.ReaderAt, size int64, p part) (groups []group, err error) {
	defer recovered(&err, p)
	if err := usage.CheckFooter(in, size); err != nil {
		return nil, &Error{File: p.name, Reason: "the file is not valid Parquet", Err: err}
	}
	file, err := parquet.OpenFile(in, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, &Error{File: p.name, Reason: "the file is not valid Parquet", Err: err}
	}
	rows := 0
	for i, g := range file.RowGroups() {
		groups = append(groups, group{file, in, size, i, rows})
		rows += int(g.NumRows())
	}
	if len(groups) == 0 {
		groups = []group{{file: file, at: -1}}
	}
	return groups, nil
}

// recovered makes an error of a panic: the library reports some malformed pages so.
func recovered(err *error, p part) {
	if v := recover(); v != nil {
		*err = &Error{File: p.name, Reason: fmt.Sprintf("the file is not valid Parquet: %v", v)}
	}
}

// parquet reads one row group.
func (s *sink) parquet(g group) (err error) {
	defer recovered(&err, s.part)
	r, columns, err := s.columns(g.file)
	if err != nil {
		return err
	}
	defer s.reading.note(r)
	if g.at < 0 {
		return nil
	}
	chunks, meta := g.file.RowGroups()[g.at], &g.file.Metadata().RowGroups[g.at]
	for _, c := range columns {
		for _, leaf := range c.leaves {
			if leaf.index >= len(meta.Columns) {
				return &Error{File: s.part.name, Reason: "the file is not valid Parquet: a row group lacks a column"}
			}
			chunk := &meta.Columns[leaf.index].MetaData
			if chunk.Codec == format.Lz4Raw {
				return &Error{
					File:   s.part.name,
					Reason: "the file is compressed with LZ4, which is not read: write it with snappy, gzip or zstd",
				}
			}
			if err := usage.CheckPages(g.in, g.size, chunk); err != nil {
				return &Error{
					File: s.part.name, Row: g.first + 1, Reason: r.name(c.field) + " is not valid Parquet", Err: err,
				}
			}
			leaf.pages = chunks.ColumnChunks()[leaf.index].Pages()
			defer leaf.close()
		}
	}
	for i := range int(chunks.NumRows()) {
		for _, c := range columns {
			if r.cells[c.field], err = c.next(); err != nil {
				return &Error{
					File: s.part.name, Row: g.first + i + 1, Reason: r.name(c.field) + " cannot be read", Err: err,
				}
			}
		}
		if err := s.take(r); err != nil {
			e := &Error{File: s.part.name, Row: g.first + i + 1, Reason: err.Error()}
			if value := (*valueError)(nil); !errors.As(err, &value) {
				e.Reason, e.Err = "", err
			}
			return s.placed(e, err)
		}
	}
	return nil
}

// columns recognizes the columns of a file and says how each is read.
func (s *sink) columns(file *parquet.File) (*record, []*parquetColumn, error) {
	type found struct{ leaves []*leaf }
	var names []string
	at := map[string]*found{}
	nodes := map[string]parquet.Node{}
	var twice string
	for i, path := range file.Schema().Columns() {
		name := path[0]
		f := at[name]
		if f == nil {
			f = &found{}
			at[name] = f
			names = append(names, name)
		} else if len(path) == 1 {
			twice = name
		}
		column, ok := file.Schema().Lookup(path...)
		if !ok {
			continue
		}
		f.leaves = append(f.leaves, &leaf{index: i, last: path[len(path)-1], depth: len(path)})
		nodes[name] = column.Node
	}
	if twice != "" {
		return nil, nil, &Error{File: s.part.name, Reason: fmt.Sprintf("column %q is there twice", twice)}
	}
	l, _, err := newLayout(names)
	if err != nil {
		return nil, nil, &Error{File: s.part.name, Reason: err.Error()}
	}
	if err := s.reading.use(s.part, l); err != nil {
		return nil, nil, err
	}
	r := newRecord(l)
	known := &floats{}
	var columns []*parquetColumn
	for f, c := range l.column {
		if c < 0 {
			continue
		}
		name := names[c]
		p := &parquetColumn{field: f, leaves: at[name].leaves, record: r}
		kind := l.kind(f)
		if pair := pairs(p.leaves); pair != nil && kind == tags {
			p.leaves = pair
			columns = append(columns, p)
			continue
		}
		if len(p.leaves) == 1 && p.leaves[0].depth == 1 && !nodes[name].Repeated() {
			p.value = valueReader(nodes[name].Type(), kind, known)
		}
		if p.value == nil {
			stored := fmt.Sprintf("%s is stored as %s, which cannot be read as %s", name,
				typeName(nodes[name], p.leaves),
				kindNames[kind])
			if l.vital(f) {
				return nil, nil, &Error{File: s.part.name, Reason: stored}
			}
			r.notes[stored+": it is left out"] = true
			continue
		}
		columns = append(columns, p)
	}
	return r, columns, nil
}

var kindNames = map[kind]string{text: "a text", number: "a number", instant: "a time", tags: "a map or a JSON object"}

// typeName names how a column is stored.
func typeName(node parquet.Node, leaves []*leaf) string {
	if len(leaves) == 1 && leaves[0].depth == 1 && !node.Repeated() {
		return node.Type().String()
	}
	return "a list or a structure"
}

// pairs returns the leaves with the keys and values of a map, or of a list of structures with a key
// and a value, as Google Cloud lists labels; nil if there are none.
func pairs(leaves []*leaf) []*leaf {
	var pair [2]*leaf
	for _, l := range leaves {
		switch {
		case l.depth < 3:
		case l.last == "key" && pair[0] == nil:
			pair[0] = l
		case l.last == "value" && pair[1] == nil:
			pair[1] = l
		}
	}
	if pair[0] == nil || pair[1] == nil || pair[0].depth != pair[1].depth {
		return nil
	}
	return pair[:]
}
