package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/snapshot"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// Listing is the part of a list that is asked for. Empty fields match all.
type Listing struct {
	Account, Region string
	Kind            inventory.Kind
	// Teams are the teams that Takes can accept, without regard to case; nil is all.
	Teams []string
	// Takes reports whether what belongs to a team is asked for; nil takes all.
	Takes func(team string) bool
	// After is the id after which the list begins, and which it has to hold.
	After string
	// Limit is the most that is returned; 0 is all.
	Limit int
}

// ErrNotListed is returned when a list does not hold what it should begin after.
var ErrNotListed = errors.New("the list does not have the item to begin after")

// query returns the query of the state, which may select other teams' items as well. What it
// selects may still be of another team.
func (l Listing) query(limit int) snapshot.Query {
	return snapshot.Query{Account: l.Account, Region: l.Region, Kind: l.Kind, Teams: l.Teams, Limit: limit}
}

// takes reports whether something of a team is asked for.
func (l Listing) takes(team string) bool { return l.Takes == nil || l.Takes(team) }

// leastRead is how many rows are read at least where some of those before were left out.
const leastRead = 200

// paged reads what a listing takes, and whether there is more of it than its limit. Read
// returns at most so many rows after one, 0 of them all; take makes a document of a row that
// is asked for.
func paged[Row, Doc any](limit int, after Row, read func(after Row, limit int) ([]Row, error),
	take func(Row) (Doc, bool, error)) (out []Doc, more bool, err error) {
	out = []Doc{}
	ask := 0
	if limit > 0 {
		ask = limit + 1
	}
	for {
		rows, err := read(after, ask)
		if err != nil {
			return nil, false, err
		}
		for _, r := range rows {
			doc, ok, err := take(r)
			if err != nil {
				return nil, false, err
			}
			if !ok {
				continue
			}
			if limit > 0 && len(out) == limit {
				return out, true, nil
			}
			out = append(out, doc)
		}
		if ask == 0 || len(rows) < ask {
			return out, false, nil
		}
		after, ask = rows[len(rows)-1], max(ask, leastRead)
	}
}

// Resources are all resources as they were seen last, without those that are gone.
func Resources(ctx context.Context, req *runtime.Request) (view.Fleet, error) {
	doc, _, err := ListResources(ctx, req, Listing{})
	return doc, err
}

// ListResources are the resources as they were seen last, without those that are gone, in the
// order of their identities; more says that there are others after them.
func ListResources(ctx context.Context, req *runtime.Request, l Listing) (doc view.Fleet, more bool, err error) {
	doc = view.Fleet{Schema: view.ResourcesSchema, Resources: []view.Observed{}}
	after := snapshot.Resource{}
	err = readObserved(ctx, req, func(o observed) error {
		if l.After != "" {
			if after.Ref, err = o.begin(ctx, l); err != nil {
				return err
			}
		}
		doc.Resources, more, err = paged(l.Limit, after, func(after snapshot.Resource, limit int) ([]snapshot.Resource,
			error) {
			q := l.query(limit)
			q.After = after.Ref
			return o.read(ctx, q)
		}, func(r snapshot.Resource) (view.Observed, bool, error) { return o.take(r, l) })
		return err
	})
	return doc, more, err
}

// Resource are the resources of an id, that of the provider or the whole identity, as far as
// a listing takes them.
func Resource(ctx context.Context, req *runtime.Request, id string, l Listing) (view.Fleet, error) {
	doc := view.Fleet{Schema: view.ResourcesSchema, Resources: []view.Observed{}}
	err := readObserved(ctx, req, func(o observed) (err error) {
		doc.Resources, err = o.called(ctx, snapshot.Query{ID: id}, id, l)
		return err
	})
	return doc, err
}

// TeamOf is the team of a resource that an audit saw, by its id, its name or its whole
// identity; empty where none is known.
func TeamOf(ctx context.Context, req *runtime.Request, name string) (string, error) {
	var all []view.Observed
	err := readObserved(ctx, req, func(o observed) (err error) {
		all, err = o.called(ctx, snapshot.Query{IDOrName: name}, name, Listing{})
		return err
	})
	var teams []string
	for _, r := range all {
		teams = append(teams, r.Owner.Team)
	}
	if teams = slices.Compact(teams); err != nil || len(teams) != 1 {
		return "", err
	}
	return teams[0], nil
}

// observed are the resources that a state keeps, with the tags that say whose they are.
type observed struct {
	store *store.Store
	tags  inventory.TagMapping
}

