package backtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/backtest/learn"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
)

// TuneReport holds the waits learned from a trace and their savings.
type TuneReport struct {
	Trace Trace `json:"trace"`
	// Fleet is the wait of all resources together, Classes those of each class, the one with most
	// resources first.
	Fleet   Tuned   `json:"fleet"`
	Classes []Tuned `json:"classes"`
	// Tested are the savings of the waits on idle periods that they were not learned from,
	// BreakEven those of always waiting for one restart cost, and Oracle those of knowing the
	// future.
	Tested           Tested `json:"tested"`
	BreakEven        Tested `json:"break_even"`
	PerfectForesight Tested `json:"oracle"`
}

// Tuned is the wait of one class of resources.
type Tuned struct {
	// Policy is the name of the policy that was written for the class; empty if none was, and Why
	// says why not.
	Policy string `json:"policy,omitempty"`
	Why    string `json:"why,omitempty"`
	Kind   string `json:"kind,omitempty"`
	// Type, Purpose and Team are empty if the trace does not say.
	Type    string `json:"type,omitempty"`
	Purpose string `json:"purpose,omitempty"`
	Team    string `json:"team,omitempty"`
	// Resources, Stretches and EndedByWork are the history that there is of the class.
	Resources   int   `json:"resources"`
	IdlePeriods int64 `json:"stretches"`
	EndedByWork int64 `json:"ended_by_work"`
	// WaitSeconds is how long to wait before a release, the grace included. Basis is
	// whose history it rests on: "class", "fleet", or "break-even" where there is too
	// little of both.
	WaitSeconds float64 `json:"wait_seconds"`
	Basis       string  `json:"basis"`
	// Tested are the savings of the class, walking forward through the trace.
	Tested Tested `json:"tested"`
}

// Tested is the result of waits on idle periods that they were not learned from.
type Tested struct {
	ReleasedHours float64 `json:"released_hours"`
	Restarts      int64   `json:"restarts"`
	NetSavedHours float64 `json:"net_saved_hours"`
	// NetSavedShare is of the resource hours.
	NetSavedShare float64       `json:"net_saved_share"`
	SavedUSD      money.Dollars `json:"saved_usd"`
}

// classHistory is the history of a class of resources.
type classHistory struct {
	learn.Class
	learn.History
	resources int
	samples   int64
	// hourly is the hourly cost of each; nil if it is unknown, or differs.
	hourly *money.Amount
}

// Tune learns from a trace how long to wait before releasing idle resources, for
// each class of them, and returns a policy for each in the mode observe: half of the
// wait before the warning, half as its grace.
//
// How a wait is learned and tested is [learn.Waits].
//
// It returns the errors of [Run].
func Tune(ctx context.Context, source io.Reader, p Params) (*policy.Set, TuneReport, error) {
	if err := p.check(); err != nil {
		return nil, TuneReport{}, fmt.Errorf("learn from %s: %w", p.Format.Name, err)
	}
	p, err := p.complete()
	if err != nil {
		return nil, TuneReport{}, err
	}
	t, err := load(ctx, source, p)
	if err != nil {
		return nil, TuneReport{}, err
	}
	set, r, err := t.tune(p)
	if err != nil {
		return nil, TuneReport{}, fmt.Errorf("learn from %s: %w", p.Format.Name, err)
	}
	return set, r, nil
}

// tuner learns waits.
type tuner struct {
	*trace
	learn.Waits
	fleet   classHistory
	classes map[learn.Class]*classHistory
}

func (t *trace) tune(p Params) (*policy.Set, TuneReport, error) {
	from, to := t.span()
	length := (to - from + learn.Folds - 1) / learn.Folds
	fold := func(at int64) int {
		if at >= to {
			return learn.Folds
		}
		return int((at - from) / length)
	}
	u := tuner{trace: t, classes: map[learn.Class]*classHistory{}}
	u.Waits = learn.Waits{Step: t.step, Restart: t.restart, Fleet: &u.fleet.History}
	sum := t.totals()
	for i, r := range t.resources {
		if r.Description != nil && r.Description.Lifetime == inventory.Persistent {
			continue // no policy acts on it
		}
		c := u.classes[r.Class()]
		if c == nil {
			c = &classHistory{Class: r.Class(), hourly: t.hourly[i]}
			u.classes[c.Class] = c
		}
		if h := t.hourly[i]; c.hourly != nil && (h == nil || *h != *c.hourly) {
			c.hourly = nil
		}
		for _, l := range []*classHistory{c, &u.fleet} {
			l.resources++
			l.samples += sum.by[i].samples
		}
		t.tracks[i].idlePeriods(t.step, func(s dated) {
			for _, l := range []*classHistory{c, &u.fleet} {
				l.Add(s.Period, fold(s.from), fold(s.known))
			}
		})
	}
	if len(u.classes) == 0 {
		return nil, TuneReport{}, errors.New("all its resources are persistent, and no policy acts on those")
	}
	r := TuneReport{Trace: t.describe(p, sum)}
	var set policy.Set
	var tested, breakEven, oracle []share
	for _, c := range u.sorted() {
		past := c.All()
		own := c.share(u.Test(&c.History))
		breakEven = append(breakEven, c.share(past.Fixed(u.BreakEven(), t.step, t.restart)))
		oracle = append(oracle, c.share(past.PerfectForesight(t.step, t.restart)))
		tuned, err := u.tuned(c, []share{own})
		if err != nil {
			return nil, TuneReport{}, err
		}
		if other := u.narrower(c.Class); other != "" {
			tuned.Why = "no condition distinguishes it from " + other
		} else {
			written := tuned.policy(c.Class)
			if slices.ContainsFunc(set.Policies, func(o *policy.Policy) bool { return o.Name == written.Name }) {
				written.Name += "-" + strconv.Itoa(len(set.Policies))
			}
			tuned.Policy = written.Name
			set.Policies = append(set.Policies, written)
		}
		r.Classes = append(r.Classes, tuned)
		tested = append(tested, own)
	}
	var err error
	if r.Fleet, err = u.tuned(&u.fleet, tested); err != nil {
		return nil, TuneReport{}, err
	}
	r.Tested = r.Fleet.Tested
	if r.BreakEven, err = t.tested(breakEven); err != nil {
		return nil, TuneReport{}, err
	}
	if r.PerfectForesight, err = t.tested(oracle); err != nil {
		return nil, TuneReport{}, err
	}
	// Read back, because only parsed policies can be evaluated.
	learned, err := policy.Parse("learned policies", set.YAML())
	return learned, r, err
}

