package intent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
	"github.com/curfew-dev/curfew/internal/intent/intenttest"
)

var start = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// world is one subject, a provider with or without idempotency keys, and a clock.
type world struct {
	now      time.Time
	journal  *intenttest.Journal
	provider *intenttest.Provider
}

func newWorld(keyed bool) *world {
	w := &world{now: start}
	w.journal, w.provider = intenttest.NewJournal(w.clock), intenttest.NewProvider(w.clock, keyed)
	return w
}

func (w *world) clock() time.Time { return w.now }

func (w *world) run() intent.Run {
	return intent.Run{Now: w.clock, Idempotent: w.provider.Keyed, Class: intenttest.Class,
		Redact: func(s string) string { return strings.ReplaceAll(s, "s3cr3t", "[redacted]") }}
}

// pass runs one process's pass over the subject.
func (w *world) pass(boundary func()) (intent.Step, intent.Outcome, error) {
	s := intenttest.Open("demo", w.journal, w.provider)
	s.Boundary = boundary
	step := s.Record.Step
	if step.Name == "" {
		step = intent.Step{Name: "launch", Key: "key-1", Params: "2 x L4"}
	}
	return w.run().Do(context.Background(), s, step)
}

// events returns the written events in short form.
func (w *world) events() string {
	var out []string
	for _, e := range w.journal.Entries() {
		out = append(out, string(e.What))
	}
	return strings.Join(out, " ")
}

