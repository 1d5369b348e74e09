package config

import (
	"bytes"
	"errors"
	"io/fs"
	"reflect"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// places are the keys that determine the location of the state and its service. They are never
// guessed: a file in which they cannot be read has no lenient reading.
var places = []string{"data_dir", "database_url", "server"}

var (
	topKey   = lazyregexp.New(`^([A-Za-z_][A-Za-z0-9_]*)[ \t]*:(?:[ \t]|$)`)
	placeKey = lazyregexp.New(`\b(data_dir|database_url|server)\b["']?[ \t]*:`)
)

// errPlaces is returned if a file does not determine the location of the state.
var errPlaces = errors.New("it lacks a readable data_dir, database_url and server")

// LoadLenient reads the valid parts of a file and the environment, for commands that must work
// despite mistakes: each top-level key and each variable is read separately, and invalid ones are
// left out and named. It fails if data_dir, database_url or server cannot be read. An empty path is
// no file. found is true if [Find] returned the file, which is then refused if another user could
// have written it.
func LoadLenient(path string, found bool, lookup func(string) (string, bool)) (c Config, ignored []string, err error) {
	c = Default()
	if path != "" {
		check := func(fs.FileInfo) error { return nil }
		if found {
			check = unchangedByOthers(path)
		}
		src, err := read(path, check)
		if err != nil {
			return Config{}, nil, err
		}
		if c, ignored, err = lenient(path, src); err != nil {
			return Config{}, nil, err
		}
		c.found = found
		c.resolve(path)
	}
	for _, l := range leaves(&c) {
		before := reflect.New(l.value.Type()).Elem()
		before.Set(l.value)
		if err := overrideLeaf(l, lookup); err != nil { // never a place, because those are texts
			l.value.Set(before)
			ignored = append(ignored, l.env())
		}
	}
	return c, ignored, nil
}

// lenient reads the keys of a text one by one; errPlaces if a place cannot be read.
func lenient(name string, src []byte) (c Config, ignored []string, err error) {
	c = Default()
	if Decode(name, src, &c) == nil {
		return c, nil, nil
	}
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
			return c, nil, errPlaces
		}
		if b.key != "" {
			ignored = append(ignored, b.key)
		}
	}
	return c, ignored, nil
}

// block is a top-level key with the lines below it. Lines before the first key are a block without
// a key.
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
