package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
)

const timeForm = time.RFC3339

var _ round.Lister = (*Provider)(nil)

// List lists the machines of sessions that are there, and those that ended and are not
// cleared away yet. It returns an error where a machine of another account is to be read, or
// a folder cannot be.
func (p *Provider) List(ctx context.Context, q round.Query) (*round.Observation, error) {
	for ref := range q.Only {
		if ref.Cloud != CloudName || ref.Account != p.Account() {
			return nil, fmt.Errorf("read %s again: it is no machine of a session on %s", ref, p.Account())
		}
	}
	obs := &round.Observation{
		Cloud: CloudName, Accounts: []string{p.Account()}, Regions: []string{Site}, Unread: map[string]bool{},
		CommitmentsKnown: true,
	}
	all, err := p.machines()
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r := p.resource(m)
		if r.CreatedAt.After(q.Now) || q.Kinds != nil && !q.Kinds[r.Kind] || q.Only != nil && !q.Only[r.Ref()] {
			continue
		}
		s, err := m.look()
		if err != nil {
			return nil, err
		}
		if err := p.o.Tags.Apply(r); err != nil {
			obs.BlindSpots = append(obs.BlindSpots, inventory.BlindSpot{
				What: "tag of " + r.ID, Why: err.Error(), Effect: "the machine is kept until the tag is corrected",
			})
		}
		if s.State == "" {
			if at := s.Ended.At.UTC(); !at.IsZero() && !at.After(q.Now) {
				obs.Ended = append(obs.Ended, round.Ended(r, at))
			}
			continue
		}
		r.State = s.State
		obs.Resources = append(obs.Resources, r)
	}
	if q.Progress != nil {
		q.Progress(round.Progress{What: "sessions on " + p.Account(), Done: 1, Total: 1, Resources: len(obs.Resources)})
	}
	obs.Sort()
	return obs, ctx.Err()
}

// resource is a machine in the inventory's words, but for its state.
func (p *Provider) resource(m *machine) *inventory.Resource {
	tags := maps.Clone(m.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	if until := m.lease(); until != "" {
		tags[inventory.TagLease] = until
	}
	r := &inventory.Resource{
		ID: m.ID, Name: tags["Name"], Kind: inventory.KindInstance, Cloud: CloudName, Account: p.Account(), Region: Site,
		Type:      m.Pool.Type,
		CreatedAt: m.LaunchedAt.UTC(), StateSince: m.LaunchedAt.UTC(), Tags: tags, Size: m.Size.resource(),
		Incarnation: m.ID,
		Detail: &inventory.Instance{
			Market: inventory.OnDemand, Platform: "linux", TerminationProtected: inventory.Known(false),
			SpotOnce: inventory.Known(false),
		},
	}
	r.Meters = []inventory.Meter{p.rate(m)}
	return r
}

// stepEnd is the one thing that is done to a machine of a session.
const stepEnd = "end"

// Actions ends machines of sessions, for the ladder. There is no other verb, and none is
// undone. It is safe for concurrent use.
type Actions struct {
	p *Provider
	// end ends the session of a machine: its work is saved first.
	end func(ctx context.Context, session, why string) error
}

var _ action.Cloud = (*Actions)(nil)

// Actions returns what ends machines of sessions. The function has a session end as its owner
// would: saved and confirmed, then released.
func (p *Provider) Actions(end func(ctx context.Context, session, why string) error) *Actions {
	return &Actions{p: p, end: end}
}

func refusal(rule, format string, args ...any) error {
	return &action.Refusal{Rule: rule, Why: fmt.Sprintf(format, args...)}
}

// of finds the machine that is meant; nil where it is gone.
func (a *Actions) of(ref inventory.Ref, identity string) (*machine, stand, error) {
	if ref.Cloud != CloudName || ref.Account != a.p.Account() {
		return nil, stand{}, refusal("gone", "%s is no machine of a session on %s", ref.ID, a.p.Account())
	}
	all, err := a.p.machines()
	if err != nil {
		return nil, stand{}, err
	}
	i := slices.IndexFunc(all, func(m *machine) bool { return m.ID == ref.ID })
	if i < 0 {
		return nil, stand{}, nil
	}
	m := all[i]
	if now := action.Identity(a.p.resource(m)); identity != "" && identity != now {
		return nil, stand{}, refusal("identity", "machine %s is not the one that was meant", ref.ID)
	}
	s, err := m.look()
	if err != nil || s.State == "" {
		return nil, s, err
	}
	return m, s, nil
}

// Plan implements action.Cloud.
func (a *Actions) Plan(ctx context.Context, r *inventory.Resource, do policy.Do) ([]action.Step, error) {
	if do.Verb != policy.Terminate || r.Kind != inventory.KindInstance {
		return nil, refusal("no-such-verb", "%s is not done to a machine of a session on this computer; terminate is",
			do.Verb)
	}
	m, _, err := a.of(r.Ref(), action.Identity(r))
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, refusal("gone", "machine %s is not there any more", r.ID)
	}
	return []action.Step{{Name: stepEnd, Params: "{}", Undo: ""}}, ctx.Err()
}

// callMark is what is written of a call, so that it is found again by its key.
type callMark struct {
	Key string    `json:"key"`
	At  time.Time `json:"at"`
}

// Do implements action.Cloud.
func (a *Actions) Do(ctx context.Context, t action.Task) (receipt string, err error) {
	if t.Step.Key == "" || t.Step.Name != stepEnd {
		return "", fmt.Errorf("%s %s: it is no step of a machine of a session, or has no key to find it again by",
			t.Step.Name, t.Ref)
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	m, _, err := a.of(t.Ref, t.Identity)
	if err != nil {
		return "", err
	}
	if m == nil {
		return "", nil // it has ended
	}
	if err := a.end(ctx, m.Session, "a policy ends it"); err != nil {
		return "", fmt.Errorf("end session %s: %w", m.Session, err)
	}
	return m.Session, writeJSON(m.path(calledFile), callMark{t.Step.Key, a.p.o.Now().UTC()})
}

// calledFile says that the session of a machine was told to end.
const calledFile = "called.json"

// Look implements action.Cloud.
func (a *Actions) Look(ctx context.Context, t action.Task) (action.Progress, string, error) {
	if err := ctx.Err(); err != nil {
		return "", "", err
	}
	m, s, err := a.of(t.Ref, "")
	if err != nil {
		return "", "", err
	}
	if m == nil {
		return action.Complete, "", nil
	}
	var mark callMark
	called, err := readJSON(m.path(calledFile), &mark)
	if err != nil {
		return "", "", err
	}
	if called && mark.Key == t.Step.Key || s.State == inventory.StateDeleting {
		return action.InProgress, m.Session, nil
	}
	return action.NotDone, "", nil
}

var errNoUndo = errors.New("a session that ended is not taken back; `curfew up` starts it again with its saved work")

// Undo implements action.Cloud.
func (a *Actions) Undo(context.Context, action.Task) error { return errNoUndo }

// Rehearse implements action.Cloud.
func (a *Actions) Rehearse(context.Context, action.Task) (string, error) { return "", errNoUndo }

// Notes says of each machine of a session what does not hold its processes or keep its GPUs
// apart, for people.
func (p *Provider) Notes(session string) ([]string, error) {
	all, err := p.machines()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, m := range all {
		if m.Session != session {
			continue
		}
		c, err := OpenCage(m.dir)
		if errors.Is(err, ErrNoCage) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, limit := range c.Limits() {
			out = append(out, fmt.Sprintf("node %d: %s", m.Node, limit))
		}
	}
	return out, nil
}