// TestPasses checks the result of each pass over a step, what is written, and the numbers of calls
// requested and executed.
func TestPasses(t *testing.T) {
	type pass struct {
		after time.Duration
		fail  []intenttest.Fault
		want  intent.Outcome
		err   string
	}
	lost := intenttest.Fault{On: "launch", Message: "connection reset", Carried: true}
	failed := intenttest.Fault{On: "launch", Message: "service unavailable s3cr3t"}
	swallowed := intenttest.Fault{On: "launch"}
	refused := intenttest.Fault{On: "launch", Message: "no machines", Class: "capacity"}
	blind := intenttest.Fault{On: "look", Message: "throttled"}
	for _, tc := range []struct {
		name           string
		keyed          bool
		hidden         time.Duration
		slow           int
		passes         []pass
		events         string
		calls, effects int
		state          intent.State
	}{
		{"at once", false, 0, 0, []pass{{want: intent.Done}, {want: intent.Done}},
			"intended accepted confirmed", 1, 1, intent.Confirmed},
		{
			"slowly", false, 0, 2, []pass{
				{want: intent.UnderWay}, {want: intent.UnderWay}, {after: time.Hour, want: intent.Done},
			},
			"intended accepted confirmed", 1, 1, intent.Confirmed},
		{"an answer that was lost is found", false, 0, 0, []pass{{fail: []intenttest.Fault{lost}, want: intent.Done}},
			"intended unanswered confirmed", 1, 1, intent.Confirmed},
		{
			"an answer that was lost, of what takes long, is found", false, 0, 1,
			[]pass{{fail: []intenttest.Fault{lost}, want: intent.UnderWay}, {want: intent.Done}},
			"intended unanswered found confirmed", 1, 1, intent.Confirmed},
		{"lost and shown late, without keys: it is looked up, never called again", false, 90 * time.Second, 0,
			[]pass{
				{fail: []intenttest.Fault{lost}, want: intent.Unseen}, {after: time.Minute, want: intent.Unseen},
				{after: time.Minute, want: intent.Done},
			},
			"intended unanswered confirmed", 1, 1, intent.Confirmed},
		{"lost and shown late, with keys: it is called again and has one effect", true, 90 * time.Second, 0,
			[]pass{
				{fail: []intenttest.Fault{lost}, want: intent.Unseen}, {after: time.Minute, want: intent.Unseen},
				{after: time.Minute, want: intent.Done},
			},
			"intended unanswered repeated accepted confirmed", 2, 1, intent.Confirmed},
		{
			"failed, with keys: it is called again", true, 0, 0, []pass{
				{fail: []intenttest.Fault{failed}, want: intent.Unseen}, {want: intent.Done},
			},
			"intended unanswered repeated accepted confirmed", 2, 1, intent.Confirmed},
		{"failed, without keys: it goes back after five minutes", false, 0, 0,
			[]pass{
				{fail: []intenttest.Fault{failed}, want: intent.Unseen}, {after: 5 * time.Minute, want: intent.Unseen},
				{after: time.Second, want: intent.Lapsed}, {want: intent.Lapsed},
			},
			"intended unanswered", 1, 0, intent.Intended},
		{"failed, with keys: an old intent goes back uncalled", true, 0, 0,
			[]pass{
				{fail: []intenttest.Fault{failed}, want: intent.Unseen},
				{after: 5*time.Minute + time.Second, want: intent.Lapsed},
			},
			"intended unanswered", 1, 0, intent.Intended},
		{"no call begins that may outlive its intent", true, 0, 0,
			[]pass{
				{fail: []intenttest.Fault{failed}, want: intent.Unseen},
				{after: 4*time.Minute + time.Second, want: intent.Unseen},
			},
			"intended unanswered", 1, 0, intent.Intended},
		{"an intent of the future goes back", true, 0, 0,
			[]pass{
				{fail: []intenttest.Fault{failed}, want: intent.Unseen}, {after: -time.Second, want: intent.Lapsed},
			},
			"intended unanswered", 1, 0, intent.Intended},
		{"an old intent that left a trace is settled", true, 0, 0,
			[]pass{
				{fail: []intenttest.Fault{lost, blind}, err: "throttled"}, {after: 10 * time.Hour, want: intent.Done},
			},
			"intended unanswered confirmed", 1, 1, intent.Confirmed},
		{"accepted and never carried out goes back", false, 0, 0,
			[]pass{
				{fail: []intenttest.Fault{swallowed}, want: intent.Unseen}, {after: time.Hour, want: intent.Lapsed},
			},
			"intended accepted", 1, 0, intent.Accepted},
		{"accepted and never carried out, with keys, is called again", true, 0, 0,
			[]pass{
				{fail: []intenttest.Fault{swallowed}, want: intent.Unseen}, {after: time.Minute, want: intent.Done},
			},
			"intended accepted repeated accepted confirmed", 2, 1, intent.Confirmed},
		{
			"refused", true, 0, 0, []pass{
				{fail: []intenttest.Fault{refused}, want: intent.Rejected}, {want: intent.Rejected},
			},
			"intended refused", 1, 0, intent.Refused},
		{
			"refused when it was called again, though the first call had its effect: the key is known", true,
			90 * time.Second,
			0,
			[]pass{
				{fail: []intenttest.Fault{lost, refused}, want: intent.Unseen},
				{after: time.Minute, want: intent.Unseen},
				{after: time.Minute, want: intent.Done},
			},
			"intended unanswered repeated accepted confirmed", 2, 1, intent.Confirmed},
		{"refused when it was called again: it counts when no earlier call is under way", true, 0, 0,
			[]pass{
				{fail: []intenttest.Fault{failed, refused}, want: intent.Unseen}, {want: intent.Unseen},
				{after: 2 * time.Minute, want: intent.Unseen}, {after: time.Second, want: intent.Rejected},
			},
			"intended unanswered repeated unanswered refused", 2, 0, intent.Refused},
		{"what cannot be looked up is not called again", true, 0, 0,
			[]pass{
				{fail: []intenttest.Fault{failed, blind, blind}, err: "look up launch at the provider: throttled"},
				{err: "throttled"}, {want: intent.Done},
			},
			"intended unanswered repeated accepted confirmed", 2, 1, intent.Confirmed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(tc.keyed)
			w.provider.Delay(tc.hidden, tc.slow)
			for i, p := range tc.passes {
				w.now = w.now.Add(p.after)
				for _, f := range p.fail {
					w.provider.Fail(f)
				}
				step, out, err := w.pass(nil)
				if (err == nil) != (p.err == "") || err != nil && !strings.Contains(err.Error(), p.err) {
					t.Fatalf("pass %d: error %v, want %q", i, err, p.err)
				}
				if out != p.want {
					t.Fatalf("pass %d: %q, want %q", i, out, p.want)
				}
				if kept := w.journal.Read("demo").Step; kept != step && !kept.IntentAt.Equal(step.IntentAt) ||
					kept.State() != step.State() || kept.Receipt != step.Receipt {
					t.Errorf("pass %d: it returns %+v and kept %+v", i, step, kept)
				}
				if strings.Contains(step.Error, "s3cr3t") {
					t.Errorf("pass %d: it keeps a secret: %s", i, step.Error)
				}
			}
			step := w.journal.Read("demo").Step
			if got := w.events(); got != tc.events {
				t.Errorf("written: %s; want %s", got, tc.events)
			}
			if got := step.State(); got != tc.state {
				t.Errorf("it is %s, want %s", got, tc.state)
			}
			if calls, effects := len(w.provider.Calls()), len(w.provider.Effects()); calls != tc.calls ||
				effects != tc.effects {
				t.Errorf("%d calls with %d effects, want %d with %d", calls, effects, tc.calls, tc.effects)
			}
			if step.State() == intent.Confirmed && (step.Receipt == "" || step.Error != "") {
				t.Errorf("it is confirmed with receipt %q and error %q", step.Receipt, step.Error)
			}
		})
	}
}

// TestRefusedClass checks that a refusal is recorded with its class and reason.
func TestRefusedClass(t *testing.T) {
	w := newWorld(true)
	w.provider.Fail(intenttest.Fault{On: "launch", Message: "quota of 8 s3cr3t", Class: "quota"})
	step, _, err := w.pass(nil)
	if err != nil || step.Refused != "quota" || step.Error != "quota of 8 [redacted]" {
		t.Errorf("refused %q: %q, %v", step.Refused, step.Error, err)
	}
}

