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
	"text/tabwriter"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
)

// TuneSchema names the shape of a [TuneReport] in JSON.
const TuneSchema = "curfew.tune/v1"

// TuneReport is what was learned from a trace, and what it would have saved.
type TuneReport struct {
	Schema string `json:"schema"`
	Trace  Trace  `json:"trace"`
	// Fleet is what was learned of all resources together, Classes of each class, the
	// one with most resources first.
	Fleet   Tuned   `json:"fleet"`
	Classes []Tuned `json:"classes"`
	// Tested is what the waits would have saved on stretches that they were not
	// learned from; BreakEven is what always waiting for one restart cost would have,
	// and Oracle what knowing the future would have.
	Tested    Tested `json:"tested"`
	BreakEven Tested `json:"break_even"`
	Oracle    Tested `json:"oracle"`
}

// Tuned is the wait of one class of resources.
type Tuned struct {
	// Policy is the name of the policy that was written for the class; empty where
	// none was, and Why says why not.
	Policy string `json:"policy,omitempty"`
	Why    string `json:"why,omitempty"`
	Kind   string `json:"kind,omitempty"`
	// Type, Purpose and Team are empty where the trace does not say.
	Type    string `json:"type,omitempty"`
	Purpose string `json:"purpose,omitempty"`
	Team    string `json:"team,omitempty"`
	// Resources, Stretches and EndedByWork are the history that there is of the class.
	Resources   int   `json:"resources"`
	Stretches   int64 `json:"stretches"`
	EndedByWork int64 `json:"ended_by_work"`
	// WaitSeconds is how long to wait before letting go, the grace included. Basis is
	// whose history it rests on: "class", "fleet", or "break-even" where there is too
	// little of both.
	WaitSeconds float64 `json:"wait_seconds"`
	Basis       string  `json:"basis"`
	// Tested is what the class would have saved, walking forward through the trace.
	Tested Tested `json:"tested"`
}

// Tested is what waits would have done with stretches that they were not learned
// from.
type Tested struct {
	ReleasedHours float64 `json:"released_hours"`
	Restarts      int64   `json:"restarts"`
	NetSavedHours float64 `json:"net_saved_hours"`
	// NetSavedShare is of the resource hours.
	NetSavedShare float64 `json:"net_saved_share"`
	SavedUSD      *string `json:"saved_usd"`
}

const (
	// folds is into how many parts of equal length a trace is cut for testing: the
	// waits of each are learned from those before it.
	folds = 24
	// enough is how many stretches a class, or the fleet, has to have had before its
	// own history decides; under it chance does.
	enough = 30
)

// classHistory is the history of a class: its stretches by the fold in which they were
// known to be over, and by the one in which they began.
type classHistory struct {
	traits
	resources int
	samples   int64
	// hourly is what each costs an hour; nil where that is not known, or differs.
	hourly *money.Amount
	ended  [folds + 1]rests
	begun  [folds]rests
}

func (l *classHistory) add(s dated, fold func(int64) int) {
	count := func(m *rests) {
		if *m == nil {
			*m = rests{}
		}
		(*m)[s.stretch]++
	}
	count(&l.ended[fold(s.known)])
	count(&l.begun[min(fold(s.from), folds-1)])
}

// history returns the stretches that were over before a fold.
func (l *classHistory) history(fold int) rests {
	sum := rests{}
	for _, m := range l.ended[:fold] {
		for s, n := range m {
			sum[s] += n
		}
	}
	return sum
}

