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
	"github.com/curfew-dev/curfew/internal/notify"
)

// Identities are those of one person.
type Identities struct {
	// AWS are ARNs of users and of sessions of roles, as GetCallerIdentity gives them. A
	// session named * is every session of a role that is this person's alone.
	AWS []string `yaml:"aws"`
	// GitHub are logins at GitHub.
	GitHub []string `yaml:"github"`
	// Mail are mail addresses: those that the sign-in provider has verified, and those in
	// owner tags. The first is where the person is reached.
	Mail []string `yaml:"mail" json:",omitempty"`
	// OIDC are subjects of the sign-in provider (the claim sub).
	OIDC []string `yaml:"oidc" json:",omitempty"`
	// Slack are member ids such as U012AB3CD; the first is where the person is reached.
	Slack []string `yaml:"slack" json:",omitempty"`
	// Linux are users of the operating system.
	Linux []string `yaml:"linux" json:",omitempty"`
	// Tags are further values of owner tags that mean this person.
	Tags []string `yaml:"tags" json:",omitempty"`
	// Roles are viewer, user, approver, operator or admin, each in all teams or, as
	// approver@vision, in one.
	Roles []string `yaml:"roles" pattern:"^(viewer|user|approver|operator|admin)(@.+)?$" json:",omitempty"`
}

// names returns the names under which curfew may know a person without a proof.
func (i Identities) names() []string { return slices.Concat(i.Linux, i.Tags, i.Mail) }

