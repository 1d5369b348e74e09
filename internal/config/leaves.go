package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/document"
)

// EnvPrefix begins the names of variables that override keys: CURFEW_AWS_REGIONS for aws.regions.
const EnvPrefix = "CURFEW_"

// leaf is a configuration key with a value.
type leaf struct {
	path  string // "thresholds.snapshot_age"
	value reflect.Value
}

func leaves(c *Config) []leaf { return walk(nil, "", reflect.ValueOf(c).Elem()) }

func walk(out []leaf, path string, v reflect.Value) []leaf {
	if v.Kind() != reflect.Struct {
		return append(out, leaf{path: path, value: v})
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "" || name == "-" || !f.IsExported() {
			continue
		}
		if path != "" {
			name = path + "." + name
		}
		out = walk(out, name, v.Field(i))
	}
	return out
}

func (l leaf) isDuration() bool { return l.value.Type() == reflect.TypeFor[time.Duration]() }

// inFileOnly reports whether the environment cannot override the leaf.
func (l leaf) inFileOnly() bool { return l.path == "people" || strings.HasPrefix(l.path, "approvals.") }

// off returns the keys whose default is zero, which disables a feature.
var off = sync.OnceValue(func() map[string]bool {
	out := map[string]bool{}
	c := Default()
	for _, l := range leaves(&c) {
		out[l.path] = l.value.IsZero()
	}
	return out
})

// check refuses numbers and durations that are not positive: a threshold of zero would match
// everything, and a window of zero would see nothing. Zero is only valid if it is the default.
func (l leaf) check() error {
	switch v := l.value; v.Kind() {
	case reflect.Int, reflect.Int64:
		if v.Int() < 0 || (v.Int() == 0 && !off()[l.path]) {
			return errors.New("must be more than zero")
		}
	case reflect.Float64:
		if !(v.Float() >= 0) || (v.Float() == 0 && !off()[l.path]) {
			return errors.New("must be more than zero")
		}
		if strings.HasSuffix(l.path, "_share") && v.Float() > 1 {
			return errors.New("a share is at most 1")
		}
	}
	if l.path == "server" && l.value.String() != "" {
		_, err := ServerURL(l.value.String())
		return err
	}
	return nil
}

// env returns the name of the variable that overrides the leaf.
func (l leaf) env() string { return EnvPrefix + strings.ToUpper(strings.ReplaceAll(l.path, ".", "_")) }

// override applies the environment. Lists are separated by commas.
func override(c *Config, lookup func(string) (string, bool)) error {
	for _, l := range leaves(c) {
		if err := overrideLeaf(l, lookup); err != nil {
			return err
		}
	}
	return nil
}

// overrideLeaf sets a leaf to the value of its variable, if that is set.
func overrideLeaf(l leaf, lookup func(string) (string, bool)) error {
	s, ok := lookup(l.env())
	if !ok {
		return nil
	}
	if l.inFileOnly() {
		return &document.Error{
			File: l.env(), Message: l.path + " says whose word counts: it is set in a file, not in the environment",
		}
	}
	if err := l.set(s); err != nil {
		return &document.Error{File: l.env(), Message: err.Error()}
	}
	if err := l.check(); err != nil {
		return &document.Error{File: l.env(), Message: err.Error()}
	}
	return nil
}

func (l leaf) set(s string) error {
	switch {
	case l.isDuration():
		d, err := ParseDuration(s)
		if err != nil {
			return err
		}
		l.value.SetInt(int64(d))
	case l.value.Type() == reflect.TypeFor[[]string]():
		items := []string{}
		for item := range strings.SplitSeq(s, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
		l.value.Set(reflect.ValueOf(items))
	case l.value.Kind() == reflect.String:
		l.value.SetString(s)
	default:
		p := reflect.New(l.value.Type())
		f, err := document.Parse(l.env(), []byte(s))
		if err == nil && len(f.Bodies) == 1 {
			err = f.Decode(f.Bodies[0], p.Interface())
		}
		if err != nil || len(f.Bodies) != 1 {
			return fmt.Errorf("%.100q is not a %s", s, l.value.Kind())
		}
		l.value.Set(p.Elem())
	}
	return nil
}

// Variable returns the environment variable that overrides a key, "" if none does.
func Variable(path string) string {
	c := Default()
	for _, l := range leaves(&c) {
		if l.path == path && !l.inFileOnly() {
			return l.env()
		}
	}
	return ""
}
