package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/money"
)

// Shared are the sections of the configuration that decide what each owner may spend and
// who approves it. An admin sets them in the store; a local file may only be stricter.
type Shared struct {
	Approvers map[string][]string   `yaml:"approvers"`
	People    map[string]Identities `yaml:"people"`
	Approvals Approvals             `yaml:"approvals"`
	GitHub    GitHub                `yaml:"github"`
	Budgets   budget.Budgets        `yaml:"budgets"`
	Quotas    budget.Quotas         `yaml:"quotas"`
	Gate      Gate                  `yaml:"gate"`
}

// AdminRole is the role that may set shared settings.
const AdminRole = "admin"

// DecodeShared parses shared settings strictly: any other key is an error.
func DecodeShared(name string, src []byte) (Shared, error) {
	c := Default()
	s := c.shared()
	f, err := document.Parse(name, src)
	if err != nil {
		return s, err
	}
	root, err := f.Body()
	if err != nil {
		return s, err
	}
	if err := f.Decode(root, &s, yaml.CustomUnmarshaler(func(d *time.Duration, b []byte) (err error) {
		var text string
		if err = yaml.Unmarshal(b, &text); err == nil {
			*d, err = ParseDuration(text)
		}
		return err
	})); err != nil {
		return s, err
	}
	c.take(s)
	if s.Gate.Expiry <= 0 {
		return s, placed(f, root, "gate.expiry", fmt.Errorf("must be more than zero"))
	}
	if err := c.checkBooks(f, root); err != nil {
		return s, err
	}
	return s, c.checkPeople(f, root)
}

func (c *Config) shared() Shared {
	return Shared{c.Approvers, c.People, c.Approvals, c.GitHub, c.Budgets, c.Quotas, c.Gate}
}

func (c *Config) take(s Shared) {
	c.Approvers, c.People, c.Approvals, c.GitHub, c.Budgets, c.Quotas, c.Gate = s.Approvers, s.People, s.Approvals,
		s.GitHub, s.Budgets, s.Quotas, s.Gate
}

