//go:build !linux

package sandbox

import "os/exec"

// dieWithParent does nothing where the kernel does not offer it; Close ends the
// process.
func dieWithParent(*exec.Cmd) {}

// end ends the process.
func end(cmd *exec.Cmd) error { return cmd.Process.Kill() }
