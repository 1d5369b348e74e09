package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Files of control groups.
const (
	procs       = "cgroup.procs"
	killFile    = "cgroup.kill"
	freezeFile  = "freezer.state"
	denyFile    = "devices.deny"
	groupPrefix = "curfew-" // begins the names of curfew's groups
)

// hierarchy is a mounted control group hierarchy.
type hierarchy struct {
	mount string
	// own is the folder of this process's group.
	own string
}

// hierarchies finds the version 2 hierarchy ("") or that of a version 1 controller.
func hierarchies(controller string) (hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return hierarchy{}, err
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return hierarchy{}, err
	}
	own := ""
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && (controller == "" && parts[0] == "0" && parts[1] == "" || controller != "" &&
			slices.Contains(strings.Split(parts[1], ","), controller)) {
			own = parts[2]
		}
	}
	for line := range strings.Lines(string(mounts)) {
		// 36 35 98:0 /root /mount options … - type source super-options (proc_pid_mountinfo(5))
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		if controller == "" && g[0] != "cgroup2" || controller != "" &&
			(g[0] != "cgroup" || !slices.Contains(strings.Split(g[2], ","), controller)) {
			continue
		}
		h := hierarchy{mount: unescape(f[4])}
		inside, below := strings.CutPrefix(own, strings.TrimSuffix(f[3], "/"))
		if below {
			h.own = filepath.Join(h.mount, inside)
		}
		return h, nil
	}
	if controller == "" {
		controller = "version 2"
	}
	return hierarchy{}, fmt.Errorf("no control groups of %s are mounted", controller)
}

// unescape decodes the octal escapes of mountinfo.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// candidates returns the folders to create a group in: the root, which the starter of curfew cannot
// change, else next to or below curfew's own group.
func (h hierarchy) candidates() []string {
	out := []string{h.mount}
	if h.own != "" {
		out = append(out, filepath.Dir(h.own), h.own)
	}
	inside := out[:0]
	for _, p := range out {
		if (p == h.mount || strings.HasPrefix(p, h.mount+"/")) && !slices.Contains(inside, p) {
			inside = append(inside, p)
		}
	}
	return inside
}

// makeGroup creates the control groups of a cage.
func (c *Cage) makeGroup() error {
	controller, file := "", killFile
	if c.file.Kind == Freezer {
		controller, file = "freezer", freezeFile
	}
	h, err := hierarchies(controller)
	if err != nil {
		return err
	}
	for _, place := range h.candidates() {
		c.file.MachineGroup = filepath.Join(place, groupPrefix+c.file.Name)
		c.file.Path = subgroup(c.file.MachineGroup, cageGroup)
		var one error
		if one = c.save(); one != nil {
			return one
		}
		if one = makeGroups(c.file.MachineGroup); one == nil {
			if one = writable(filepath.Join(c.file.Path, file), filepath.Join(c.file.Path, procs)); one == nil {
				c.deny()
				if err := c.limit(); err != nil {
					return err
				}
				if err := c.delegate(); err != nil {
					return err
				}
				return c.makeAgentGroup()
			}
		}
		err = errors.Join(err, one, ignoreNotExist(removeGroups(c.file.MachineGroup)))
	}
	c.file.MachineGroup, c.file.Path = "", ""
	return err
}

// Groups below that of a machine.
const (
	cageGroup  = "cage"  // processes
	agentGroup = "agent" // agent
)

