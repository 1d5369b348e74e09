package config

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/curfew-dev/curfew/internal/trust"
)

// TrustState refuses a data directory of which others can write or replace anything that
// binds: the directory and those above it, the database, kept findings, updated prices and
// replayed traces. Who writes the state decides what has been approved and spent. The mode of
// volume, a directory above, is not checked.
func TrustState(dir, volume string) error {
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
	return trust.Paths(paths, filepath.Clean(volume))
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
// could have written or replaced it. What the user named, directly or in a configuration that the
// user named, is the user's choice.
func (c Config) TrustPolicy(path string) error {
	if !c.found {
		return nil
	}
	return trust.Path(path)
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
	at(&c.DataVolume)
	at(&c.ServerCAFile)
	at(&c.Spot.Runs)
	at(&c.Audit.Key)
	if !strings.Contains(c.State.Witness, "://") {
		at(&c.State.Witness)
	}
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
