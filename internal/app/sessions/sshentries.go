package sessions

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
	"syscall"
	"time"
	"unicode"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// SSHEntry is the SSH configuration entry of a machine. Its files share the alias: .conf is the
// entry, .known the host key, .agent the agent socket while a connection is being made, .lock its
// lock.
type SSHEntry struct {
	Dir, Alias string
}

// SSHDir returns the folder of the person's SSH files.
func SSHDir(a *Sessions) (string, error) {
	home, ok := a.Request.Lookup("HOME")
	if !ok || !filepath.IsAbs(home) {
		return "", &runtime.Error{
			Class: runtime.Usage, Code: "no_home", Err: errors.New("there is no home folder for an entry in ~/.ssh"),
			Hint: "set HOME",
		}
	}
	return filepath.Join(home, ".ssh"), nil
}

// NewSSHEntry returns the entry of a machine.
func NewSSHEntry(a *Sessions, name string, node int) (*SSHEntry, error) {
	if !spec.ValidName(name) { // the name becomes part of SSH's configuration
		return nil, runtime.Invalid("%q cannot be a host of SSH's configuration", name)
	}
	dir, err := SSHDir(a)
	if err != nil {
		return nil, err
	}
	alias := "curfew-" + name
	if node > 0 {
		alias += "-" + strconv.Itoa(node)
	}
	e := &SSHEntry{filepath.Join(dir, "curfew"), alias}
	const longest = 100 // socket paths are limited to about 100 bytes on all systems
	if n := len(e.File(".agent")); n > longest {
		return nil, &runtime.Error{
			Class: runtime.Usage, Code: "usage",
			Err:  fmt.Errorf("%s has %d bytes, and the path of a socket has at most %d", e.File(".agent"), n, longest),
			Hint: "give the session a shorter name",
		}
	}
	return e, nil
}

// File returns the path of one of the entry's files.
func (e *SSHEntry) File(suffix string) string { return filepath.Join(e.Dir, e.Alias+suffix) }

// CreateDir creates the folder of entries. It refuses a folder that another user owns or can write.
func (e *SSHEntry) CreateDir() error {
	for _, dir := range []string{filepath.Dir(e.Dir), e.Dir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		i, err := os.Stat(dir)
		if err != nil {
			return err
		}
		s, ok := i.Sys().(*syscall.Stat_t)
		if ok && int(s.Uid) != os.Geteuid() || i.Mode().Perm()&0o022 != 0 {
			return &runtime.Error{
				Class: runtime.Usage, Code: "shared_folder",
				Err:  fmt.Errorf("%s is another user's, or others can write it", dir),
				Hint: "give it to yourself alone: chmod 700 " + plain.Shell(dir),
			}
		}
	}
	return os.Chmod(e.Dir, 0o700)
}

// Lock waits until no other connection of the entry is being made.
func (e *SSHEntry) Lock(ctx context.Context) (*os.File, error) {
	if err := e.CreateDir(); err != nil {
		return nil, err
	}
	f, err := lockFile(ctx, e.File(".lock"))
	if err != nil {
		return nil, fmt.Errorf("wait for another connection of %s: %w", e.Alias, err)
	}
	e.Clean() // left by a killed process
	return f, nil
}

// Clean removes the files that exist only while a connection is made.
func (e *SSHEntry) Clean() {
	for _, suffix := range []string{".agent", ".known"} {
		_ = os.Remove(e.File(suffix)) // it may not exist
	}
}

// sshUserPattern matches user names that are safe in SSH's configuration; the machine supplies
// them.
var sshUserPattern = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`)

// Text returns the entry for SSH. It refuses values that would start another line or word.
func (e *SSHEntry) Text(head, user string, proxy []string) (string, error) {
	if !sshUserPattern.MatchString(user) {
		return "", fmt.Errorf("the machine says that its user is %q, which is no user's name", user)
	}
	for _, w := range append([]string{head, e.Dir}, proxy...) {
		if strings.ContainsFunc(w, unicode.IsControl) {
			return "", fmt.Errorf("%q has control characters, and SSH's configuration takes none", w)
		}
	}
	if strings.Contains(e.Dir, `"`) {
		return "", fmt.Errorf("%s has a quote in its name, and SSH's configuration takes none", e.Dir)
	}
	words := make([]string, len(proxy))
	for i, w := range proxy {
		words[i] = strings.ReplaceAll(plain.Shell(w), "%", "%%")
	}
	quoted := func(path string) string { return `"` + strings.ReplaceAll(path, "%", "%%") + `"` }
	return head + `
# Written by ` + "`curfew connect`" + `, and removed when the session ends.
Host ` + e.Alias + `
  User ` + user + `
  HostKeyAlias ` + e.Alias + `
  UserKnownHostsFile ` + quoted(e.File(".known")) + `
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  UpdateHostKeys no
  IdentityAgent ` + quoted(e.File(".agent")) + `
  IdentityFile none
  IdentitiesOnly no
  PreferredAuthentications publickey
  ForwardAgent no
  ConnectTimeout 120
  ServerAliveInterval 30
  ServerAliveCountMax 4
  ProxyCommand ` + strings.Join(words, " ") + "\n", nil
}

// FirstLine returns the text before the first line break.
func FirstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// RemoveStaleEntries removes the entries of ended sessions of this data directory.
func RemoveStaleEntries(ctx context.Context, a *Sessions) error {
	dir, err := SSHDir(a)
	if err != nil {
		return nil //nolint:nilerr // without a home there are no entries
	}
	files, err := filepath.Glob(filepath.Join(dir, "curfew", "*.conf"))
	if err != nil || len(files) == 0 {
		return err
	}
	data, err := filepath.Abs(a.Request.Path(a.Config.DataDir))
	if err != nil {
		return err
	}
	open, err := a.store.Sessions().Sessions(ctx, session.Query{OpenOnly: true})
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		id, is := strings.CutPrefix(FirstLine(string(text)), "# curfew session ")
		id, is2 := strings.CutSuffix(id, " of "+data)
		if !is || !is2 || slices.ContainsFunc(open, func(s session.Session) bool {
			return s.ID == id && s.State != session.Ending
		}) {
			continue
		}
		e := &SSHEntry{filepath.Dir(file), strings.TrimSuffix(filepath.Base(file), ".conf")}
		e.Clean()
		for _, suffix := range []string{".lock", ".conf"} {
			if err := os.Remove(e.File(suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// lockFile locks a file, waiting until the context ends.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
