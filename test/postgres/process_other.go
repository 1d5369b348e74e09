//go:build !linux

package postgres

import (
	"errors"
	"os"
	"os/exec"
)

// owner is the user of the server: the user of the tests.
type owner struct{}

// account returns the user of the tests; PostgreSQL itself refuses root.
func account() (*owner, error) { return nil, nil }

func (*owner) own(string) error { return nil }

func (*owner) run(*exec.Cmd) {}

// end ends the server.
func end(cmd *exec.Cmd) error {
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