// makeGroups creates the group of a machine with those of its agent and processes.
func makeGroups(whole string) error {
	for _, dir := range []string{whole, subgroup(whole, agentGroup), subgroup(whole, cageGroup)} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// removeGroups removes groups that were never used.
func removeGroups(whole string) error {
	all, err := subgroups(whole)
	for _, g := range all {
		err = errors.Join(err, ignoreNotExist(unix.Rmdir(g)))
	}
	return err
}

// delegate lets the cage's user move its own processes into the cage and end them. The kernel
// prevents moving other users' processes or leaving the machine's group.
func (c *Cage) delegate() error {
	if c.file.User == nil {
		return nil
	}
	files := []string{filepath.Join(c.file.Path, procs)}
	switch c.file.Kind {
	case Cgroup2: // a move needs write access to the common ancestor
		files = append(files, filepath.Join(c.file.MachineGroup, procs), filepath.Join(c.file.Path, killFile))
	case Freezer:
		files = append(files, filepath.Join(c.file.Path, freezeFile))
	}
	for _, dir := range []string{
		c.file.Devices, subgroup(c.file.Memory, cageGroup), subgroup(c.file.Processes, cageGroup),
	} {
		if dir != "" {
			files = append(files, filepath.Join(dir, procs))
		}
	}
	for _, file := range files {
		if err := os.Chown(file, int(c.file.User.UID), int(c.file.User.GID)); err != nil {
			return err
		}
	}
	return nil
}

// makeAgentGroup creates a group for the agent, which a service manager would otherwise end with
// the service that started it.
func (c *Cage) makeAgentGroup() error {
	if c.file.Kind != Cgroup2 {
		return c.save()
	}
	c.file.AgentGroup = c.file.MachineGroup + "-host"
	if err := c.save(); err != nil {
		return err
	}
	if err := os.Mkdir(c.file.AgentGroup, 0o755); err != nil {
		c.file.AgentGroup = ""
		return c.save()
	}
	return nil
}

func writable(paths ...string) error {
	for _, p := range paths {
		f, err := os.OpenFile(p, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// deny lets the kernel deny the cage's devices if it can.
func (c *Cage) deny() {
	if len(c.file.Deny) == 0 {
		return
	}
	if c.file.Kind == Cgroup2 {
		c.file.Enforced = denyByProgram(c.file.Path, c.file.Deny) == nil
		return
	}
	h, err := hierarchies("devices")
	if err != nil {
		return
	}
	for _, place := range h.candidates() {
		dir := filepath.Join(place, groupPrefix+c.file.Name)
		c.file.Devices = dir
		if c.save() != nil || os.Mkdir(dir, 0o755) != nil {
			c.file.Devices = ""
			continue
		}
		for _, d := range c.file.Deny {
			if err = os.WriteFile(filepath.Join(dir, denyFile), fmt.Appendf(nil, "c %d:%d rwm", d.Major, d.Minor),
				0o600); err != nil {
				break
			}
		}
		if c.file.Enforced = err == nil; c.file.Enforced || os.Remove(dir) != nil {
			return
		}
		c.file.Devices = ""
	}
}

// subgroups returns a group and its descendants, deepest first; none if it does not exist.
func subgroups(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			below, err := subgroups(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			out = append(out, below...)
		}
	}
	return append(out, dir), nil
}

// groupProcesses returns the processes of a group and its descendants.
func groupProcesses(dir string) ([]int, error) {
	if dir == "" {
		return nil, nil
	}
	all, err := subgroups(dir)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, g := range all {
		b, err := os.ReadFile(filepath.Join(g, procs))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		for _, line := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(line); err == nil && pid > 0 {
				out = append(out, pid)
			}
		}
	}
	return out, nil
}

// killGroup kills all members of a group at once.
func (c *Cage) killGroup(ctx context.Context, group string) error {
	if group == "" {
		return nil
	}
	if c.file.Kind == Cgroup2 {
		return ignoreNotExist(os.WriteFile(filepath.Join(group, killFile), []byte("1"), 0o600))
	}
	if there, err := groupProcesses(group); err != nil || len(there) == 0 {
		return err
	}
	// Frozen processes start nothing, and their PIDs are not reused.
	state := filepath.Join(group, freezeFile)
	if err := os.WriteFile(state, []byte("FROZEN"), 0o600); err != nil {
		return ignoreNotExist(err)
	}
	const patience = 5 * time.Second
	for begun := time.Now(); time.Since(begun) < patience && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		if b, err := os.ReadFile(state); err != nil || strings.TrimSpace(string(b)) == "FROZEN" {
			break
		}
	}
	pids, err := groupProcesses(group)
	for _, pid := range pids {
		if p, gone := processOf(pid); gone == nil {
			_ = p.Signal(unix.SIGKILL) // if it fails, the next listing shows the process again
		}
	}
	err = errors.Join(err, ignoreNotExist(os.WriteFile(state, []byte("THAWED"), 0o600)))
	if group != c.file.Path { // its user may have frozen it
		err = errors.Join(err,
			ignoreNotExist(os.WriteFile(filepath.Join(c.file.Path, freezeFile), []byte("THAWED"), 0o600)))
	}
	return err
}

// ignoreNotExist returns nil if the error means that the group does not exist, and thus has no
// members.
func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// removeGroup removes a group and its descendants, waiting for the kernel to notice that they are
// empty.
func removeGroup(ctx context.Context, dir string) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		all, err := subgroups(dir)
		for _, g := range all {
			err = errors.Join(err, ignoreNotExist(unix.Rmdir(g)))
		}
		if err == nil || ctx.Err() != nil || !errors.Is(err, unix.EBUSY) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}