// TestGivenUp checks that a call that the provider gave up is settled.
func TestGivenUp(t *testing.T) {
	w := newWorld(false)
	w.provider.Delay(0, 5)
	if _, out, err := w.pass(nil); err != nil || out != intent.UnderWay {
		t.Fatal(out, err)
	}
	w.provider.Break("demo")
	for range 2 {
		if step, out, err := w.pass(nil); err != nil || out != intent.Failed || step.State() != intent.GivenUp {
			t.Errorf("%s: %+v, %v", out, step, err)
		}
	}
	if got := w.events(); got != "intended accepted given-up" {
		t.Errorf("written: %s", got)
	}
}

// TestTwoProcesses checks that two interleaved processes make one call, and cause one effect even
// without idempotency keys.
func TestTwoProcesses(t *testing.T) {
	for _, keyed := range []bool{true, false} {
		for at := 1; ; at++ {
			w := newWorld(keyed)
			w.provider.Delay(time.Second, 1)
			n, met := 0, false
			_, _, err := w.pass(func() {
				if n++; n == at {
					met = true
					if _, _, err := w.pass(nil); err != nil {
						t.Errorf("boundary %d: the second process: %v", at, err)
					}
				}
			})
			if err != nil && !errors.Is(err, intent.ErrConflict) {
				t.Errorf("boundary %d: the first process: %v", at, err)
			}
			for range 3 {
				w.now = w.now.Add(time.Second)
				_, _, _ = w.pass(nil)
			}
			if got := w.journal.Read("demo").Step.State(); got != intent.Confirmed {
				t.Errorf("keys %t, boundary %d: it ends %s", keyed, at, got)
			}
			if n := len(w.provider.Effects()); n != 1 {
				t.Errorf("keys %t, boundary %d: %d effects", keyed, at, n)
			}
			if !met {
				break
			}
		}
	}
}

// TestSuspended checks that a process suspended between intent and call makes no call.
func TestSuspended(t *testing.T) {
	for _, keyed := range []bool{true, false} {
		w := newWorld(keyed)
		n := 0
		_, out, err := w.pass(func() {
			if n++; n == 2 { // the intent is written
				w.now = w.now.Add(time.Hour)
			}
		})
		if err != nil || out != intent.Lapsed || len(w.provider.Calls()) != 0 {
			t.Errorf("keys %t: %s, %v, %d calls", keyed, out, err, len(w.provider.Calls()))
		}
	}
}

// TestGivenUpWhileCalled checks that a call is recorded although the command was canceled.
func TestGivenUpWhileCalled(t *testing.T) {
	w := newWorld(true)
	ctx, cancel := context.WithCancel(t.Context())
	s := intenttest.Open("demo", w.journal, w.provider)
	if _, _, err := w.run().Do(ctx, canceling{s, cancel}, intent.Step{Name: "launch", Key: "k"}); err != nil {
		t.Fatal(err)
	}
	if got := w.events(); got != "intended accepted confirmed" {
		t.Errorf("written: %s", got)
	}
}

type canceling struct {
	*intenttest.Subject
	cancel func()
}

func (c canceling) Call(ctx context.Context, s intent.Step) (string, error) {
	defer c.cancel()
	return c.Subject.Call(ctx, s)
}

// TestPatience checks that an unresponsive provider is not waited for longer than Patience, and
// that the call counts as one that may have taken effect.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(false)
		s := intenttest.Open("demo", w.journal, w.provider)
		began := time.Now()
		step, _, err := w.run().Do(t.Context(), silent{s}, intent.Step{Name: "launch", Key: "k"})
		if took := time.Since(began); took != 2*intent.Patience {
			t.Errorf("it took %s", took)
		}
		var unread *intent.Unread
		if !errors.As(err, &unread) ||
			!strings.Contains(step.Error, "wait for the provider to launch: no answer within 1m0s") {
			t.Errorf("%v; kept %q", err, step.Error)
		}
	})
}

type silent struct{ *intenttest.Subject }

func (silent) Call(ctx context.Context, _ intent.Step) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

func (silent) Look(ctx context.Context, _ intent.Step) (intent.Progress, string, error) {
	<-ctx.Done()
	return "", "", ctx.Err()
}

// TestMisuse checks that there is no call without intent, name and key, and none after the step is
// settled.
func TestMisuse(t *testing.T) {
	w := newWorld(true)
	s := intenttest.Open("demo", w.journal, w.provider)
	for name, f := range map[string]func() error{
		"no name": func() error { _, _, err := w.run().Do(t.Context(), s, intent.Step{Key: "k"}); return err },
		"no key":  func() error { _, _, err := w.run().Do(t.Context(), s, intent.Step{Name: "launch"}); return err },
		"planned": func() error {
			_, _, err := w.run().Call(t.Context(), s, intent.Step{Name: "launch", Key: "k"})
			return err
		},
		"answered": func() error {
			_, _, err := w.run().Call(t.Context(), s, intent.Step{
				Name: "launch", Key: "k", IntentAt: start, ConfirmedAt: start,
			})
			return err
		},
	} {
		if err := f(); err == nil {
			t.Errorf("%s: it goes through", name)
		}
	}
	if len(w.provider.Calls()) != 0 || len(w.journal.Entries()) != 0 {
		t.Errorf("calls %+v, entries %+v", w.provider.Calls(), w.journal.Entries())
	}
}
