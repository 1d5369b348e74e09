package main

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/curfew-dev/curfew/internal/document"
)

// input returns the schema of a file that people write.
func input(file, title string, s *document.Shape) *jsonschema.Schema {
	out := schema(s)
	out.Version, out.ID, out.Title = jsonschema.Version, jsonschema.ID(document.Schemas+file), title
	return out
}

// schema converts a shape to a JSON Schema.
func schema(s *document.Shape) *jsonschema.Schema {
	out := &jsonschema.Schema{}
	switch {
	case s.Forms != nil:
		for _, f := range s.Forms {
			if f.Type != "" {
				out.AnyOf = append(out.AnyOf, schema(f))
			}
		}
	case s.OrList:
		one := *s
		one.OrList, one.Doc, one.Default = false, "", ""
		out.AnyOf = []*jsonschema.Schema{
			schema(&one), {Type: "array", Items: schema(&one), MinItems: count(1), UniqueItems: true},
		}
	case s.Type == document.Decimal:
		pattern := s.Pattern
		if pattern == "" {
			pattern = document.DecimalPattern
		}
		number := &jsonschema.Schema{Type: "number"}
		if s.Over {
			number.ExclusiveMinimum = "0"
		} else if s.Pattern == "" {
			number.Minimum = "0"
		}
		out.AnyOf = []*jsonschema.Schema{number, {Type: "string", Pattern: pattern}}
	default:
		typed(out, s)
	}
	out.Description = s.Doc
	if s.Default != "" {
		out.Default = defaultOf(s)
	}
	return out
}

// typed fills in the properties of a value of one type.
func typed(out *jsonschema.Schema, s *document.Shape) {
	out.Type = string(s.Type)
	out.Enum = texts(s.Enum)
	switch s.Type {
	case document.Object:
		out.AdditionalProperties = jsonschema.FalseSchema
		if s.Keys != nil {
			out.Properties = jsonschema.NewProperties()
			for _, k := range s.Keys {
				out.Properties.Set(k.Name, schema(k.Shape))
				if k.Required {
					out.Required = append(out.Required, k.Name)
				}
			}
		} else if s.Values != nil {
			out.AdditionalProperties = schema(s.Values)
			if s.KeyNames != nil {
				out.PropertyNames = &jsonschema.Schema{Enum: texts(s.KeyNames)}
			}
		}
		if s.LeastItems > 0 {
			out.MinProperties = count(s.LeastItems)
		}
	case document.Array:
		out.Items = schema(s.Items)
		if s.LeastItems > 0 {
			out.MinItems = count(s.LeastItems)
		}
	case document.String:
		if out.Pattern = s.Pattern; s.Pattern == "" && s.Enum == nil && s.LeastItems > 0 {
			out.MinLength = count(s.LeastItems)
		}
	case document.Integer, document.Number:
		switch {
		case s.Over:
			out.ExclusiveMinimum = "0"
		default:
			out.Minimum = json.Number(strconv.Itoa(s.Least))
		}
		if s.Most > 0 {
			out.Maximum = json.Number(strconv.Itoa(s.Most))
		}
	}
}

// defaultOf returns a default with the type of its key.
func defaultOf(s *document.Shape) any {
	switch s.Type {
	case document.Integer, document.Number:
		return json.Number(s.Default)
	case document.Boolean:
		return s.Default == "true"
	case document.Array:
		return nil // the page contains it
	}
	return s.Default
}

func texts(values []string) (out []any) {
	for _, v := range values {
		out = append(out, v)
	}
	return out
}

func count(n int) *uint64 {
	v := uint64(n)
	return &v
}

// keys visits every key of a schema, each with its path.
func keys(s *jsonschema.Schema, path string, visit func(path string, key *jsonschema.Schema)) {
	for _, form := range s.AnyOf {
		keys(form, path, visit)
	}
	if s.Items != nil {
		keys(s.Items, path+"[]", visit)
	}
	if s.AdditionalProperties != nil {
		keys(s.AdditionalProperties, path+".*", visit)
	}
	if s.Properties == nil {
		return
	}
	for at := s.Properties.Oldest(); at != nil; at = at.Next() {
		inner := strings.TrimPrefix(path+"."+at.Key, ".")
		visit(inner, at.Value)
		keys(at.Value, inner, visit)
	}
}
