package sandbox

import (
	"os/exec"
	"syscall"
)

// dieWithParent puts the process into a group of its own and asks the kernel to end
// it with the thread that starts it.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// end ends the process and what it started.
func end(cmd *exec.Cmd) error {
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
		return err
	}
	return nil
}
