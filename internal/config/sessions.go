package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
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
	// EndLimit is the most that grace period, save and last snapshot may take together when a
	// session ends; after it its machines are released, whatever is unfinished. 0 is the grace, 10
	// minutes for the snapshot, and 3 more.
	EndLimit time.Duration `yaml:"end_limit"`
	// Work is the object store below which work folders are saved, such as s3://bucket/work;
	// empty is the data directory for local sessions, and the backbone's bucket for others.
	Work string `yaml:"work"`
	// Control is the object store by which the keeper and the machines speak with each other;
	// empty is the data directory for local sessions, and the backbone's bucket for others.
	Control string `yaml:"control"`
	// Regions are where machines may be launched, the preferred first; empty is aws.regions.
	// One without a backbone is left out.
	Regions []string `yaml:"regions"`
	// Image is the machine image: an id (ami-0abc) or the public parameter that holds it; empty is
	// AWS's own image for the machine.
	Image string `yaml:"image"`
	// Agent is the curfew that machines run; empty is the one of the image.
	Agent SessionAgent `yaml:"agent"`
	// Owner is the value of the tag curfew:owner by which IAM says who may connect; empty is
	// the id of whose credentials start the session (aws:userid).
	Owner string `yaml:"owner"`
}

// SessionAgent is the program that machines of sessions download before they run it.
type SessionAgent struct {
	// URL is where it is: s3://bucket/key or https://host/path.
	URL string `yaml:"url"`
	// SHA256 is its SHA-256 in hexadecimal; a machine runs nothing else.
	SHA256 string `yaml:"sha256"`
}

// agentURL matches the location of a program, without spaces or quotes.
var agentURL = lazyregexp.New(`^(s3://[a-z0-9][a-z0-9.-]*/|https://[A-Za-z0-9.-]+(:[0-9]+)?/)[A-Za-z0-9._~/=+%-]+$`)

// sha256Text matches a SHA-256.
var sha256Text = lazyregexp.New(`^[0-9a-f]{64}$`)

func (a SessionAgent) check() (key string, err error) {
	switch {
	case a == SessionAgent{}:
		return "", nil
	case !agentURL.MatchString(a.URL):
		return "sessions.agent.url", fmt.Errorf(
			"%q: it is an address such as s3://bucket/curfew or https://host/curfew",
			a.URL)
	case !sha256Text.MatchString(a.SHA256):
		return "sessions.agent.sha256", fmt.Errorf(
			"%q: it is the SHA-256 of the program, 64 hexadecimal digits in lower case (sha256sum prints it)",
			a.SHA256)
	}
	return "", nil
}

// sessionImage matches an image id or the name of a parameter.
var sessionImage = lazyregexp.New(`^(ami-[0-9a-f]+|/[A-Za-z0-9_./-]+)$`)

// check returns an error for an invalid section, and its key.
func (s Sessions) check() (key string, err error) {
	switch {
	case s.Cloud != "" && s.Cloud != "local" && s.Cloud != "aws":
		return "sessions.cloud", fmt.Errorf("%q: it is local or aws", s.Cloud)
	case s.Lease < 0 || s.MaxLease < 0 || s.Idle < 0 || s.Grace < 0 || s.EndLimit < 0:
		return "sessions", errors.New("durations are not negative")
	case s.EndLimit > 0 && s.EndLimit < time.Minute:
		return "sessions.end_limit", fmt.Errorf("%s: a session needs a minute to end", s.EndLimit)
	case s.MaxLease > 0 && s.Lease > s.MaxLease:
		return "sessions.lease", fmt.Errorf("%s is longer than max_lease, %s", s.Lease, s.MaxLease)
	}
	for key, at := range map[string]string{"sessions.work": s.Work, "sessions.control": s.Control} {
		if at != "" && !strings.HasPrefix(at, "s3://") && !strings.HasPrefix(at, "file:///") {
			return key, fmt.Errorf("%q: it is an address such as s3://bucket/prefix or file:///folder", at)
		}
	}
	if s.Image != "" && !sessionImage.MatchString(s.Image) {
		return "sessions.image", fmt.Errorf(
			"%q: it is an image such as ami-0abc or a parameter such as /aws/service/…",
			s.Image)
	}
	if slices.Contains(s.Regions, "all") {
		return "sessions.regions", errors.New("all is no region here: name those that have a backbone")
	}
	return s.Agent.check()
}
