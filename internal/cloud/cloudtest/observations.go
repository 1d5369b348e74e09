package cloudtest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// windows checks that usage belongs to observed resources, is within the query's window and the
// resource's life, and names its source.
func windows(tb testing.TB, s *subject) {
	now := s.Query.Now
	for ref, w := range s.first.Windows {
		r := s.byRef[ref]
		switch {
		case r == nil:
			tb.Errorf("%s: usage of what is not observed", ref)
			continue
		case w == nil:
			tb.Errorf("%s: its window is nil", ref)
			continue
		}
		back := s.Query.Window
		switch r.Kind {
		case inventory.KindNATGateway, inventory.KindCapacityReservation, inventory.KindVPCEndpoint:
			back = max(back, longWindow)
		}
		if w.Step <= 0 {
			tb.Errorf("%s: the step of its window is %s", ref, w.Step)
		}
		if w.Source == "" {
			tb.Errorf("%s: its window has no source", ref)
		}
		utc(tb, ref, "From", w.From)
		utc(tb, ref, "To", w.To)
		if !w.From.Before(w.To) {
			tb.Errorf("%s: its window [%s, %s) is empty", ref, w.From, w.To)
		}
		// A window aligned to its step may begin up to a step early.
		if w.From.Before(now.Add(-back - w.Step)) {
			tb.Errorf("%s: its window begins at %s, before what was asked", ref, w.From)
		}
		if w.To.After(now) {
			tb.Errorf("%s: its window ends at %s, after %s", ref, w.To, now)
		}
		if w.From.Before(r.CreatedAt) {
			tb.Errorf("%s: its window begins at %s, before the resource at %s", ref, w.From, r.CreatedAt)
		}
		track(tb, ref, w, &w.Machine)
		names := map[string]bool{}
		for _, g := range w.GPUs {
			if g == nil || g.Name == "" || names[g.Name] {
				tb.Errorf("%s: a GPU without a name of its own", ref)
				continue
			}
			names[g.Name] = true
			track(tb, ref, w, g)
		}
	}
}

// signals yields every signal.
func signals(yield func(usage.Signal) bool) {
	for s := usage.GPUUtil; ; s++ {
		if _, ok := usage.SignalNamed(s.String()); !ok || !yield(s) {
			return
		}
	}
}

// tolerance is the tolerance of a mean of equal values.
const tolerance = 1e-9

// track checks the statistics of one GPU or machine.
func track(tb testing.TB, ref inventory.Ref, w *usage.Window, t *usage.Track) {
	for s := range signals {
		st := t.Stats(s)
		if st == nil {
			continue
		}
		mean, err := st.Mean()
		switch {
		case err != nil:
			tb.Errorf("%s: %s %s: %v", ref, t.Name, s, err)
		case st.First.Before(w.From) || !st.Last.Before(w.To):
			tb.Errorf("%s: %s %s has points from %s to %s, outside [%s, %s)", ref, t.Name, s,
				st.First, st.Last, w.From, w.To)
		case st.Min < 0 || mean < st.Min*(1-tolerance) || mean > st.Max*(1+tolerance):
			tb.Errorf("%s: %s %s has a mean of %g between %g and %g", ref, t.Name, s, mean, st.Min, st.Max)
		}
		if c := w.Coverage(st); c < 0 || c > 1 {
			tb.Errorf("%s: %s %s covers %g of its window", ref, t.Name, s, c)
		}
	}
}

// blindSpots checks that each blind spot is one line with its cause and effect, and that there are
// some if and only if something is known to be unreadable.
func blindSpots(tb testing.TB, s *subject) {
	seen := map[inventory.BlindSpot]bool{}
	for _, b := range s.first.BlindSpots {
		for part, v := range map[string]string{"what": b.What, "why": b.Why, "effect": b.Effect} {
			if strings.TrimSpace(v) == "" || strings.ContainsAny(v, "\n\r\t") {
				tb.Errorf("blind spot %+v: its %s is not one line of text", b, part)
			}
		}
		if seen[b] {
			tb.Errorf("blind spot %+v is told twice", b)
		}
		seen[b] = true
	}
	switch {
	case s.Unreadable && len(seen) == 0:
		tb.Error("something cannot be read, and no blind spot says so")
	case !s.Unreadable && len(seen) > 0:
		tb.Errorf("everything can be read, and there are blind spots: %+v", s.first.BlindSpots)
	}
}

