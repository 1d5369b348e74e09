package policy

import (
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/operators"
)

// Fact documents a fact of conditions.
type Fact struct {
	// Values are all possible values, Unit is the unit of a number.
	Name, Type string
	Values     []string
	Unit       string
	// Doc describes it, Unknown when it is unknown, and Example is a condition.
	Doc, Unknown, Example string
}

// AllFacts returns all facts of conditions.
func AllFacts() []Fact {
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

// Function documents a function, operator or macro of conditions.
type Function struct {
	// Name is the name, or the sign of an operator.
	Name string
	// Forms are the signatures and examples.
	Forms []string
	// Doc is the description of CEL's documentation.
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
			continue // used only by the compiler
		case at < 0:
			out = append(out, f)
		default: // a macro with the same name as a function
			out[at].Doc, out[at].Forms = f.Doc+"; "+out[at].Doc, append(f.Forms, out[at].Forms...)
		}
	}
	slices.SortFunc(out, func(a, b Function) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// inLine returns a text of CEL's documentation in one line, with the type names of conditions.
func inLine(text string) string {
	return strings.NewReplacer("google.protobuf.Duration", "duration",
		"google.protobuf.Timestamp", "timestamp").Replace(
		strings.Join(strings.Fields(text), " "))
}
