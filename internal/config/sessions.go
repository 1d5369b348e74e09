package config

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Sessions is how sessions are started where a command and a file say nothing.
type Sessions struct {
	// Cloud is where sessions run: local or aws.
	Cloud string `yaml:"cloud"`
	// Lease is how long a session may run.
	Lease time.Duration `yaml:"lease"`
	// MaxLease is the longest that a session may run, extensions included.
	MaxLease time.Duration `yaml:"max_lease"`
	// Idle is the time at rest after which a session ends.
	Idle time.Duration `yaml:"idle"`
	// Grace is how long a session goes on after its warning.
	Grace time.Duration `yaml:"grace"`
	// Work is the object store below which work folders are saved, such as s3://bucket/work;
	// empty is the data directory, for local sessions.
	Work string `yaml:"work"`
	// Control is the object store by which the keeper and the machines speak with each other;
	// empty is the data directory, for local sessions.
	Control string `yaml:"control"`
}

// check says what is wrong with the section, and where.
func (s Sessions) check() (key string, err error) {
	switch {
	case s.Cloud != "" && s.Cloud != "local" && s.Cloud != "aws":
		return "sessions.cloud", fmt.Errorf("%q: it is local or aws", s.Cloud)
	case s.Lease < 0 || s.MaxLease < 0 || s.Idle < 0 || s.Grace < 0:
		return "sessions", errors.New("durations are not negative")
	case s.MaxLease > 0 && s.Lease > s.MaxLease:
		return "sessions.lease", fmt.Errorf("%s is longer than max_lease, %s", s.Lease, s.MaxLease)
	}
	for key, at := range map[string]string{"sessions.work": s.Work, "sessions.control": s.Control} {
		if at != "" && !strings.HasPrefix(at, "s3://") && !strings.HasPrefix(at, "file:///") {
			return key, fmt.Errorf("%q: it is an address such as s3://bucket/prefix or file:///folder", at)
		}
	}
	return "", nil
}
