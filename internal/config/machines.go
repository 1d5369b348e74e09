package config

import (
	"errors"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/cloud/onprem"
)

// checkMachines checks the machines of one's own and their rates.
func (c *Config) checkMachines(file *ast.File, name string) error {
	for _, section := range []struct {
		key string
		err error
	}{{"machines", c.Machines.Validate(c.Rates)}, {"rates", c.Rates.Validate()}} {
		if section.err == nil {
			continue
		}
		path, message := section.key, section.err.Error()
		var field *onprem.FieldError
		if errors.As(section.err, &field) {
			path, message = section.key+field.Field, field.Message
		}
		return placed(file, name, path, message)
	}
	return nil
}

// placed is a mistake at a path of a file, or where the file does not give that at the
// part of it that the file gives.
func placed(file *ast.File, name, path, message string) error {
	for at := path; at != ""; at = parent(at) {
		p, err := yaml.PathString("$." + at)
		if err != nil {
			continue
		}
		if n, err := p.FilterFile(file); err == nil && n != nil {
			t := n.GetToken()
			if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
				t = m.Values[0].Key.GetToken()
			}
			return &Error{File: name, Line: t.Position.Line, Column: t.Position.Column, Message: path + ": " + message}
		}
	}
	return &Error{File: name, Message: path + ": " + message}
}

// parent returns a path without its last part.
func parent(path string) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '.' || path[i] == '[' {
			return path[:i]
		}
	}
	return ""
}
