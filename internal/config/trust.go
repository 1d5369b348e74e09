package config

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/curfew-dev/curfew/internal/trust"
)

// TrustState refuses a data directory in which others can write or replace trusted files: the
// directory and its parents, the database, stored findings, updated prices and replayed traces.
// Whoever writes the state decides what has been approved and spent. The mode of volume, a parent
// directory, is not checked.
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

// escaped returns a path in which [filepath.Glob] matches every character literally.
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

// TrustPolicy refuses a policy file in a found configuration if another user could have written or
// replaced it. Files that the user named, directly or in a named configuration, are trusted.
func (c Config) TrustPolicy(path string) error {
	if !c.found {
		return nil
	}
	return trust.Path(path)
}

// resolve makes the paths in a file relative to the file's directory.
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