// SharedHash returns the first 16 hexadecimal digits of the SHA-256 of the shared sections.
func (c *Config) SharedHash() string {
	text, err := json.Marshal(c.shared())
	if err != nil {
		return "" // texts, numbers and times can always be encoded
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Under returns the configuration under shared settings: shared values, or stricter local ones.
// Weaker local values are an error that names each key.
func (c Config) Under(s Shared) (Config, error) {
	usual := Default()
	own, standard := c.shared(), usual.shared()
	var weaker []string
	refuse := func(format string, args ...any) { weaker = append(weaker, fmt.Sprintf(format, args...)) }
	out := s
	if own.Gate.AskOver != standard.Gate.AskOver {
		mine, _ := own.Gate.Limit()
		theirs, _ := s.Gate.Limit()
		if mine > theirs {
			refuse("gate.ask_over is %s here and %s there", mine.Exact(), theirs.Exact())
		}
		out.Gate.AskOver = own.Gate.AskOver
	}
	if own.Gate.Expiry != standard.Gate.Expiry {
		if own.Gate.Expiry > s.Gate.Expiry {
			refuse("gate.expiry is %s here and %s there", own.Gate.Expiry, s.Gate.Expiry)
		}
		out.Gate.Expiry = own.Gate.Expiry
	}
	if len(own.Gate.Roles) > 0 {
		theirs := s.Gate.Roles
		if len(theirs) == 0 {
			theirs = []string{approval.DefaultRole}
		}
		if more := without(own.Gate.Roles, theirs); len(more) > 0 {
			refuse("gate.roles has %s, which there may not approve", strings.Join(more, ", "))
		}
		out.Gate.Roles = own.Gate.Roles
	}
	if len(own.Approvers) > 0 {
		for _, name := range slices.Sorted(maps.Keys(own.Approvers)) {
			if more := without(own.Approvers[name], s.Approvers[name]); len(more) > 0 {
				refuse("approvers gives %s the roles %s", name, strings.Join(more, ", "))
			}
		}
		out.Approvers = own.Approvers
	}
	for _, name := range slices.Sorted(maps.Keys(own.People)) {
		mine, theirs := own.People[name], s.People[name]
		if more := slices.Concat(without(mine.AWS, theirs.AWS), without(mine.GitHub, theirs.GitHub),
			without(mine.Mail, theirs.Mail), without(mine.OIDC, theirs.OIDC),
			without(mine.Slack, theirs.Slack), without(mine.Linux, theirs.Linux),
			without(mine.Tags, theirs.Tags)); len(more) > 0 {
			refuse("people gives %s the identities %s", name, strings.Join(more, ", "))
		}
		if more := without(mine.Roles, theirs.Roles); len(more) > 0 {
			refuse("people gives %s the roles %s", name, strings.Join(more, ", "))
		}
	}
	for _, login := range slices.Sorted(maps.Keys(own.GitHub.Identities)) {
		if s.GitHub.Identities[login] != own.GitHub.Identities[login] {
			refuse("github.identities names %s", login)
		}
	}
	if more := without(own.Approvals.Accept, s.Approvals.Accept); len(more) > 0 {
		refuse("approvals.accept has %s", strings.Join(more, ", "))
	}
	if own.Approvals.STSEndpoint != "" && own.Approvals.STSEndpoint != s.Approvals.STSEndpoint {
		refuse("approvals.sts_endpoint is set")
	}
	if own.Approvals.GitHubAPI != "" && own.Approvals.GitHubAPI != s.Approvals.GitHubAPI {
		refuse("approvals.github_api is set")
	}
	if len(own.Approvals.Notify) > 0 {
		out.Approvals.Notify = own.Approvals.Notify
	}
	out.Budgets = strictest(own.Budgets, s.Budgets, refuse)
	out.Quotas = append(slices.Clone(s.Quotas), own.Quotas...)
	for i, q := range out.Quotas { // both quotas with the same id apply
		if i >= len(s.Quotas) {
			out.Quotas[i].ID = q.ID + " (local)"
		}
	}
	if len(weaker) > 0 {
		return c, fmt.Errorf("the local configuration is weaker than the shared settings: %s",
			strings.Join(weaker, "; "))
	}
	c.take(out)
	return c, nil
}

// strictest returns the shared budgets, each with the lower limits of a local one with its id. A
// local budget without a shared one is weaker, because it could cover costs that the shared ones do
// not.
func strictest(own, theirs budget.Budgets, refuse func(string, ...any)) budget.Budgets {
	out := slices.Clone(theirs)
	for _, b := range own {
		i := slices.IndexFunc(out, func(o budget.Budget) bool { return o.ID == b.ID })
		if i < 0 {
			refuse("budget %s is not there", b.ID)
			continue
		}
		o, t := out[i], b
		mine, shared := whole(b.Thresholds), whole(o.Thresholds)
		for _, limit := range []struct {
			what         string
			mine, theirs money.Amount
		}{
			{"amount", b.Amount, o.Amount}, {"per_hour", b.PerHour, o.PerHour},
			{"thresholds.gate", money.Amount(mine.Gate), money.Amount(shared.Gate)},
			{"thresholds.deny", money.Amount(mine.Deny), money.Amount(shared.Deny)},
		} {
			if limit.mine > limit.theirs && limit.theirs > 0 || limit.mine == 0 && limit.theirs > 0 {
				refuse("%s of budget %s is higher", limit.what, b.ID)
			}
		}
		t.Amount, t.PerHour, t.Thresholds, t.CountUnknown = o.Amount, o.PerHour, o.Thresholds, o.CountUnknown
		if !reflect.DeepEqual(t, o) || o.CountUnknown && !b.CountUnknown {
			refuse("budget %s covers something else", b.ID)
		}
		out[i] = b
	}
	return out
}

// whole returns thresholds with defaults for missing values.
func whole(t budget.Thresholds) budget.Thresholds {
	d := budget.DefaultThresholds()
	return budget.Thresholds{Warn: cmp.Or(t.Warn, d.Warn), Gate: cmp.Or(t.Gate, d.Gate), Deny: cmp.Or(t.Deny, d.Deny)}
}

// without returns the texts of a that are not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}
