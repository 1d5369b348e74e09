//go:build !linux

package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"github.com/curfew-dev/curfew/internal/inventory"
)

var errLinux = errors.New("sessions on this machine need Linux")

func bootID() string { return "" }

// Alive reports whether the process runs; it cannot be known here.
func (p Process) Alive() bool { return false }

// Probe finds the best kind that works here: none does.
func Probe(context.Context, []string) (ProbeResult, error) { return ProbeResult{}, errLinux }

func (c *Cage) make(context.Context) error { return errLinux }

// Start starts a command in the cage.
func (c *Cage) Start(context.Context, *exec.Cmd) error { return errLinux }

// Processes returns the processes of the cage.
func (c *Cage) Processes() ([]int, error) { return nil, errLinux }

// Killable returns the processes that Kill would end.
func (c *Cage) Killable() ([]int, error) { return nil, errLinux }

// Kill ends all processes of the cage.
func (c *Cage) Kill(context.Context) error { return errLinux }

// KillAll also ends the agent.
func (c *Cage) KillAll(context.Context) error { return errLinux }

// Remove removes the resources of the cage.
func (c *Cage) Remove(context.Context) error { return errLinux }

func (p *Provider) start(context.Context, *machine) (inventory.State, error) { return "", errLinux }

func (p *Provider) end(context.Context, *machine) error { return errLinux }

// Helper runs tasks that need a separate process.
func Helper(_ []string, stderr io.Writer) int {
	fmt.Fprintln(stderr, "curfew cage:", errLinux)
	return 1
}