// unread checks that kinds that could not be listed are named by account, region and kind, have a
// blind spot, and have no resources.
func unread(tb testing.TB, s *subject) {
	o := s.first
	for key, yes := range o.Unread {
		if !yes {
			tb.Errorf("%q is among the unread kinds and was read", key)
			continue
		}
		parts := strings.Split(key, "/")
		if len(parts) != 3 || !slices.Contains(o.Accounts, parts[0]) || !slices.Contains(o.Regions, parts[1]) {
			tb.Errorf("%q does not name an account, a region and a kind that were observed", key)
			continue
		}
		kind := inventory.Kind(parts[2])
		if _, ok := kindDetails[kind]; !ok {
			tb.Errorf("%q: there is no kind %q", key, kind)
		}
		if !mentionedInBlindSpot(s, parts[1]) {
			tb.Errorf("%q was not read, and no blind spot speaks of %s", key, parts[1])
		}
		for _, r := range o.Resources {
			if r.Account == parts[0] && r.Region == parts[1] && r.Kind == kind {
				tb.Errorf("%s is observed although its kind is said not to be listed there", r.Ref())
			}
		}
		if kind == inventory.KindCommitment && o.CommitmentsKnown {
			tb.Errorf("%q was not read, and the commitments are said to be known", key)
		}
	}
	if !o.CommitmentsKnown && len(o.BlindSpots) == 0 {
		tb.Error("the commitments are not known, and no blind spot says so")
	}
}

// calls checks that each API is counted once, with a cost that is not negative.
func calls(tb testing.TB, s *subject) {
	if s.Calls && len(s.first.Calls) == 0 {
		tb.Error("no calls are counted")
	}
	seen := map[string]bool{}
	for _, c := range s.first.Calls {
		service, operation, ok := strings.Cut(c.API, ":")
		if !ok || service == "" || operation == "" {
			tb.Errorf("%q does not name a service and an operation", c.API)
		}
		if seen[c.API] {
			tb.Errorf("%s is counted twice", c.API)
		}
		seen[c.API] = true
		if c.Count <= 0 || c.Units < 0 || c.Cost < 0 {
			tb.Errorf("%s: %d calls, %d units, cost %s", c.API, c.Count, c.Units, c.Cost)
		}
	}
	if b := s.first.Billed; b != nil && (b.Source == "" || !b.Start.Before(b.End) || b.End.After(s.Query.Now)) {
		tb.Errorf("the bill has source %q for [%s, %s)", b.Source, b.Start, b.End)
	}
}

// progressLog records reported progress from any goroutine.
type progressLog struct {
	mu   sync.Mutex
	list []round.Progress
}

func (l *progressLog) add(p round.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, p)
}

func (l *progressLog) all() []round.Progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// progress checks that progress rises with each part and ends complete.
func progress(tb testing.TB, s *subject) {
	if len(s.progress) == 0 {
		tb.Error("no progress is told")
		return
	}
	var last round.Progress
	for _, p := range s.progress {
		if p.What == "" {
			tb.Errorf("%+v does not say what was done", p)
		}
		if p.Done > p.Total {
			tb.Errorf("%+v is more than all", p)
		}
		if p.Done < last.Done || p.Total < last.Total || p.Resources < last.Resources {
			tb.Errorf("%+v comes after %+v", p, last)
		}
		last = p
	}
	if last.Done != last.Total {
		tb.Errorf("the last part told is %d of %d", last.Done, last.Total)
	}
	if last.Resources > len(s.first.Resources) {
		tb.Errorf("%d resources were told and %d are observed", last.Resources, len(s.first.Resources))
	}
}

// deepEqual compares values deeply. Times are equal if they are the same instant.
var deepEqual = cmp.Options{
	cmp.Exporter(func(reflect.Type) bool { return true }), cmpopts.EquateEmpty(), cmp.Comparer(time.Time.Equal),
}

