package server

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/scheduler"
	"github.com/curfew-dev/curfew/internal/config"
)

const (
	// listDeadline bounds listing the accounts of an organization; listAgain is the first wait
	// before a failed listing is retried.
	listDeadline = time.Minute
	listAgain    = 30 * time.Second
)

// organization follows the accounts of an organization.
type organization struct {
	// of is the configuration of the last listing, members its result; nil before the first.
	of      config.Organization
	members []clouds.AWSMember
	due     time.Time // time of the next listing
	failed  int
	err     error
}

// asks reports whether the accounts are found by an organization.
func asksOrganization(cfg config.Config, f clouds.Source) bool {
	return cfg.AWS.Organization.Role != "" && len(f.AssumeRoles) == 0
}

// listed returns the known accounts of the organization. It lists them again if the organization
// has changed or the time has come. changed is true if the accounts differ from before. After a
// failure the previous list is kept.
func (v *server) listed(ctx context.Context, cfg config.Config) (changed bool) {
	const problem = scheduler.ProblemOrganization
	org := &v.organization
	if !asksOrganization(cfg, v.o.Source) {
		*org = organization{}
		v.scheduler.Problem(problem, nil)
		return false
	}
	now, same := v.req.Now(), sameOrganization(org.of, cfg.AWS.Organization)
	if same && now.Before(org.due) {
		return false
	}
	if !same {
		*org = organization{of: cfg.AWS.Organization}
	}
	members, err := Organization(ctx, v.req.Fresh(), cfg, v.o.Source)
	if ctx.Err() != nil {
		return false
	}
	v.scheduler.Problem(problem, err)
	if err != nil {
		wait := min(listAgain<<min(org.failed, 10), max(cfg.AWS.Organization.Refresh, listAgain))
		org.failed++
		org.err, org.due = err, now.Add(wait)
		v.log.Error("the accounts of the organization are not listed", "known", len(org.members),
			"again_in", wait, "error",
			err)
		return false
	}
	changed = !slices.Equal(members, org.members)
	if changed {
		v.log.Info("the accounts of the organization are listed", "accounts", len(members), "before", len(org.members))
	}
	refresh := cfg.AWS.Organization.Refresh
	org.members, org.err, org.failed, org.due = members, nil, 0, now.Add(scheduler.Jitter(refresh*9/10, refresh))
	return changed
}

// sameOrganization reports whether two sections list the same accounts.
func sameOrganization(a, b config.Organization) bool {
	return a.ListRole == b.ListRole && (a.Role == "") == (b.Role == "")
}

// Organization lists the active accounts of the organization that the configuration names.
func Organization(ctx context.Context, req *runtime.Request, cfg config.Config, f clouds.Source) ([]clouds.AWSMember,
	error) {
	bounded, end := context.WithTimeout(ctx, listDeadline)
	defer end()
	f.Alone, f.AssumeRoles = true, nil
	if role := cfg.AWS.Organization.ListRole; role != "" {
		f.AssumeRoles = []string{role}
	}
	book, err := req.PriceBook(cfg)
	if err != nil {
		return nil, err
	}
	cloud, err := clouds.OpenAccount(bounded, req, f, cfg, book)
	if err != nil {
		return nil, err
	}
	members, err := cloud.Organization(bounded)
	return members, clouds.CloudErrorOrNil(err)
}

// members returns the accounts of the organization that are not named individually: that of the
// credentials through these, every other one through its role.
func members(cfg config.Config, f clouds.Source, all []clouds.AWSMember, named []account) []account {
	org := cfg.AWS.Organization
	var out []account
	for _, m := range all {
		has := func(w account) bool {
			return slices.ContainsFunc(w.AssumeRoles, func(arn string) bool {
				return strings.Contains(arn, "::"+m.ID+":")
			})
		}
		if slices.Contains(org.Exclude, m.ID) || slices.ContainsFunc(named, has) {
			continue
		}
		role := m.Role(org.Role)
		if m.Own {
			if len(cfg.AWS.Accounts) > 0 {
				continue // the account of the credentials is named or excluded
			}
			role = ""
		}
		a := newAccount(cfg, f, role, org.Regions)
		a.member = role != ""
		out = append(out, a)
	}
	return out
}

// newAccount returns an account that is read with a role, or with the credentials if there is none.
func newAccount(cfg config.Config, f clouds.Source, role string, regions []string) account {
	a := account{Source: f, name: "aws"}
	a.Alone, a.AssumeRoles = true, nil
	if role != "" {
		a.AssumeRoles = []string{role}
		a.name = "aws/" + role[strings.LastIndex(role, "::")+2:]
	} else if p := cmp.Or(f.Profile, cfg.AWS.Profile); p != "" {
		a.name = "aws:" + p
	}
	if len(regions) > 0 && len(f.Regions) == 0 {
		a.Regions = regions
		a.name += " " + strings.Join(regions, ",")
	}
	return a
}
