package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"unicode"

	"github.com/danielgtaylor/huma/v2"

	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/schemas"
)

// schemaRef is the prefix of references to components.
const schemaRef = "#/components/schemas/"

// component returns the component name of a document's schema: keeps.v1 for "curfew.keeps/v1".
func component(schema string) string {
	return strings.ReplaceAll(strings.TrimPrefix(schema, "curfew."), "/", ".")
}

// specOf returns the OpenAPI document of the operations, with the schemas of their documents.
func specOf(api huma.API) ([]byte, error) {
	text, err := json.Marshal(api.OpenAPI())
	if err != nil {
		return nil, fmt.Errorf("write the OpenAPI document: %w", err)
	}
	var spec map[string]any
	if err := json.Unmarshal(text, &spec); err != nil {
		return nil, fmt.Errorf("write the OpenAPI document: %w", err)
	}
	components, _ := spec["components"].(map[string]any)
	all, _ := components["schemas"].(map[string]any)
	for wanted := references(spec); len(wanted) > 0; {
		added := map[string]bool{}
		for name := range wanted {
			if _, known := all[name]; known {
				continue
			}
			schema, parts, err := documentSchema(name)
			if err != nil {
				return nil, err
			}
			all[name] = schema
			for part, of := range parts {
				if known, ok := all[part]; ok && !reflect.DeepEqual(known, of) {
					return nil, fmt.Errorf("write the OpenAPI document: two schemas define %s differently", part)
				}
				all[part] = of
			}
			maps.Copy(added, references(schema))
			for _, of := range parts {
				maps.Copy(added, references(of))
			}
		}
		wanted = added
	}
	for name, schema := range all {
		if schema, ok := schema.(map[string]any); ok {
			schema["title"] = title(name)
		}
	}
	var out strings.Builder
	if err := view.WriteJSON(&out, spec); err != nil {
		return nil, fmt.Errorf("write the OpenAPI document: %w", err)
	}
	return []byte(out.String()), nil
}

// title returns a component's type name for client generators: KeepsV1 for keeps.v1. The schemas'
// own titles end in their version, which some generators use as the whole name.
func title(name string) string {
	var b strings.Builder
	for word := range strings.FieldsFuncSeq(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

// documentSchema reads the schema of a document and the definitions in it, with references to
// components.
func documentSchema(name string) (schema map[string]any, parts map[string]any, err error) {
	text, err := schemas.Files.ReadFile(name + ".json")
	if err != nil {
		return nil, nil, fmt.Errorf("the OpenAPI document names the schema %s: %w", name, err)
	}
	text = []byte(strings.ReplaceAll(string(text), "#/$defs/", schemaRef))
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil, nil, fmt.Errorf("read the schema %s: %w", name, err)
	}
	parts, _ = schema["$defs"].(map[string]any)
	for _, key := range []string{"$defs", "$schema", "$id"} {
		delete(schema, key)
	}
	return schema, parts, nil
}

// references returns the names of the components that a value refers to.
func references(v any) map[string]bool {
	out := map[string]bool{}
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			if name, ok := inner.(string); ok && key == "$ref" {
				out[strings.TrimPrefix(name, schemaRef)] = true
				continue
			}
			maps.Copy(out, references(inner))
		}
	case []any:
		for _, inner := range v {
			maps.Copy(out, references(inner))
		}
	}
	return out
}