// sorted returns the classes, that with most resources first.
func (u *tuner) sorted() []*classHistory {
	return slices.SortedFunc(maps.Values(u.classes), func(a, b *classHistory) int {
		return cmp.Or(cmp.Compare(b.resources, a.resources), cmp.Compare(a.Class.String(), b.Class.String()))
	})
}

// tuned returns the wait of a class by the end of the trace.
func (u *tuner) tuned(c *classHistory, got []share) (Tuned, error) {
	wait, basis := u.Wait(&c.History, learn.Folds+1)
	if c == &u.fleet && basis == learn.OfClass {
		basis = learn.OfFleet
	}
	tested, err := u.tested(got)
	out := Tuned{
		Kind: string(c.Kind), Type: c.Type, Purpose: string(c.Purpose), Team: c.Team, Resources: c.resources,
		WaitSeconds: span(wait).Seconds(), Basis: string(basis), Tested: tested,
	}
	for s, n := range c.All() {
		out.IdlePeriods += n
		if s.Busy {
			out.EndedByWork += n
		}
	}
	return out, err
}

// share is the class with the result of a rule.
func (l *classHistory) share(did learn.Tally) share {
	return share{hourly: l.hourly, counted: counted{samples: l.samples}, Tally: did}
}

func (t *trace) tested(parts []share) (Tested, error) {
	got := together(parts)
	net := got.Net(t.restart)
	_, saved, err := t.dollars(parts)
	return Tested{
		ReleasedHours: hours(got.Released), Restarts: got.Restarts, NetSavedHours: hours(net),
		NetSavedShare: float64(net) / float64(max(1, got.samples)*t.step), SavedUSD: saved,
	}, err
}

// narrower returns a class that a selection of c would select as well, because c is the one of
// which less is known; empty if there is none.
func (u *tuner) narrower(c learn.Class) string {
	for _, o := range u.sorted() {
		if o.Class != c && o.Kind == c.Kind && o.Purpose == c.Purpose && (c.Type == "" || c.Type == o.Type) &&
			(c.Team == "" || c.Team == o.Team) {
			return o.Class.String()
		}
	}
	return ""
}

// policy writes a learned wait as a policy that observes.
func (t Tuned) policy(c learn.Class) *policy.Policy {
	name := []string{"tuned", string(c.Kind), string(c.Purpose)}
	sel := policy.Select{
		Kind: []string{string(c.Kind)}, Lifetime: []string{string(inventory.Ephemeral)},
		Purpose: []string{string(c.Purpose)},
	}
	if c.Type != "" {
		sel.Type, name = []string{c.Type}, append(name, c.Type)
	}
	if c.Team != "" {
		sel.Team, name = []string{c.Team}, append(name, c.Team)
	}
	wait := time.Duration(t.WaitSeconds * float64(time.Second)).Round(time.Millisecond)
	grace := (wait / 2).Truncate(time.Second)
	return &policy.Policy{
		Name: slug(strings.Join(name, "-")), Select: sel,
		When: fmt.Sprintf(`duty.state in ["idle", "held"] && duty.lasting >= duration("%s")`, wait-grace),
		Warn: &policy.Warning{Notify: []string{"owner"}, Grace: grace}, Do: policy.Do{Verb: policy.Stop},
	}
}

// slug makes a name of letters, digits and dashes.
func slug(s string) string {
	s = strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			return c
		case c >= 'A' && c <= 'Z':
			return c + 'a' - 'A'
		}
		return '-'
	}, s)
	return strings.Join(strings.FieldsFunc(s, func(c rune) bool { return c == '-' }), "-")
}
