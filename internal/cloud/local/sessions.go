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

// List returns the existing machines of sessions and the ended ones that are not cleared yet. It
// fails for another account or an unreadable folder.
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
		s, err := m.readState()
		if err != nil {
			return nil, err
		}
		if err := p.options.Tags.Apply(r); err != nil {
			obs.BlindSpots = append(obs.BlindSpots, inventory.BlindSpot{
				What: "tag of " + r.ID, Why: err.Error(), Effect: "the machine is kept until the tag is corrected",
			})
		}
		if s.State == "" {
			if at := s.Ended.At.UTC(); !at.IsZero() && !at.After(q.Now) {
				obs.Ended = append(obs.Ended, round.EndedResource(r, at))
			}
			continue
		}
		r.State = s.State
		obs.Resources = append(obs.Resources, r)
	}
	if q.Progress != nil {
		q.Progress(round.Progress{
			What: "sessions on " + p.Account(), Done: 1, Total: 1, Resources: len(obs.Resources),
		})
	}
	obs.Sort()
	return obs, ctx.Err()
}

// resource converts a machine for the inventory, without its state.
func (p *Provider) resource(m *machine) *inventory.Resource {
	tags := maps.Clone(m.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	if until := m.lease(); until != "" {
		tags[inventory.TagLease] = until
	}
	r := &inventory.Resource{
		ID: m.ID, Name: tags["Name"], Kind: inventory.KindInstance, Cloud: CloudName,
		Account: p.Account(), Region: Site,
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

// stepEnd is the only step of an action on a session's machine.
const stepEnd = "end"

// Actions ends machines of sessions for the safety ladder. It supports no other verb and no undo,
// and is safe for concurrent use.
type Actions struct {
	provider *Provider
	// end ends a machine's session, saving its work first.
	end func(ctx context.Context, session, why string) error
}

var _ action.Cloud = (*Actions)(nil)

// Actions returns the actions on session machines; end ends a session with saving and confirmation.
func (p *Provider) Actions(end func(ctx context.Context, session, why string) error) *Actions {
	return &Actions{provider: p, end: end}
}

func refusal(rule, format string, args ...any) error {
	return &action.Refusal{Rule: rule, Why: fmt.Sprintf(format, args...)}
}

// find returns the machine of a reference; nil if it is gone.
func (a *Actions) find(ref inventory.Ref, identity string) (*machine, machineState, error) {
	if ref.Cloud != CloudName || ref.Account != a.provider.Account() {
		return nil, machineState{}, refusal("gone", "%s is no machine of a session on %s",
			ref.ID, a.provider.Account())
	}
	all, err := a.provider.machines()
	if err != nil {
		return nil, machineState{}, err
	}
	i := slices.IndexFunc(all, func(m *machine) bool { return m.ID == ref.ID })
	if i < 0 {
		return nil, machineState{}, nil
	}
	m := all[i]
	if now := action.Identity(a.provider.resource(m)); identity != "" && identity != now {
		return nil, machineState{}, refusal("identity", "machine %s is not the one that was meant", ref.ID)
	}
	s, err := m.readState()
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
	m, _, err := a.find(r.Ref(), action.Identity(r))
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, refusal("gone", "machine %s no longer exists", r.ID)
	}
	return []action.Step{{Name: stepEnd, Params: "{}", Undo: ""}}, ctx.Err()
}

// callRecord records a call, so that it can be found by its key.
type callRecord struct {
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
	m, _, err := a.find(t.Ref, t.Identity)
	if err != nil {
		return "", err
	}
	if m == nil {
		return "", nil // it has ended
	}
	if err := a.end(ctx, m.Session, "a policy ends it"); err != nil {
		return "", fmt.Errorf("end session %s: %w", m.Session, err)
	}
	return m.Session, writeJSON(m.path(callFile), callRecord{t.Step.Key, a.provider.options.Now().UTC()})
}

// callFile records that a machine's session was told to end.
const callFile = "called.json"

// Look implements action.Cloud.
func (a *Actions) Look(ctx context.Context, t action.Task) (action.Progress, string, error) {
	if err := ctx.Err(); err != nil {
		return "", "", err
	}
	m, s, err := a.find(t.Ref, "")
	if err != nil {
		return "", "", err
	}
	if m == nil {
		return action.Complete, "", nil
	}
	var mark callRecord
	called, err := readJSON(m.path(callFile), &mark)
	if err != nil {
		return "", "", err
	}
	if called && mark.Key == t.Step.Key || s.State == inventory.StateDeleting {
		return action.InProgress, m.Session, nil
	}
	return action.NotDone, "", nil
}

var errNoUndo = errors.New("an ended session is not resumed; `curfew up` starts it again with its saved work")

// Undo implements action.Cloud.
func (a *Actions) Undo(context.Context, action.Task) error { return errNoUndo }

// Rehearse implements action.Cloud.
func (a *Actions) Rehearse(context.Context, action.Task) (string, error) { return "", errNoUndo }

// Notes describes, for people, what a session's machines do not isolate: processes or GPUs.
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
