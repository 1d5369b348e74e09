package local

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Folder returns the folder of a machine.
func (p *Provider) Folder(id string) string { return filepath.Join(p.machinesDir(), filepath.Base(id)) }

// Inside describes a machine to a process in it.
type Inside struct {
	// Folder contains its home and the results of its setup. User is the user of its processes; nil
	// means the current one.
	Folder string
	User   *User
}

// Inside returns the description of a machine.
func (p *Provider) Inside(id string) (Inside, error) {
	m, err := openMachine(p.Folder(id))
	if err != nil {
		return Inside{}, fmt.Errorf("connect to %s: %w", id, err)
	}
	return Inside{m.userTree().path(""), m.User}, nil
}

// Environ returns the environment of a command in the machine, given that of its starter.
func (in Inside) Environ(env []string) []string {
	if in.User == nil {
		env = Environ(env)
	} else {
		env = agentEnviron(in.User, env)
	}
	return append(slices.DeleteFunc(env, func(v string) bool {
		return strings.HasPrefix(v, "HOME=")
	}), "HOME="+filepath.Join(in.Folder, HomeDir))
}

// Enter starts a command in the cage of a running machine, with the environment of its setup and in
// its work folder.
func (p *Provider) Enter(ctx context.Context, id string, cmd *exec.Cmd) error {
	m, err := openMachine(p.Folder(id))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", id, err)
	}
	s, err := m.readState()
	if err != nil {
		return err
	}
	if s.State != inventory.StateRunning {
		return fmt.Errorf("connect to %s: it does not run", id)
	}
	c, err := OpenCage(m.dir)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", id, err)
	}
	return c.Start(ctx, cmd)
}
