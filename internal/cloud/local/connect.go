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

// Folder is the folder of a machine, by its id.
func (p *Provider) Folder(id string) string { return filepath.Join(p.machinesDir(), filepath.Base(id)) }

// Inside is a machine as its processes see it.
type Inside struct {
	// Folder has its home and what its agent set up; User is who its processes are, nil: who asks.
	Folder string
	User   *User
}

// Inside returns how a machine looks to its processes.
func (p *Provider) Inside(id string) (Inside, error) {
	m, err := openMachine(p.Folder(id))
	if err != nil {
		return Inside{}, fmt.Errorf("connect to %s: %w", id, err)
	}
	return Inside{m.own().path(""), m.User}, nil
}

// Environ is the environment of a command that is started in the machine, of what the one who
// starts it has.
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

// Enter starts a command in the cage of a machine that runs. Its environment begins where the
// agent's set-up left it, in the work folder.
func (p *Provider) Enter(ctx context.Context, id string, cmd *exec.Cmd) error {
	m, err := openMachine(p.Folder(id))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", id, err)
	}
	s, err := m.look()
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
