package config

import (
	"bytes"
	"io/fs"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/trust"
)

// places are the keys that say where the state is and which service has it. Nothing is guessed of
// them: a file in which they cannot be read has no lenient reading.
var places = []string{"data_dir", "database_url", "server"}

var (
	topKey   = lazyregexp.New(`^([A-Za-z_][A-Za-z0-9_]*)[ \t]*:(?:[ \t]|$)`)
	placeKey = lazyregexp.New(`\b(data_dir|database_url|server)\b["']?[ \t]*:`)
)

// LoadLenient reads of a file with mistakes what has none, for what has to work all the same:
// each key at the beginning of a line stands by itself, and those that cannot be read are left
// out and named. It fails with the mistake of the whole file where data_dir, database_url or
// server cannot be told. found says that the file was found by [Find], so that one that another
// user could have written is refused.
func LoadLenient(path string, found bool, lookup func(string) (string, bool)) (c Config, ignored []string, err error) {
	src, err := read(path, func(st fs.FileInfo) error {
		if !found {
			return nil
		}
		if err := trust.Path(path); err != nil {
			return err
		}
		return trust.Info(path, st)
	})
	if err != nil {
		return Config{}, nil, err
	}
	whole := Default()
	mistake := Decode(path, src, &whole)
	if mistake == nil {
		whole.found = found
		whole.resolve(path)
		return whole, nil, override(&whole, lookup)
	}
	c, ignored, ok := lenient(path, src)
	if !ok {
		return Config{}, nil, mistake
	}
	c.found = found
	c.resolve(path)
	for _, l := range leaves(&c) {
		s, set := lookup(l.env())
		if !set || l.inFileOnly() {
			continue
		}
		if err := l.set(s); err != nil { // no place: those are texts
			ignored = append(ignored, l.env())
		}
	}
	return c, ignored, nil
}

// lenient reads the keys of a text one by one; false where a place cannot be told.
func lenient(name string, src []byte) (c Config, ignored []string, ok bool) {
	var kept []byte
	c = Default()
	for _, b := range blocks(src) {
		longer := slices.Concat(kept, b.text)
		one := Default()
		if Decode(name, longer, &one) == nil {
			kept, c = longer, one
			continue
		}
		if placeKey.Match(b.text) || slices.Contains(places, b.key) {
			return c, nil, false
		}
		if b.key != "" {
			ignored = append(ignored, b.key)
		}
	}
	return c, ignored, true
}

// block is a key at the beginning of a line, with the lines below it. Lines before the first key
// are one without a key.
type block struct {
	key  string
	text []byte
}

func blocks(src []byte) []block {
	out := []block{{}}
	for line := range bytes.Lines(src) {
		if m := topKey.FindStringSubmatch(strings.TrimRight(string(line), "\r\n")); m != nil {
			out = append(out, block{key: m[1]})
		}
		last := &out[len(out)-1]
		last.text = append(last.text, line...)
		if !bytes.HasSuffix(line, []byte("\n")) {
			last.text = append(last.text, '\n')
		}
	}
	return out
}
