package config

import (
	"errors"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/document"
)

// checkMachines checks the on-premises machines and their rates.
func (c *Config) checkMachines(f *document.File, root ast.Node) error {
	for _, section := range []struct {
		key string
		err error
	}{{"machines", c.Machines.Validate(c.Rates)}, {"rates", c.Rates.Validate()}} {
		var field *local.FieldError
		switch {
		case section.err == nil:
		case errors.As(section.err, &field):
			return placed(f, root, section.key+field.Field, errors.New(field.Message))
		default:
			return placed(f, root, section.key, section.err)
		}
	}
	return nil
}
