package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// TrustError is a file or directory that another user could have written. Who writes
// the configuration decides which policies run and where secrets are sent; who writes
// the state decides what has been approved and spent.
type TrustError struct {
	Path string
	// Why is the rest of the sentence: "belongs to user 1001".
	Why string
}

// Error returns the path and the reason.
func (e *TrustError) Error() string { return e.Path + " " + e.Why }

// Trust refuses, as a *TrustError, what belongs neither to the user nor to root, and
// what others can write. A path that does not exist is no error.
func Trust(path string) error {
	// A link is followed; who made it chose where it leads.
	for _, stat := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
		st, err := stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look at %s: %w", path, err)
		}
		if err := trust(path, st, os.Getuid()); err != nil {
			return err
		}
	}
	return nil
}

func trust(path string, st fs.FileInfo, user int) error {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != user && sys.Uid != 0 {
		return &TrustError{Path: path, Why: fmt.Sprintf("belongs to user %d, neither to you nor to root", sys.Uid)}
	}
	if mode := st.Mode(); mode&fs.ModeSymlink == 0 && mode.Perm()&0o022 != 0 {
		return &TrustError{Path: path, Why: fmt.Sprintf("can be written by others (mode %04o)", mode.Perm())}
	}
	return nil
}

// TrustState refuses a data directory of which others can write anything that binds:
// the directory, the database, kept findings, updated prices and replayed traces.
func TrustState(dir string) error {
	if dir == "" {
		return nil
	}
	paths := []string{dir}
	for _, pattern := range []string{"*.db", "*.db-*", "*.db.*", "*.csv", "proofs", "proofs/*", "traces", "traces/*"} {
		found, err := filepath.Glob(filepath.Join(escaped(dir), pattern))
		if err != nil {
			return fmt.Errorf("list %s: %w", dir, err)
		}
		paths = append(paths, found...)
	}
	for _, p := range paths {
		if err := Trust(p); err != nil {
			return err
		}
	}
	return nil
}

// escaped returns a path that [filepath.Glob] takes as it is written.
func escaped(path string) string {
	out := make([]byte, 0, len(path))
	for i := range len(path) {
		switch path[i] {
		case '*', '?', '[', '\\':
			out = append(out, '\\')
		}
		out = append(out, path[i])
	}
	return string(out)
}

// TrustPolicy refuses a policy file that a found configuration names where another user
// could have written it. What the user named, directly or in a configuration that the
// user named, is the user's choice.
func (c Config) TrustPolicy(path string) error {
	if !c.found {
		return nil
	}
	return Trust(path)
}

// resolve makes the paths that a file gives relative to its own directory absolute, or
// relative to where the file's path is.
func (c *Config) resolve(file string) {
	dir := filepath.Dir(file)
	at := func(p *string) {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
	at(&c.DataDir)
	at(&c.ServerCAFile)
	at(&c.Spot.Runs)
	at(&c.Audit.Key)
	for i := range c.Metrics.Sources {
		s := &c.Metrics.Sources[i]
		for _, p := range []*string{&s.CAFile, &s.CertFile, &s.KeyFile} {
			at(p)
		}
	}
	for i := range c.Policies {
		at(&c.Policies[i])
	}
	n := &c.Notify
	for _, p := range []*string{&n.Slack.TokenFile, &n.Mail.PasswordFile, &n.Webhook.URLFile, &n.Webhook.SecretFile} {
		at(p)
	}
	for i := range c.Units {
		if f := &c.Units[i].Counts.File; *f != GPUHours {
			at(f)
		}
	}
}
