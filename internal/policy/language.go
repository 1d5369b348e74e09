package policy

import (
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/operators"
)

// Fact is something that conditions can ask for, for people.
type Fact struct {
	// Name is its name, Type its type, Values all that it can be, Unit the unit of a number.
	Name, Type string
	Values     []string
	Unit       string
	// Doc says what it is, Unknown when it is not known, and Example is a condition.
	Doc, Unknown, Example string
}

// Language returns every fact that conditions can ask for.
func Language() []Fact {
	out := make([]Fact, 0, len(facts))
	for _, f := range facts {
		typ := map[string]string{
			"string": "text", "int": "whole number", "double": "number", "timestamp": "time",
			"google.protobuf.Timestamp": "time",
			"google.protobuf.Duration":  "duration", "duration": "duration",
			"bool": "true or false"}[cel.FormatCELType(f.typ)]
		if typ == "" {
			typ = "map of texts"
		}
		out = append(out, Fact{f.name, typ, f.values, f.unit, f.doc, f.unknown, f.example})
	}
	return out
}

// Function is a function, operator or macro of conditions, for people.
type Function struct {
	// Name is its name, or the sign of an operator.
	Name string
	// Forms are its signatures and examples; empty for a macro without any.
	Forms []string
	// Doc says what it does, in the words of CEL's documentation.
	Doc string
}

// Functions returns every function, operator and macro of conditions, in order of name.
func Functions() ([]Function, error) {
	env, err := environment()
	if err != nil {
		return nil, err
	}
	var all []common.Documentor
	functions := env.Functions()
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		all = append(all, functions[name])
	}
	for _, m := range env.Macros() {
		if documented, ok := m.(common.Documentor); ok {
			all = append(all, documented)
		}
	}
	var out []Function
	for _, documented := range all {
		doc := documented.Documentation()
		name := doc.Name
		if sign, ok := operators.FindReverse(name); ok && sign != "" {
			name = sign
		}
		f := Function{Name: name, Doc: inLine(doc.Description)}
		for _, form := range doc.Children {
			text := form.Signature
			if form.Kind == common.DocExample {
				text = form.Description
			}
			if text = inLine(text); !slices.Contains(f.Forms, text) && !strings.HasPrefix(text, "//") {
				f.Forms = append(f.Forms, text)
			}
		}
		at := slices.IndexFunc(out, func(o Function) bool { return o.Name == name })
		switch {
		case f.Doc == "":
			continue // for the compiler alone
		case at < 0:
			out = append(out, f)
		default: // a macro in front of a function
			out[at].Doc, out[at].Forms = f.Doc+"; "+out[at].Doc, append(f.Forms, out[at].Forms...)
		}
	}
	slices.SortFunc(out, func(a, b Function) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// inLine puts a text of CEL's documentation on one line, and types into the words of
// conditions.
func inLine(text string) string {
	return strings.NewReplacer("google.protobuf.Duration", "duration",
		"google.protobuf.Timestamp", "timestamp").Replace(
		strings.Join(strings.Fields(text), " "))
}
