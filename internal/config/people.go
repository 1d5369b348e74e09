package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/document"
)

// Identities are those of one person.
type Identities struct {
	// AWS are ARNs of users and of sessions of roles, as GetCallerIdentity gives them.
	AWS []string `yaml:"aws"`
	// GitHub are logins at GitHub.
	GitHub []string `yaml:"github"`
}

// Approvals is which identities open fixes.
type Approvals struct {
	// Accept are kinds of proof that approve fixes, next to those that a provider vouches
	// for.
	Accept []string `yaml:"accept" enum:"self-declared"`
	// STSEndpoint is a sandbox on this machine, such as http://127.0.0.1:5000, in place of
	// the pinned host of STS.
	STSEndpoint string `yaml:"sts_endpoint"`
	// GitHubAPI is the REST API whose reviews approve fixes, for GitHub Enterprise Server
	// https://HOST/api/v3; empty is github.com's. GITHUB_API_URL must name the same.
	GitHubAPI string `yaml:"github_api" json:",omitempty"`
	// Notify are the recipients of every request, by notify.names; empty is the approvers
	// that notify.names knows.
	Notify []string `yaml:"notify"`
}

// Accepts says whether a kind of proof opens fixes.
func (a Approvals) Accepts(kind approval.ProofKind) bool {
	return approval.Proof{Kind: kind}.Verified() || slices.Contains(a.Accept, string(approval.SelfDeclared))
}

// Logins are the names of logins at GitHub: those of github.identities and of people.
func (c *Config) Logins() map[string]string {
	all := maps.Clone(c.GitHub.Identities)
	if all == nil {
		all = map[string]string{}
	}
	for name, has := range c.People {
		for _, login := range has.GitHub {
			all[login] = name
		}
	}
	return all
}

// AWSName is the person whose identity an ARN is.
func (c *Config) AWSName(arn string) (name string, ok bool) {
	for name, has := range c.People {
		if slices.Contains(has.AWS, arn) {
			return name, true
		}
	}
	return "", false
}

// checkPeople refuses names that look alike, identities of two people, and an STS
// endpoint that is no sandbox's.
func (c *Config) checkPeople(f *document.File, root ast.Node) error {
	for _, section := range []struct {
		key   string
		names []string
	}{{"approvers", slices.Sorted(maps.Keys(c.Approvers))}, {"people", slices.Sorted(maps.Keys(c.People))},
		{"people", slices.Sorted(maps.Keys(both(c.Approvers, c.People)))}} {
		if err := approval.LookAlikes(section.names); err != nil {
			return placed(f, root, section.key, err)
		}
	}
	owner := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.People)) {
		has := c.People[name]
		for _, id := range slices.Concat(has.AWS, has.GitHub) {
			if other, twice := owner[strings.ToLower(id)]; twice {
				return placed(f, root, "people", fmt.Errorf("%s is of %s and of %s", id, other, name))
			}
			owner[strings.ToLower(id)] = name
		}
		for _, arn := range has.AWS {
			if !strings.HasPrefix(arn, "arn:") || strings.ContainsAny(arn, "*? ") {
				return placed(f, root, "people", fmt.Errorf("%s: %q is no ARN such as arn:aws:iam::123456789012:user/ana", name, arn))
			}
		}
	}
	return c.Approvals.check(f, root)
}

func both[A, B any](a map[string]A, b map[string]B) map[string]bool {
	out := map[string]bool{}
	for name := range a {
		out[name] = true
	}
	for name := range b {
		out[name] = true
	}
	return out
}

func (a Approvals) check(f *document.File, root ast.Node) error {
	for _, kind := range a.Accept {
		if kind != string(approval.SelfDeclared) {
			return placed(f, root, "approvals.accept", fmt.Errorf("%q: it is %s; what a provider vouches for always counts", kind, approval.SelfDeclared))
		}
	}
	if a.GitHubAPI != "" {
		u, err := url.Parse(a.GitHubAPI)
		if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Scheme != "https" && !onThisMachine(u) {
			return placed(f, root, "approvals.github_api", errors.New("it is the base URL of a REST API, such as https://github.example.com/api/v3"))
		}
	}
	if a.STSEndpoint == "" {
		return nil
	}
	u, err := url.Parse(a.STSEndpoint)
	if err != nil || u.Host == "" || u.Path != "" && u.Path != "/" || u.User != nil || u.RawQuery != "" {
		return placed(f, root, "approvals.sts_endpoint", errors.New("it is the base URL of a sandbox on this machine, such as http://127.0.0.1:5000"))
	}
	if !onThisMachine(u) {
		return placed(f, root, "approvals.sts_endpoint", errors.New("only a sandbox on this machine may stand in for STS: the hosts of AWS are pinned"))
	}
	return nil
}

// onThisMachine says whether a URL's host is this machine.
func onThisMachine(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