// readObserved opens the state for do.
func readObserved(ctx context.Context, req *runtime.Request, do func(observed) error) error {
	cfg, s, err := req.State(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	return do(observed{s, cfg.Tags})
}

func (o observed) read(ctx context.Context, q snapshot.Query) ([]snapshot.Resource, error) {
	q.TeamMapping = mappingOf(o.tags)
	return o.store.Snapshots().Resources(ctx, q)
}

// take makes the document of a resource, and says whether it is asked for.
func (o observed) take(r snapshot.Resource, l Listing) (view.Observed, bool, error) {
	var kept view.KeptResource
	if err := json.Unmarshal(r.Body, &kept); err != nil {
		return view.Observed{}, false, fmt.Errorf("the kept resource %s: %w", r.Ref, err)
	}
	doc := view.NewObserved(kept, r, o.tags)
	return doc, l.takes(doc.Owner.Team), nil
}

// called are the resources that a query finds or whose whole identity is a name, in order.
func (o observed) called(ctx context.Context, q snapshot.Query, name string, l Listing) ([]view.Observed, error) {
	out := []view.Observed{}
	if name == "" {
		return out, nil
	}
	rows, err := o.read(ctx, q)
	if err != nil {
		return nil, err
	}
	if ref, ok := refOf(name); ok && len(rows) == 0 {
		if rows, err = o.read(ctx, snapshot.Query{Ref: ref}); err != nil {
			return nil, err
		}
	}
	for _, r := range rows {
		doc, ok, err := o.take(r, l)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, doc)
		}
	}
	return out, nil
}

// begin is the resource after which a listing begins.
func (o observed) begin(ctx context.Context, l Listing) (inventory.Ref, error) {
	ref, ok := refOf(l.After)
	if !ok {
		return ref, ErrNotListed
	}
	q := l.query(0)
	q.Ref = ref
	rows, err := o.read(ctx, q)
	if err != nil {
		return ref, err
	}
	for _, r := range rows {
		if _, ok, err := o.take(r, l); ok || err != nil {
			return ref, err
		}
	}
	return ref, ErrNotListed
}

// refOf reads a whole identity.
func refOf(id string) (inventory.Ref, bool) {
	parts := strings.SplitN(id, "/", 5)
	if len(parts) < 5 {
		return inventory.Ref{}, false
	}
	return inventory.Ref{
		Cloud: parts[0], Account: parts[1], Region: parts[2], Kind: inventory.Kind(parts[3]), ID: parts[4],
	}, true
}

// Findings lists all current findings.
func Findings(ctx context.Context, req *runtime.Request) (view.Findings, error) {
	doc, _, err := ListFindings(ctx, req, Listing{})
	return doc, err
}

// ListFindings lists current findings by id; more reports whether others follow.
func ListFindings(ctx context.Context, req *runtime.Request, l Listing) (doc view.Findings, more bool, err error) {
	doc = view.Findings{Schema: view.FindingsSchema, Findings: []view.DatedFinding{}}
	_, s, err := req.State(ctx)
	if err != nil {
		return doc, false, err
	}
	defer s.Close()
	if l.After != "" {
		q := l.query(0)
		q.ID = l.After
		before, err := findingsOf(ctx, s, l, q)
		if err == nil && len(before) == 0 {
			err = ErrNotListed
		}
		if err != nil {
			return doc, false, err
		}
	}
	doc.Findings, more, err = paged(l.Limit, snapshot.Finding{ID: l.After},
		func(after snapshot.Finding, limit int) ([]snapshot.Finding, error) {
			q := l.query(limit)
			q.AfterFinding = after.ID
			return s.Snapshots().Findings(ctx, q)
		}, func(f snapshot.Finding) (view.DatedFinding, bool, error) { return datedFinding(f, l) })
	return doc, more, err
}

// Finding are the findings of an id, as far as a listing takes them.
func Finding(ctx context.Context, req *runtime.Request, id string, l Listing) (view.Findings, error) {
	doc := view.Findings{Schema: view.FindingsSchema, Findings: []view.DatedFinding{}}
	_, s, err := req.State(ctx)
	if err != nil || id == "" {
		return doc, err
	}
	defer s.Close()
	doc.Findings, err = findingsOf(ctx, s, l, snapshot.Query{ID: id})
	return doc, err
}

// findingsOf are those of a query that a listing takes.
func findingsOf(ctx context.Context, s *store.Store, l Listing, q snapshot.Query) ([]view.DatedFinding, error) {
	rows, err := s.Snapshots().Findings(ctx, q)
	out := []view.DatedFinding{}
	for _, f := range rows {
		doc, ok, err := datedFinding(f, l)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, doc)
		}
	}
	return out, err
}

// datedFinding makes the document of a finding, and says whether it is asked for.
func datedFinding(f snapshot.Finding, l Listing) (view.DatedFinding, bool, error) {
	doc := view.DatedFinding{FirstAt: f.FirstAt.UTC(), LastAt: f.LastAt.UTC()}
	if err := json.Unmarshal(f.Body, &doc.Finding); err != nil {
		return doc, false, fmt.Errorf("the kept finding %s: %w", f.ID, err)
	}
	return doc, l.takes(doc.Resource.Owner.Team), nil
}
