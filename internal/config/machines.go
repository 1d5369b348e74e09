package config

import (
	"errors"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/document"
)

// Local is this machine as a provider of sessions.
type Local struct {
	// Serve says whether the API of the service may start sessions on this machine; the
	// command line always may.
	Serve bool `yaml:"serve"`
	// GPUs are those of this machine where nvidia-smi is not installed.
	GPUs []local.Listed `yaml:"gpus"`
}

// checkMachines checks the on-premises machines and their rates, and the GPUs of this one.
func (c *Config) checkMachines(f *document.File, root ast.Node) error {
	for _, section := range []struct {
		key string
		err error
	}{{"machines", c.Machines.Validate(c.Rates)}, {"rates", c.Rates.Validate()}, {"local.gpus", local.CheckGPUs(c.Local.GPUs)}} {
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