// deterministic checks that two equal observations of the same account have equal results.
func deterministic(tb testing.TB, s *subject) {
	a, b := s.first, s.second
	if d := cmp.Diff(a.Inventory, b.Inventory, deepEqual); d != "" {
		tb.Errorf("the second inventory differs (-first +second):\n%s", d)
	}
	for _, part := range []struct {
		what string
		a, b any
	}{
		{"clouds", a.Cloud, b.Cloud}, {"accounts", a.Accounts, b.Accounts}, {"regions", a.Regions, b.Regions},
		{"unread kinds", a.Unread, b.Unread}, {"knowledge of commitments", a.CommitmentsKnown, b.CommitmentsKnown},
	} {
		if d := cmp.Diff(part.a, part.b, deepEqual); d != "" {
			tb.Errorf("the second observation's %s differ (-first +second):\n%s", part.what, d)
		}
	}
	for ref, w := range a.Windows {
		other := b.Windows[ref]
		if other == nil {
			tb.Errorf("%s has usage only in the first observation", ref)
		} else if !same(w, other) {
			tb.Errorf("%s: the usage of the second observation differs", ref)
		}
	}
	for ref := range b.Windows {
		if a.Windows[ref] == nil {
			tb.Errorf("%s has usage only in the second observation", ref)
		}
	}
}

// independent checks that observations share no memory.
func independent(tb testing.TB, s *subject) {
	resources := map[*inventory.Resource]bool{}
	details := map[inventory.Detail]bool{}
	for _, r := range s.first.Resources {
		resources[r] = true
		if r.Detail != nil {
			details[r.Detail] = true
		}
	}
	tags := map[uintptr]bool{}
	for _, r := range s.first.Resources {
		if r.Tags != nil {
			tags[reflect.ValueOf(r.Tags).Pointer()] = true
		}
	}
	for _, r := range s.second.Resources {
		switch {
		case resources[r], details[r.Detail], r.Tags != nil && tags[reflect.ValueOf(r.Tags).Pointer()]:
			tb.Errorf("%s: two observations share it", r.Ref())
		}
	}
	for ref, w := range s.second.Windows {
		if w != nil && s.first.Windows[ref] == w {
			tb.Errorf("%s: two observations share its usage", ref)
		}
	}
}

// canceled checks that an observation with a canceled context returns promptly with an error.
func canceled(tb testing.TB, s *subject) {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	o, err := promptly(ctx, tb, s, s.Query)
	if !errors.Is(err, context.Canceled) {
		tb.Errorf("a canceled observation returned %v, want %v", err, context.Canceled)
	}
	if o != nil {
		tb.Error("a canceled observation returned one")
	}
}

// interrupted checks that an observation canceled after its first part returns an error, unless
// that was the only part.
func interrupted(tb testing.TB, s *subject) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var log progressLog
	q := s.Query
	q.Progress = func(p round.Progress) {
		log.add(p)
		cancel()
	}
	_, err := promptly(ctx, tb, s, q)
	told := log.all()
	if len(told) == 0 || told[0].Done == told[0].Total {
		return
	}
	if !errors.Is(err, context.Canceled) {
		tb.Errorf("an observation canceled after part %d of %d returned %v, want %v", told[0].Done, told[0].Total, err,
			context.Canceled)
	}
}

// promptly observes with a bounded wait, and fails if that takes long.
func promptly(ctx context.Context, tb testing.TB, s *subject, q round.Query) (*round.Observation, error) {
	type result struct {
		o   *round.Observation
		err error
	}
	done := make(chan result, 1)
	observer := s.New(tb)
	go func() {
		o, err := Observe(ctx, observer, q)
		done <- result{o, err}
	}()
	// The time limit starts when the context is canceled.
	select {
	case r := <-done:
		return r.o, r.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(s.Prompt)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.o, r.err
	case <-timer.C:
		tb.Errorf("a canceled observation was still at it after %s", s.Prompt)
		return nil, context.Canceled
	}
}
