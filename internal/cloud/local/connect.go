package local

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Folder is the folder of a machine, by its id.
func (p *Provider) Folder(id string) string { return filepath.Join(p.machinesDir(), filepath.Base(id)) }

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
