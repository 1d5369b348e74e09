package estimate

import (
	_ "embed"
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	tfjson "github.com/hashicorp/terraform-json"
)

// attributes are the values of a resource, and which of them are unknown yet.
type attributes struct{ values, unknown map[string]any }

// state is the knowledge about an attribute.
type state int

const (
	noValue      state = iota // it has none
	unknownValue              // it is known only after the plan is applied
	knownValue
)

func (a attributes) state(key string) state {
	switch {
	case a.unknown[key] == true:
		return unknownValue
	case a.values[key] == nil:
		return noValue
	}
	return knownValue
}

func (a attributes) text(key string) (string, state) {
	s, _ := a.values[key].(string)
	return s, a.state(key)
}

// number is a whole number that is not negative; one that is not counts as not known.
func (a attributes) number(key string) (int64, state) {
	s := a.state(key)
	if s != knownValue {
		return 0, s
	}
	var text string
	switch v := a.values[key].(type) {
	case json.Number:
		text = v.String()
	case string:
		text = v
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt32 {
		return 0, unknownValue
	}
	return n, knownValue
}

func (a attributes) flag(key string) bool {
	v, _ := a.values[key].(bool)
	s, _ := a.values[key].(string) // as CloudFormation may write it
	return v || strings.EqualFold(s, "true")
}

// block returns nested blocks.
func (a attributes) block(key string) []attributes {
	list, _ := a.values[key].([]any)
	unknown, _ := a.unknown[key].([]any)
	var out []attributes
	for i, item := range list {
		v, ok := item.(map[string]any)
		if !ok {
			continue
		}
		var u map[string]any
		if i < len(unknown) {
			u, _ = unknown[i].(map[string]any)
		}
		out = append(out, attributes{v, u})
	}
	return out
}

// attributesOf are the values of a resource in a plan.
func attributesOf(values, unknown any) attributes {
	v, _ := values.(map[string]any)
	u, _ := unknown.(map[string]any)
	return attributes{v, u}
}

//go:embed attributes.txt
var reviewedText string

// reviewed are the attributes of each type of resources that were reviewed: those that are
// read or run no machine. Attributes that make the gate ask where they are given have the
// value false; see attributes.txt.
var reviewed = sync.OnceValue(func() map[string]map[string]bool {
	out := map[string]map[string]bool{}
	var of []map[string]bool
	for line := range strings.Lines(reviewedText) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		if types, isHead := strings.CutSuffix(strings.TrimSpace(line), ":"); isHead {
			of = nil
			for kind := range strings.FieldsSeq(types) {
				kind = strings.TrimSuffix(kind, ":")
				if out[kind] == nil {
					out[kind] = map[string]bool{}
				}
				of = append(of, out[kind])
			}
			continue
		}
		for path := range strings.FieldsSeq(line) {
			path, asks := strings.CutPrefix(path, "!")
			for _, list := range of {
				list[path] = !asks
			}
		}
	}
	return out
})

// review reports whether an attribute was reviewed, and whether it may be given. The most
// specific entry decides: an entry of a block is for everything in it.
func review(kind, path string) (known, allowed bool) {
	list := reviewed()[kind]
	for {
		if allowed, known = list[path]; known {
			return true, allowed
		}
		at := strings.LastIndexByte(path, '.')
		if at < 0 {
			return false, false
		}
		path = path[:at]
	}
}

// unread makes the gate ask about attributes that are given and that no one reviewed, or that may
// run machines and have no price. An attribute whose value is unknown yet counts as given where the
// configuration sets it.
func (m *meter) unread(kind string, at attributes) {
	found, asks := map[string]bool{}, asking(kind)
	hasAsking := func(block string) bool {
		return slices.ContainsFunc(asks, func(path string) bool { return strings.HasPrefix(path, block+".") })
	}
	var walk func(path string, v any, late bool)
	walk = func(path string, v any, late bool) {
		if path != "" {
			if known, allowed := review(kind, path); known && allowed && !hasAsking(path) {
				return
			}
		}
		switch v := v.(type) {
		case map[string]any:
			for key, item := range v {
				walk(strings.TrimPrefix(path+"."+key, "."), item, late)
			}
		case []any:
			for _, item := range v {
				walk(path, item, late)
			}
		default:
			top, _, _ := strings.Cut(path, ".")
			if given(v) && v != json.Number("0") && (!late || kind == m.kind && m.configures(top)) {
				if known, allowed := review(kind, path); !known || !allowed {
					found[path] = true
				}
			}
		}
	}
	walk("", at.values, false)
	walk("", at.unknown, true)
	for _, path := range slices.Sorted(maps.Keys(found)) {
		m.open("its %s may run or reserve more than is priced", path)
	}
}

// asking are the attributes of a type that make the gate ask.
func asking(kind string) []string {
	var out []string
	for path, allowed := range reviewed()[kind] {
		if !allowed {
			out = append(out, path)
		}
	}
	return out
}

// unreadProperties is unread for a resource of a template of CloudFormation.
func (m *meter) unreadProperties(name, kind string, properties any) {
	of, _ := properties.(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(of)) {
		if known, allowed := review(kind, key); given(of[key]) && (!known || !allowed) {
			m.open("%s in its template: its %s may run or reserve more than is priced", name, key)
		}
	}
}

// changesCost reports whether an update changes more than tags and descriptions, which cost
// nothing.
func changesCost(change *tfjson.Change) bool {
	free := func(key string) bool { return slices.Contains([]string{"tags", "tags_all", "tag", "description"}, key) }
	before, isObject := change.Before.(map[string]any)
	after, isAlso := change.After.(map[string]any)
	if !isObject || !isAlso {
		return true
	}
	for key := range before {
		if !free(key) && !reflect.DeepEqual(before[key], after[key]) {
			return true
		}
	}
	for key, v := range after {
		if _, both := before[key]; !free(key) && !both && v != nil {
			return true
		}
	}
	var late func(v any) bool
	late = func(v any) bool {
		switch v := v.(type) {
		case bool:
			return v
		case []any:
			return slices.ContainsFunc(v, late)
		case map[string]any:
			for _, item := range v {
				if late(item) {
					return true
				}
			}
		}
		return false
	}
	unknown, isObject := change.AfterUnknown.(map[string]any)
	if !isObject {
		return change.AfterUnknown == true
	}
	for key, v := range unknown {
		if !free(key) && late(v) {
			return true
		}
	}
	return false
}
