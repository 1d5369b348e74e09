package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// makeNamespace starts the first process of a PID namespace, whose end kills all others. Without
// root it uses a user namespace too.
func (c *Cage) makeNamespace(ctx context.Context) error {
	err := c.makeNamespaceAs(ctx, false)
	if err != nil && os.Geteuid() != 0 {
		err = errors.Join(err, c.makeNamespaceAs(ctx, true))
		if c.file.Init != nil {
			err = nil
		}
	}
	return err
}

func (c *Cage) makeNamespaceAs(ctx context.Context, user bool) error {
	if _, err := exec.LookPath("nsenter"); user && err != nil {
		return err
	}
	gate, open, err := os.Pipe()
	if err != nil {
		return err
	}
	defer open.Close()
	ready, said, err := os.Pipe()
	if err != nil {
		return errors.Join(err, gate.Close())
	}
	defer ready.Close()
	cmd := exec.Command(c.file.Helper[0],
		append(slices.Clone(c.file.Helper[1:]), "init")...)
	cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", withoutVariable(os.Environ(), CageVariable), []*os.File{gate, said}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	if user {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{
			{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1},
		}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{
			{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1},
		}
	}
	err = cmd.Start()
	if err = errors.Join(err, gate.Close(), said.Close()); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // it ends by a kill
	p, err := processOf(cmd.Process.Pid)
	if err == nil {
		c.file.Init, c.file.UserNamespace = &p, user
		err = c.save()
	}
	if err == nil {
		_, err = open.Write([]byte{'\n'})
	}
	if err == nil {
		err = ready.SetReadDeadline(time.Now().Add(30 * time.Second))
	}
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Now()) })
	defer stop()
	if err == nil {
		if _, err = io.ReadFull(ready, make([]byte, 1)); err != nil {
			err = errors.New("its first process did not begin")
		}
	}
	if err != nil {
		c.file.Init = nil
		return errors.Join(err, cmd.Process.Kill())
	}
	return nil
}

// runInit is the first process of the namespace: it reaps orphaned processes.
func runInit() error {
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT)
	gate, said := os.NewFile(3, "gate"), os.NewFile(4, "ready")
	if _, err := io.ReadFull(gate, make([]byte, 1)); err != nil {
		return errors.New("what started it has ended")
	}
	// Programs look themselves up in /proc. If it cannot be mounted, they see the machine's.
	if unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "") == nil {
		_ = unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	if _, err := said.Write([]byte{'\n'}); err != nil {
		return err
	}
	if err := errors.Join(said.Close(), gate.Close()); err != nil {
		return err
	}
	for range children {
		for {
			if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 && !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
	return nil
}

// startInNamespace starts a command in the namespace.
func (c *Cage) startInNamespace(cmd *exec.Cmd) error {
	if c.file.Init == nil || !c.file.Init.Alive() {
		return errors.New("the first process of the PID namespace has ended")
	}
	if cmd.Dir == "" { // another mount namespace begins at the root
		dir, err := os.Getwd()
		if err != nil {
			return err
		}
		cmd.Dir = dir
	}
	if c.file.UserNamespace {
		nsenter, err := exec.LookPath("nsenter")
		if err != nil {
			return err
		}
		inside := []string{"/bin/sh", "-c", `cd "$1" && shift && exec "$@"`, "sh", cmd.Dir, cmd.Path}
		if len(cmd.Args) > 0 {
			inside = append(inside, cmd.Args[1:]...)
		}
		cmd.Path = nsenter
		cmd.Args = append([]string{
			"nsenter", "--preserve-credentials", "--user", "--mount", "--pid", "--target",
			strconv.Itoa(c.file.Init.PID),
			"--",
		}, inside...)
		return cmd.Start()
	}
	done := make(chan error, 1)
	go func() {
		// The thread changes its mount namespace. It is never unlocked, so it ends with this
		// function.
		runtime.LockOSThread()
		done <- c.startFromThread(cmd)
	}()
	return <-done
}

func (c *Cage) startFromThread(cmd *exec.Cmd) error {
	dir := "/proc/" + strconv.Itoa(c.file.Init.PID) + "/ns/"
	var fds []*os.File
	defer func() {
		for _, f := range fds {
			_ = f.Close() // read-only
		}
	}()
	for _, name := range []string{"mnt", "pid"} {
		f, err := os.Open(dir + name)
		if err != nil {
			return err
		}
		fds = append(fds, f)
	}
	if !c.file.Init.Alive() { // otherwise the namespaces would be another process's
		return errProcessEnded
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leave the folder of the other threads: %w", err)
	}
	for i, kind := range []int{unix.CLONE_NEWNS, unix.CLONE_NEWPID} {
		if err := unix.Setns(int(fds[i].Fd()), kind); err != nil {
			return fmt.Errorf("enter the namespace: %w", err)
		}
	}
	return cmd.Start()
}

// namespace returns the identity of the cage's PID namespace; "" if it has none or it ended.
func (c *Cage) namespace() string {
	if c.file.Kind != Namespace || c.file.Init == nil {
		return ""
	}
	name := namespaceOf(c.file.Init.PID)
	if !c.file.Init.Alive() {
		return ""
	}
	return name
}

// namespaceOf returns the PID namespace of a process; "" if it may not be read.
func namespaceOf(pid int) string {
	name, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/pid")
	if err != nil {
		return ""
	}
	return name
}

// killNamespace kills the first process; the kernel kills the others before it is gone.
func (c *Cage) killNamespace() error {
	if c.file.Init == nil {
		return nil
	}
	if err := c.file.Init.Signal(unix.SIGKILL); err != nil && !errors.Is(err, errProcessEnded) {
		return err
	}
	return nil
}
