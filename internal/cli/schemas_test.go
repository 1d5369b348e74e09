package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/view"
)

// validates checks the JSON of a command against the published schemas.
func validates(t testing.TB, args []string, out string) {
	t.Helper()
	at := slices.Index(args, "-o")
	if at < 0 || at+1 == len(args) || args[at+1] != "json" || slices.Contains(args, "--help") {
		return
	}
	in := json.NewDecoder(strings.NewReader(out))
	for {
		var doc json.RawMessage
		switch err := in.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			t.Errorf("curfew %s prints no JSON: %v\n%.300s", strings.Join(args, " "), err, out)
			return
		}
		if err := conforms(doc); err != nil {
			t.Errorf("curfew %s: %v", strings.Join(args, " "), err)
		}
	}
}

// conforms reports whether a document is as its published schema says.
func conforms(doc json.RawMessage) error {
	var head struct{ Schema string }
	if err := json.Unmarshal(doc, &head); err != nil {
		return err
	}
	name := strings.TrimSuffix(strings.TrimPrefix(head.Schema, "curfew."), "/v1")
	if head.Schema == view.PolicyTestSchema {
		name += ".output"
	}
	schema, err := published(name + ".v1.json")
	if err != nil {
		return fmt.Errorf("a document %q: %w", head.Schema, err)
	}
	v, err := validator.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return err
	}
	return schema.Validate(v)
}

var schemas sync.Map

// published is a schema of the folder schemas.
func published(name string) (*validator.Schema, error) {
	if s, ok := schemas.Load(name); ok {
		return s.(*validator.Schema), nil
	}
	src, err := os.ReadFile(filepath.Join("..", "..", "schemas", name))
	if err != nil {
		return nil, err
	}
	doc, err := validator.UnmarshalJSON(bytes.NewReader(src))
	if err != nil {
		return nil, err
	}
	c := validator.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(document.Schemas+name, doc); err != nil {
		return nil, err
	}
	s, err := c.Compile(document.Schemas + name)
	if err == nil {
		schemas.Store(name, s)
	}
	return s, err
}