// all returns all identities, each with a prefix that separates those of different providers.
func (i Identities) all() map[string]string {
	out := map[string]string{}
	for _, of := range []struct {
		provider string
		ids      []string
	}{
		{"", i.AWS}, {"", i.GitHub}, {"mail ", i.Mail}, {"oidc ", i.OIDC}, {"slack ", i.Slack}, {"linux ", i.Linux},
		{"tag ", i.Tags},
	} {
		for _, id := range of.ids {
			key := of.provider + id
			if of.provider != "oidc " { // a subject is compared byte by byte
				key = strings.ToLower(key)
			}
			out[key] = id
		}
	}
	return out
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

// Accepts reports whether a kind of proof is sufficient for fixes.
func (a Approvals) Accepts(kind approval.ProofKind) bool {
	return approval.Proof{Kind: kind}.Verified() || slices.Contains(a.Accept, string(approval.SelfDeclared))
}

// Logins maps logins at GitHub to names: those of github.identities and of people.
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

// AWSName returns the person with an ARN as their identity.
func (c *Config) AWSName(arn string) (name string, ok bool) {
	role, session := splitSession(arn)
	for name, has := range c.People {
		if slices.Contains(has.AWS, arn) || session != "" && slices.Contains(has.AWS, role+anySession) {
			return name, true
		}
	}
	return "", false
}

// anySession is the session name in a pattern for all sessions of a role.
const anySession = "*"

// splitSession splits the ARN of a role session into role and session name.
func splitSession(arn string) (role, session string) {
	if i := strings.LastIndex(arn, "/"); i > 0 && strings.Contains(arn, ":assumed-role/") {
		return arn[:i+1], arn[i+1:]
	}
	return arn, ""
}

// OIDCName returns the person with a subject of the sign-in provider, or with a mail address that
// the provider has verified; empty if there is none.
func (c *Config) OIDCName(subject, verifiedMail string) (name string, ok bool) {
	for name, has := range c.People {
		mail := func(m string) bool { return verifiedMail != "" && strings.EqualFold(m, verifiedMail) }
		if slices.Contains(has.OIDC, subject) || slices.ContainsFunc(has.Mail, mail) {
			return name, true
		}
	}
	return "", false
}

// Named returns the person for an unproven name: a user of the operating system, a mail address, or
// the value of an owner tag. If there is none, it returns the name.
func (c *Config) Named(name string) (person string, ok bool) {
	for person := range c.People {
		if strings.EqualFold(person, name) {
			return person, true
		}
	}
	for person, has := range c.People {
		if slices.ContainsFunc(has.names(), func(n string) bool { return strings.EqualFold(n, name) }) {
			return person, true
		}
	}
	return name, false
}

// Known returns a person under the name that the people section gives their identity.
func (c *Config) Known(p approval.Person) approval.Person {
	var name string
	var ok bool
	switch p.Proof.Kind {
	case approval.AWSCaller:
		name, ok = c.AWSName(p.Proof.Subject)
	case approval.OIDC:
		name, ok = c.OIDCName(p.Proof.Subject, "")
	case approval.GitHubReview:
		for login, of := range c.Logins() {
			if strings.EqualFold(login, p.Proof.Subject) {
				name, ok = of, true
			}
		}
	}
	if !ok {
		name, ok = c.Named(p.Name)
	}
	if ok {
		p.Name = name
	}
	return p
}

// Holders returns the roles of people by name, from approvers and people.
func (c *Config) Holders() map[string][]string {
	all := map[string][]string{}
	for name, roles := range c.Approvers {
		all[name] = slices.Clone(roles)
	}
	for name, has := range c.People {
		if len(has.Roles) > 0 {
			all[name] = append(all[name], has.Roles...)
		}
	}
	return all
}

// Reached returns the notify section with the addresses in people, under every name that a tag may
// use for them; the section's own addresses take precedence.
func (c *Config) Reached() notify.Config {
	n := c.Notify
	slack, mail := n.Slack.Used(), n.Mail.Used()
	if slack {
		n.Slack.Users = copied(n.Slack.Users)
	}
	if mail {
		n.Mail.Users = copied(n.Mail.Users)
	}
	n.Names = copied(n.Names)
	for _, person := range slices.Sorted(maps.Keys(c.People)) {
		has := c.People[person]
		var addresses []string
		for _, by := range []struct {
			used    bool
			channel string
			ids     []string
			users   map[string]string
		}{{slack, "slack:", has.Slack, n.Slack.Users}, {mail, "mail:", has.Mail, n.Mail.Users}} {
			if !by.used || len(by.ids) == 0 {
				continue
			}
			addresses = append(addresses, by.channel+by.ids[0])
			for _, name := range append(has.names(), person) {
				if _, own := by.users[name]; !own {
					by.users[name] = by.ids[0]
				}
			}
		}
		if _, own := n.Names[person]; !own && len(addresses) > 0 {
			n.Names[person] = addresses
		}
	}
	return n
}

// copied returns a writable copy of a map.
func copied[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return maps.Clone(m)
}

// checkPeople refuses names that look alike, identities shared by two people, and an STS endpoint
// that is not a sandbox.
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
	owner, unproven, alone := map[string]string{}, map[string]string{}, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.People)) {
		has := c.People[name]
		of := func(key string, err error) error { return placed(f, root, "people."+name+"."+key, err) }
		ids := has.all()
		for _, key := range slices.Sorted(maps.Keys(ids)) {
			if other, twice := owner[key]; twice {
				return placed(f, root, "people", fmt.Errorf("%s is of %s and of %s", ids[key], other, name))
			}
			owner[key] = name
		}
		for _, n := range append(has.names(), name) {
			n = strings.ToLower(n)
			if other, twice := unproven[n]; twice && other != name {
				return placed(f, root, "people", fmt.Errorf("%s may mean %s and %s", n, other, name))
			}
			unproven[n] = name
		}
		for i, arn := range has.AWS {
			if why := notARN(arn); why != "" {
				return of(fmt.Sprintf("aws[%d]", i), fmt.Errorf("%s: %q %s", name, arn, why))
			}
			if role, session := splitSession(arn); session == anySession {
				alone[role] = name
			}
		}
		for i, role := range has.Roles {
			if what, team := approval.SplitRole(role); !slices.Contains(approval.ServiceRoles, what) || role != what &&
				strings.TrimSpace(team) == "" {
				return of(fmt.Sprintf("roles[%d]", i),
					fmt.Errorf("%s: %q is none of %s, alone or with a team such as approver@vision%s",
						name, role, document.OneOf(approval.ServiceRoles),
						document.DidYouMean(what, approval.ServiceRoles)))
			}
		}
		if err := notify.CheckPerson(has.Slack, has.Mail); err != nil {
			return of("slack", fmt.Errorf("%s: %w", name, err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.People)) {
		for i, arn := range c.People[name].AWS {
			if role, _ := splitSession(arn); alone[role] != "" && alone[role] != name {
				return placed(f, root, fmt.Sprintf("people.%s.aws[%d]", name, i),
					fmt.Errorf("%s: %s* makes every session of that role %s, so no session of it is another person's",
						name, role,
						alone[role]))
			}
		}
	}
	return c.Approvals.check(f, root)
}

// notARN returns the reason why a text is not a valid ARN for people.aws; empty if it is one.
// Whoever assumes a role chooses the name of the session, so only a whole name may be a pattern.
func notARN(arn string) string {
	if _, session := splitSession(arn); session == anySession && strings.Count(arn, anySession) == 1 &&
		!strings.ContainsAny(arn, "? ") &&
		strings.HasPrefix(arn, "arn:") && strings.Count(arn, "/") >= 2 {
		return ""
	}
	if !strings.HasPrefix(arn, "arn:") || strings.ContainsAny(arn, "*? ") {
		return "is no ARN such as arn:aws:iam::123456789012:user/ana; only the whole name of a session can be *: " +
			"arn:aws:sts::123456789012:assumed-role/ana-admin/*"
	}
	return ""
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
			return placed(f, root, "approvals.accept",
				fmt.Errorf("%q: it is %s; what a provider vouches for always counts",
					kind, approval.SelfDeclared))
		}
	}
	if a.GitHubAPI != "" {
		u, err := url.Parse(a.GitHubAPI)
		if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" ||
			u.Scheme != "https" && !OnThisMachine(u) {
			return placed(f, root, "approvals.github_api",
				errors.New("it is the base URL of a REST API, such as https://github.example.com/api/v3"))
		}
	}
	if a.STSEndpoint == "" {
		return nil
	}
	u, err := url.Parse(a.STSEndpoint)
	if err != nil || u.Host == "" || u.Path != "" && u.Path != "/" || u.User != nil || u.RawQuery != "" {
		return placed(f, root, "approvals.sts_endpoint",
			errors.New("it is the base URL of a sandbox on this machine, such as http://127.0.0.1:5000"))
	}
	if !OnThisMachine(u) {
		return placed(f, root, "approvals.sts_endpoint",
			errors.New("only a sandbox on this machine may stand in for STS: the hosts of AWS are pinned"))
	}
	return nil
}

// OnThisMachine reports whether a URL's host is this machine.
func OnThisMachine(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