// Tune learns from a trace how long to wait before letting go of idle resources, for
// each class of them, and returns a policy for each in the mode observe: half of the
// wait before the warning, half as its grace.
//
// The question is the ski-rental problem: an idle resource is rented for as long as
// it is kept, and letting it go costs a restart if work comes back. Where the past
// says how long rests last, the wait with the least mean cost over them is best among
// all waits (Karlin, Manasse, McGeoch and Owicki, Algorithmica 11, 1994). Where there
// are fewer than 30 rests of the class, those of the fleet decide, and where there are
// fewer than 30 of it, one restart cost is waited, which never costs more than twice
// what was needed (Karlin, Manasse, Rudolph and Sleator, "Competitive snoopy caching",
// Algorithmica 3, 1988). A wait is never shorter than a step: one sample is no rest yet.
//
// What the waits would have saved is tested by walking forward: the trace is cut into
// 24 parts of equal length, and rests that begin in one are let go by what was learned
// from those that were over before it.
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
	fleet   classHistory
	classes map[traits]*classHistory
}

func (t *trace) tune(p Params) (*policy.Set, TuneReport, error) {
	from, to := t.span()
	length := (to - from + folds - 1) / folds
	fold := func(at int64) int {
		if at >= to {
			return folds
		}
		return int((at - from) / length)
	}
	u := tuner{trace: t, classes: map[traits]*classHistory{}}
	sum := t.totals()
	for i, r := range t.resources {
		if r.Description != nil && r.Description.Lifetime == inventory.Persistent {
			continue // no policy acts on it
		}
		c := u.classes[r.traits()]
		if c == nil {
			c = &classHistory{traits: r.traits(), hourly: t.hourly[i]}
			u.classes[c.traits] = c
		}
		if h := t.hourly[i]; c.hourly != nil && (h == nil || *h != *c.hourly) {
			c.hourly = nil
		}
		for _, l := range []*classHistory{c, &u.fleet} {
			l.resources++
			l.samples += sum.by[i].samples
		}
		t.tracks[i].stretches(t.step, func(s dated) {
			c.add(s, fold)
			u.fleet.add(s, fold)
		})
	}
	if len(u.classes) == 0 {
		return nil, TuneReport{}, errors.New("all its resources are persistent, and no policy acts on those")
	}
	r := TuneReport{Schema: TuneSchema, Trace: t.describe(p, sum)}
	var set policy.Set
	var tested, breakEven, oracle []share
	for _, c := range u.sorted() {
		past := c.history(folds + 1)
		own := c.share(u.test(c))
		breakEven = append(breakEven, c.share(past.fixed(t.breakEven(), t.step, t.restart)))
		oracle = append(oracle, c.share(past.oracle(t.step, t.restart)))
		tuned, err := u.tuned(c, []share{own})
		if err != nil {
			return nil, TuneReport{}, err
		}
		if other := u.narrower(c.traits); other != "" {
			tuned.Why = "no condition tells it from " + other
		} else {
			written := tuned.policy(c.traits)
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
	if r.Oracle, err = t.tested(oracle); err != nil {
		return nil, TuneReport{}, err
	}
	// Read back, because only what was read can be asked.
	learned, err := policy.Parse("learned policies", set.YAML())
	return learned, r, err
}

// sorted returns the classes, that with most resources first.
func (u *tuner) sorted() []*classHistory {
	return slices.SortedFunc(maps.Values(u.classes), func(a, b *classHistory) int {
		return cmp.Or(cmp.Compare(b.resources, a.resources), cmp.Compare(a.traits.String(), b.traits.String()))
	})
}

// breakEven is the wait of one restart cost.
func (t *trace) breakEven() int64 { return max(t.step, t.restart) }

// wait returns how long to wait with resources of a class by what was known when a
// fold began, and whose history says so.
func (u *tuner) wait(c *classHistory, fold int) (wait int64, basis string) {
	for _, h := range []struct {
		*classHistory
		basis string
	}{{c, "class"}, {&u.fleet, "fleet"}} {
		past := h.history(fold)
		var n int64
		for _, times := range past {
			n += times
		}
		if n >= enough {
			wait, _ := past.bestFixed(u.step, u.restart)
			return max(u.step, wait), h.basis
		}
	}
	return u.breakEven(), "break-even"
}

// test walks forward through the trace.
func (u *tuner) test(c *classHistory) tally {
	var sum tally
	for fold, begun := range c.begun {
		if len(begun) > 0 {
			wait, _ := u.wait(c, fold)
			sum.add(begun.fixed(wait, u.step, u.restart))
		}
	}
	return sum
}

// tuned says what was made of a class by the end of the trace.
func (u *tuner) tuned(c *classHistory, got []share) (Tuned, error) {
	wait, basis := u.wait(c, folds+1)
	if c == &u.fleet && basis == "class" {
		basis = "fleet"
	}
	tested, err := u.tested(got)
	out := Tuned{
		Kind: string(c.kind), Type: c.typ, Purpose: string(c.purpose), Team: c.team, Resources: c.resources,
		WaitSeconds: span(wait).Seconds(), Basis: basis, Tested: tested,
	}
	for s, n := range c.history(folds + 1) {
		out.Stretches += n
		if s.busy {
			out.EndedByWork += n
		}
	}
	return out, err
}

// share is the class with what a rule did with it.
func (l *classHistory) share(did tally) share {
	return share{hourly: l.hourly, counted: counted{samples: l.samples}, tally: did}
}

func (t *trace) tested(parts []share) (Tested, error) {
	got := together(parts)
	net := got.net(t.restart)
	_, saved, err := t.dollars(parts)
	return Tested{
		ReleasedHours: hours(got.released), Restarts: got.restarts, NetSavedHours: hours(net),
		NetSavedShare: float64(net) / float64(max(1, got.samples)*t.step), SavedUSD: saved,
	}, err
}

// narrower returns a class that a selection of c would select as well, because c is
// the one of which less is known; empty where there is none.
func (u *tuner) narrower(c traits) string {
	for _, o := range u.sorted() {
		if o.traits != c && o.kind == c.kind && o.purpose == c.purpose && (c.typ == "" || c.typ == o.typ) && (c.team == "" || c.team == o.team) {
			return o.traits.String()
		}
	}
	return ""
}

// policy writes what was learned as a policy that observes.
func (t Tuned) policy(c traits) *policy.Policy {
	name := []string{"tuned", string(c.kind), string(c.purpose)}
	sel := policy.Select{
		Kind: []string{string(c.kind)}, Lifetime: []string{string(inventory.Ephemeral)}, Purpose: []string{string(c.purpose)},
	}
	if c.typ != "" {
		sel.Type, name = []string{c.typ}, append(name, c.typ)
	}
	if c.team != "" {
		sel.Team, name = []string{c.team}, append(name, c.team)
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

// Text says in a few lines what was learned, on what it rests, and what it would have
// saved.
func (r TuneReport) Text() string {
	var b strings.Builder
	seconds := func(s float64) string { return plain.Duration(time.Duration(s * float64(time.Second))) }
	fmt.Fprintf(&b, "learned from %d resources and %d rests; a restart costs %s\n\n", r.Trace.Resources, r.Trace.Stretches, seconds(r.Trace.RestartCostSeconds))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "wait\tresting on\trests\tended by work\tsaved when tested\tclass")
	for _, c := range append(slices.Clone(r.Classes), r.Fleet) {
		name := traits{inventory.Kind(c.Kind), c.Type, inventory.Purpose(c.Purpose), c.Team}.String()
		if c.Kind == "" {
			name = "all together"
		}
		if c.Why != "" {
			name += " (no policy: " + c.Why + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s h, %s%%\t%s\n", seconds(c.WaitSeconds), c.Basis, c.Stretches, c.EndedByWork,
			plain.Number(c.Tested.NetSavedHours, 1), plain.Number(100*c.Tested.NetSavedShare, 1), name)
	}
	_ = w.Flush() // a builder takes everything
	fmt.Fprintf(&b, "\nwaiting for one restart cost saves %s h, knowing the future %s h\n",
		plain.Number(r.BreakEven.NetSavedHours, 1), plain.Number(r.Oracle.NetSavedHours, 1))
	return b.String()
}
