package main

import (
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/ledger"
)

// comments returns the comment of a struct field.
type comments func(t reflect.Type, field string) string

// configShape returns the shape of curfew.yaml, with the defaults of its keys.
func configShape(says comments) *document.Shape {
	c := config.Default()
	return shaped("", reflect.ValueOf(&c).Elem(), says)
}

// configDuration matches the durations of [config.ParseDuration].
const configDuration = `^([0-9.]+w)?([0-9.]+d)?([0-9.]+(h|m|s|ms|us|µs|ns))*$`

// item is the path of an item of a list or mapping.
const item = "[]"

// shaped returns the shape of a value that [document.File.Decode] reads. A type with its own
// decoder defines its shape.
func shaped(path string, v reflect.Value, says comments) *document.Shape {
	if own, ok := v.Addr().Interface().(interface{ UnmarshalYAML(ast.Node) error }); ok {
		return document.Describe(own.UnmarshalYAML)
	}
	// Zero is only valid as a default. Items of lists and mappings have no default.
	over := path != "" && path != item && (strings.HasPrefix(path, item) || !v.IsZero())
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		return &document.Shape{
			Type: document.String, Pattern: configDuration, Default: durationText(time.Duration(v.Int())),
		}
	case v.Kind() == reflect.Struct:
		s := &document.Shape{Type: document.Object}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if name == "" || name == "-" || !f.IsExported() {
				continue
			}
			inner := shaped(strings.TrimPrefix(path+"."+name, "."), v.Field(i), says)
			inner.Doc = says(v.Type(), f.Name)
			tagged(inner, f.Tag)
			s.Keys = append(s.Keys, document.KeyShape{
				Name: name, Required: f.Tag.Get("form") == "required", Shape: inner,
			})
		}
		return s
	case v.Kind() == reflect.Slice:
		s := &document.Shape{Type: document.Array, Items: shaped(item, reflect.New(v.Type().Elem()).Elem(), says)}
		if texts, ok := v.Interface().([]string); ok {
			s.Default = strings.Join(texts, ", ")
		}
		return s
	case v.Kind() == reflect.Map:
		return &document.Shape{Type: document.Object, Values: shaped(item, reflect.New(v.Type().Elem()).Elem(), says)}
	case v.Kind() == reflect.Bool:
		return &document.Shape{Type: document.Boolean, Default: strconv.FormatBool(v.Bool())}
	case v.CanInt():
		return &document.Shape{Type: document.Integer, Over: over, Default: numberText(float64(v.Int()))}
	case v.CanFloat():
		s := &document.Shape{Type: document.Number, Over: over, Default: numberText(v.Float())}
		if strings.HasSuffix(path, "_share") {
			s.Most = 1
		}
		return s
	}
	return &document.Shape{Type: document.String, Default: v.String()}
}

// tagged adds the tags of a field: enum lists its values; form is dollars for a text with an
// amount, and required for a required key; keys restricts the keys of a mapping; pattern is the
// form of the texts in a list.
func tagged(s *document.Shape, tag reflect.StructTag) {
	if values := tag.Get("enum"); values != "" {
		at := s
		if s.Items != nil {
			at = s.Items
		}
		at.Enum = strings.Split(values, ",")
	}
	if pattern := tag.Get("pattern"); pattern != "" && s.Items != nil {
		s.Items.Pattern = pattern
	}
	if tag.Get("keys") == "dimensions" {
		for _, d := range ledger.Dimensions {
			s.KeyNames = append(s.KeyNames, string(d))
		}
	}
	if tag.Get("form") == "dollars" {
		at := s
		if s.Values != nil {
			at = s.Values
		}
		at.Type = document.Decimal
	}
}

// numberText returns a default, or "" if there is none.
func numberText(v float64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatFloat(math.Round(v*1e4)/1e4, 'f', -1, 64)
}

// durationText returns a default in whole days, hours or minutes, or "" if there is none.
func durationText(d time.Duration) string {
	for _, u := range []struct {
		name string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}} {
		if d > 0 && d%u.size == 0 {
			return strconv.FormatInt(int64(d/u.size), 10) + u.name
		}
	}
	return ""
}
