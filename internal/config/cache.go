package config

import (
	"bytes"
	"io/fs"
	"reflect"
	"sync"

	"github.com/curfew-dev/curfew/internal/trust"
)

// Cache remembers the text of the configuration that was read last with its parsed form. The file
// is opened, checked and read each time, but the same text is not parsed again. nil caches nothing.
type Cache struct {
	mu   sync.Mutex
	path string
	text []byte
	says Config
}

// Load reads a file, or only the defaults when path is empty, and then what the
// environment overrides. Mistakes are a *document.Error.
func (k *Cache) Load(path string, lookup func(string) (string, bool)) (Config, error) {
	return k.load(path, lookup, func(fs.FileInfo) error { return nil })
}

// LoadFound is [Cache.Load] for a file that [Find] returned rather than one that the user named. It
// refuses a file that another user could have written or replaced.
func (k *Cache) LoadFound(path string, lookup func(string) (string, bool)) (Config, error) {
	c, err := k.load(path, lookup, unchangedByOthers(path))
	c.found = path != ""
	return c, err
}

// unchangedByOthers returns the check that no other user could have written or replaced a file.
func unchangedByOthers(path string) func(fs.FileInfo) error {
	return func(st fs.FileInfo) error {
		if err := trust.Path(path); err != nil {
			return err
		}
		return trust.Info(path, st) // check the opened file, in case the name leads elsewhere by now
	}
}

func (k *Cache) load(path string, lookup func(string) (string, bool), check func(fs.FileInfo) error) (Config, error) {
	c := Default()
	if path != "" {
		src, err := read(path, check)
		if err != nil {
			return Config{}, err
		}
		if c, err = k.decoded(path, src); err != nil {
			return Config{}, err
		}
	}
	if err := override(&c, lookup); err != nil {
		return Config{}, err
	}
	return c, nil
}

// decoded returns the parsed configuration of a file. Each caller gets its own copy.
func (k *Cache) decoded(path string, src []byte) (Config, error) {
	if k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.path == path && k.text != nil && bytes.Equal(k.text, src) {
			return unshared(k.says), nil
		}
	}
	c := Default()
	if err := Decode(path, src, &c); err != nil {
		return Config{}, err
	}
	c.resolve(path)
	if k != nil {
		k.path, k.text, k.says = path, append([]byte{}, src...), unshared(c)
	}
	return c, nil
}

// Clone returns a copy that shares no list and no map with the configuration.
func (c *Config) Clone() Config { return unshared(*c) }

// unshared returns a copy that shares no list and no map with a configuration.
func unshared(c Config) Config {
	own(reflect.ValueOf(&c).Elem())
	return c
}

// own replaces the lists, maps and pointers of a value by copies.
func own(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				own(f)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			own(v.Index(i))
		}
	case reflect.Slice:
		if v.IsNil() {
			return
		}
		to := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(to, v)
		for i := range to.Len() {
			own(to.Index(i))
		}
		v.Set(to)
	case reflect.Map:
		if v.IsNil() {
			return
		}
		to := reflect.MakeMapWithSize(v.Type(), v.Len())
		for of := v.MapRange(); of.Next(); {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(of.Value())
			own(value)
			to.SetMapIndex(of.Key(), value)
		}
		v.Set(to)
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		to := reflect.New(v.Type().Elem())
		to.Elem().Set(v.Elem())
		own(to.Elem())
		v.Set(to)
	}
}
