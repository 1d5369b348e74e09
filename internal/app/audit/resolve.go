package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/alert"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/snapshot"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// Kept is a finding that a scan kept.
type Kept struct {
	view.Finding
	// Scanned is when it was seen last.
	Scanned time.Time
	// Regions are those in which its account was read last.
	Regions []string
}

// Choose finds findings by the beginnings of their ids, each once.
func Choose(ctx context.Context, cfg config.Config, s *store.Store, ids []string) ([]Kept, error) {
	all, err := keptFindings(ctx, cfg, s)
	if err != nil {
		return nil, err
	}
	var chosen []Kept
	for _, id := range ids {
		var match []Kept
		for _, s := range all {
			if id != "" && strings.HasPrefix(s.ID, strings.ToLower(id)) {
				match = append(match, s)
			}
		}
		switch {
		case len(match) == 0:
			return nil, &runtime.Error{
				Code: "not_found", Err: fmt.Errorf("no finding of the last scan has an id that begins with %q", id),
				Hint: "curfew scan --all shows them",
			}
		case len(match) > 1:
			return nil, runtime.Invalid("%q is the beginning of %d findings: give more of the id", id, len(match))
		}
		if !slices.ContainsFunc(chosen, func(s Kept) bool { return s.ID == match[0].ID }) {
			chosen = append(chosen, match[0])
		}
	}
	return chosen, nil
}

// Resolve finds the resource that a person means: a whole identity, or an id or name
// that exactly one resource of the kept scans has. An identity needs no scan.
func Resolve(ctx context.Context, req *runtime.Request, cfg config.Config, name string) (inventory.Ref, error) {
	if parts := strings.SplitN(name, "/", 5); len(parts) == 5 {
		ref := inventory.Ref{
			Cloud: parts[0], Account: parts[1], Region: parts[2], Kind: inventory.Kind(parts[3]), ID: parts[4],
		}
		switch {
		case ref.Cloud == alert.Cloud && alert.IsSubject(ref):
			return ref, nil
		case ref.Cloud == alert.Cloud:
			return inventory.Ref{}, runtime.Invalid("%q is not the subject of an alert; `curfew alerts` lists them", name)
		case clouds.Of(ref.Cloud).Fixable && ref.Kind.Valid() && ref.Account != "" && ref.ID != "":
			return ref, nil
		case clouds.Of(ref.Cloud).Fixable:
			return inventory.Ref{}, runtime.Invalid(
				"%q is not the identity of a resource: %s/ACCOUNT/REGION/KIND/ID with a kind such as instance or volume", name,
				ref.Cloud)
		}
	}
	s, err := req.Open(ctx, cfg)
	if err != nil {
		return inventory.Ref{}, err
	}
	defer s.Close()
	match, err := s.Snapshots().Resources(ctx, snapshot.Query{IDOrName: name})
	switch {
	case err != nil:
		return inventory.Ref{}, err
	case len(match) == 1:
		return match[0].Ref, nil
	case len(match) == 0:
		all, err := s.Snapshots().Resources(ctx, snapshot.Query{})
		if err != nil {
			return inventory.Ref{}, err
		}
		var names []string
		for _, r := range all {
			names = append(names, r.Ref.ID, r.Name)
		}
		return inventory.Ref{}, &runtime.Error{
			Code: "not_found", Err: fmt.Errorf("no resource that curfew has seen has the id or name %q%s", name,
				document.DidYouMean(name, names)),
			Hint: "give the whole identity: aws/123456789012/us-east-1/instance/i-0abc"}
	}
	return inventory.Ref{}, runtime.Invalid(
		"%q is the name of %d resources: give the id, or the whole identity such as %s", name,
		len(match), match[0].Ref)
}

// RefOf is the identity of a resource in a document.
func RefOf(r view.Resource) inventory.Ref {
	return inventory.Ref{Cloud: r.Cloud, Account: r.Account, Region: r.Region, Kind: inventory.Kind(r.Kind), ID: r.ID}
}

// RestoreAccess adds to the flags what the state knows of how these resources were reached.
func RestoreAccess(ctx context.Context, cfg config.Config, s *store.Store, f *clouds.Source,
	refs []inventory.Ref) error {
	accounts, err := s.Snapshots().Accounts(ctx)
	if err != nil {
		return err
	}
	for _, a := range accounts {
		if !slices.ContainsFunc(refs, func(r inventory.Ref) bool { return r.Cloud == a.Cloud && r.Account == a.ID }) {
			continue
		}
		f.Profile = cmp.Or(f.Profile, a.Reach.Profile)
		if len(f.AssumeRoles) == 0 {
			f.AssumeRoles = slices.Clone(cfg.AWS.AssumeRoles)
		}
		if role := a.Reach.Role; role != "" && !slices.Contains(f.AssumeRoles, role) {
			f.AssumeRoles = append(f.AssumeRoles, role)
		}
	}
	return nil
}
