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
	procs      = "cgroup.procs"
	killFile   = "cgroup.kill"
	freezeFile = "freezer.state"
	denyFile   = "devices.deny"
	groupMark  = "curfew-" // begins the names of our groups
)

// hierarchy is a mounted tree of control groups.
type hierarchy struct {
	mount string
	// own is the folder of the group that this process is in.
	own string
}

// hierarchies finds the tree of version 2 ("") or of a controller of version 1.
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

// unescape reads the octal escapes of mountinfo.
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

// places are the folders in which a group can be made: at the top, where what starts curfew
// has no say over it; else next to where curfew is, or below it.
func (h hierarchy) places() []string {
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

// makeGroup makes the control groups of a cage.
func (c *Cage) makeGroup() error {
	controller, file := "", killFile
	if c.file.Kind == Freezer {
		controller, file = "freezer", freezeFile
	}
	h, err := hierarchies(controller)
	if err != nil {
		return err
	}
	for _, place := range h.places() {
		c.file.Whole = filepath.Join(place, groupMark+c.file.Name)
		c.file.Path = inside(c.file.Whole, cageGroup)
		var one error
		if one = c.save(); one != nil {
			return one
		}
		if one = makeGroups(c.file.Whole); one == nil {
			if one = writable(filepath.Join(c.file.Path, file), filepath.Join(c.file.Path, procs)); one == nil {
				c.deny()
				if err := c.limit(); err != nil {
					return err
				}
				if err := c.hand(); err != nil {
					return err
				}
				return c.makeOutside()
			}
		}
		err = errors.Join(err, one, absent(removeGroups(c.file.Whole)))
	}
	c.file.Whole, c.file.Path = "", ""
	return err
}

// Groups below the one of a machine.
const (
	cageGroup  = "cage"  // its processes
	agentGroup = "agent" // its agent
)

// makeGroups makes the group of a machine, with those of its agent and its processes.
func makeGroups(whole string) error {
	for _, dir := range []string{whole, inside(whole, agentGroup), inside(whole, cageGroup)} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// removeGroups is removeGroup without patience, for groups that nothing was in.
func removeGroups(whole string) error {
	all, err := groups(whole)
	for _, g := range all {
		err = errors.Join(err, absent(unix.Rmdir(g)))
	}
	return err
}

// hand lets the user of the cage move its own processes into it, and end them. It moves no other
// user's processes, because the kernel compares, and its own out of the machine's group nowhere.
func (c *Cage) hand() error {
	if c.file.As == nil {
		return nil
	}
	files := []string{filepath.Join(c.file.Path, procs)}
	switch c.file.Kind {
	case Cgroup2: // a move has to be allowed by the group above both
		files = append(files, filepath.Join(c.file.Whole, procs), filepath.Join(c.file.Path, killFile))
	case Freezer:
		files = append(files, filepath.Join(c.file.Path, freezeFile))
	}
	for _, dir := range []string{c.file.Devices, inside(c.file.Memory, cageGroup), inside(c.file.Processes, cageGroup)} {
		if dir != "" {
			files = append(files, filepath.Join(dir, procs))
		}
	}
	for _, file := range files {
		if err := os.Chown(file, int(c.file.As.UID), int(c.file.As.GID)); err != nil {
			return err
		}
	}
	return nil
}

// makeOutside makes the group for the agent, which a service manager would else end with
// the service that started it.
func (c *Cage) makeOutside() error {
	if c.file.Kind != Cgroup2 {
		return c.save()
	}
	c.file.Outside = c.file.Whole + "-host"
	if err := c.save(); err != nil {
		return err
	}
	if err := os.Mkdir(c.file.Outside, 0o755); err != nil {
		c.file.Outside = ""
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

// deny has the kernel deny the cage's devices, where it can.
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
	for _, place := range h.places() {
		dir := filepath.Join(place, groupMark+c.file.Name)
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

// groups returns a group and all below it, those below first; none where it is not there.
func groups(dir string) ([]string, error) {
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
			below, err := groups(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			out = append(out, below...)
		}
	}
	return append(out, dir), nil
}

// members are the processes of a group and of all below it.
func members(dir string) ([]int, error) {
	if dir == "" {
		return nil, nil
	}
	all, err := groups(dir)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, g := range all {
		b, err := os.ReadFile(filepath.Join(g, procs))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue // it was removed meanwhile
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

// killGroup kills all members of a group of the cage at once.
func (c *Cage) killGroup(ctx context.Context, group string) error {
	if group == "" {
		return nil
	}
	if c.file.Kind == Cgroup2 {
		return absent(os.WriteFile(filepath.Join(group, killFile), []byte("1"), 0o600))
	}
	if there, err := members(group); err != nil || len(there) == 0 {
		return err
	}
	// What is frozen starts nothing more, and its number becomes no one else's.
	state := filepath.Join(group, freezeFile)
	if err := os.WriteFile(state, []byte("FROZEN"), 0o600); err != nil {
		return absent(err)
	}
	const patience = 5 * time.Second
	for begun := time.Now(); time.Since(begun) < patience && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		if b, err := os.ReadFile(state); err != nil || strings.TrimSpace(string(b)) == "FROZEN" {
			break
		}
	}
	pids, err := members(group)
	for _, pid := range pids {
		if p, gone := processOf(pid); gone == nil {
			_ = p.Signal(unix.SIGKILL) // where it cannot be, the next look says that it is left
		}
	}
	err = errors.Join(err, absent(os.WriteFile(state, []byte("THAWED"), 0o600)))
	if group != c.file.Path { // its user may have frozen it
		err = errors.Join(err, absent(os.WriteFile(filepath.Join(c.file.Path, freezeFile), []byte("THAWED"), 0o600)))
	}
	return err
}

// absent is nil where the error says that the group is not there: it has no members then.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// removeGroup removes a group and those below it. The kernel may take a moment to see that
// the last process is gone.
func removeGroup(ctx context.Context, dir string) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		all, err := groups(dir)
		for _, g := range all {
			err = errors.Join(err, absent(unix.Rmdir(g)))
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
