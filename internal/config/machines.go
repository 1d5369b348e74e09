package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// Local is this machine as a provider of sessions.
type Local struct {
	// Serve reports whether the API of the service may start sessions on this machine, which takes a
	// service that runs as root, and users; the command line always may.
	Serve bool `yaml:"serve"`
	// Users are the Unix users that sessions of the service run as, by the person who asks for them.
	// Whoever has none starts none; none is root.
	Users map[string]string `yaml:"users"`
	// Dir is the folder with the files of sessions of these users, which all can enter; empty is
	// /var/lib/curfew-sessions.
	Dir string `yaml:"dir"`
	// Limits bound what a session on this machine uses.
	Limits LocalLimits `yaml:"limits"`
	// GPUs are those of this machine where nvidia-smi is not installed.
	GPUs []local.ConfiguredGPU `yaml:"gpus"`
}

// LocalLimits bound what a session on this machine uses.
type LocalLimits struct {
	// Memory is the most memory of a session ("64GiB"), or a share of this machine's ("50%"); empty
	// is the memory that a session of the service is charged for, and 90% for others.
	Memory string `yaml:"memory"`
	// Processes is the most processes and threads of a session; 0 is 4096.
	Processes int64 `yaml:"processes"`
}

// memoryLimit matches an amount of memory, or a share.
var memoryLimit = lazyregexp.New(`^([0-9]{1,7})(MiB|GiB|TiB|%)$`)

// Options converts the limits for the provider.
func (l LocalLimits) Options() (local.LimitOptions, error) {
	o := local.LimitOptions{Processes: l.Processes}
	if l.Processes < 0 || l.Processes > 4<<20 || l.Processes > 0 && l.Processes < 16 {
		return o, fmt.Errorf("processes: %d: a session has at least 16 processes and threads, and at most 4194304",
			l.Processes)
	}
	if l.Memory == "" {
		return o, nil
	}
	m := memoryLimit.FindStringSubmatch(l.Memory)
	if m == nil {
		return o, fmt.Errorf("memory: %q: it is an amount such as 64GiB or a share such as 50%%", l.Memory)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return o, err
	}
	if m[2] == "%" {
		if o.MemoryPercent = n; n < 1 || n > 100 {
			return o, fmt.Errorf("memory: %q: a share is from 1%% to 100%%", l.Memory)
		}
		return o, nil
	}
	if o.MemoryMiB = n << map[string]int{"MiB": 0, "GiB": 10, "TiB": 20}[m[2]]; o.MemoryMiB < 256 {
		return o, fmt.Errorf("memory: %q: a session needs 256MiB", l.Memory)
	}
	return o, nil
}

// check returns an error for an invalid section, and its key.
func (l Local) check() (key string, err error) {
	for person, name := range l.Users {
		switch {
		case strings.TrimSpace(person) == "":
			return "local.users", errors.New("a person has a name")
		case name == "root":
			return "local.users", fmt.Errorf("%s: no session runs as root", person)
		case !local.UserNamePattern.MatchString(name):
			return "local.users", fmt.Errorf("%s: %q is no name of a Unix user", person, name)
		}
	}
	if l.Dir != "" && (!filepath.IsAbs(l.Dir) || filepath.Clean(l.Dir) == "/") {
		return "local.dir", fmt.Errorf("%q: it is the absolute path of a folder", l.Dir)
	}
	if _, err := l.Limits.Options(); err != nil {
		return "local.limits", err
	}
	return "", nil
}

// checkMachines checks the on-premises machines and their rates, and the GPUs of this one.
func (c *Config) checkMachines(f *document.File, root ast.Node) error {
	for _, section := range []struct {
		key string
		err error
	}{
		{"machines", c.Machines.Validate(c.Rates)}, {"rates", c.Rates.Validate()},
		{"local.gpus", local.ValidateGPUs(c.Local.GPUs)},
	} {
		var field *local.FieldError
		switch {
		case section.err == nil:
		case errors.As(section.err, &field):
			return placed(f, root, section.key+field.Field, errors.New(field.Message))
		default:
			return placed(f, root, section.key, section.err)
		}
	}
	if key, err := c.Local.check(); err != nil {
		return placed(f, root, key, err)
	}
	return nil
}

// checkClouds returns an error for a cloud that cannot be read.
func (c *Config) checkClouds() error {
	for i, name := range c.Clouds {
		switch {
		case name != "aws" && name != local.CloudName && name != local.OnPremises:
			return fmt.Errorf("%q: it is aws, local or onprem", name)
		case slices.Contains(c.Clouds[:i], name):
			return fmt.Errorf("%s is there twice", name)
		case name == local.OnPremises && len(c.Machines) == 0:
			return errors.New("onprem: no machine is listed under machines")
		}
	}
	return nil
}
