package action_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
)

// TestWarningKeepCommandNamesResource checks that the command works for a person who never scanned,
// and in whatever account the id is.
func TestWarningKeepCommandNamesResource(t *testing.T) {
	w := newWorld()
	w.idle("i-1")
	people := &heard{People: w.people}
	w.connect(w.store, w.cloud, people)
	w.round(t)
	if len(people.messages) != 1 ||
		!strings.HasPrefix(people.messages[0].Keep, "curfew keep test/1/here/instance/i-1 --for ") {
		t.Errorf("told %+v", people.messages)
	}
}

// heard keeps what people were told.
type heard struct {
	*actiontest.People
	messages []action.Message
}

func (h *heard) Notify(ctx context.Context, to string, m action.Message) (string, error) {
	h.messages = append(h.messages, m)
	return h.People.Notify(ctx, to, m)
}

// TestReportsFailedCall checks that a failed call is reported as failed, also when its outcome
// cannot be looked up.
func TestReportsFailedCall(t *testing.T) {
	w := newWorld()
	w.idle("i-1")
	w.rounds(t, 15*time.Minute, 5*time.Minute)
	w.cloud.Fail(actiontest.Fault{Step: "terminate", Message: "access denied"})
	w.cloud.Fail(actiontest.Fault{Step: "look", Message: "throttled"})
	r := w.rounds(t, 5*time.Minute, 5*time.Minute)
	want(t, r, "i-1", action.ResultFailed)
	if !r.Partial || !strings.Contains(why(r, "i-1"), "access denied") ||
		!strings.Contains(why(r, "i-1"), "throttled") {
		t.Errorf("partial: %v, %s", r.Partial, why(r, "i-1"))
	}
}

// TestNotifiesFirstFailureOnce tells people of a failed call at once, in the provider's words, and not
// again while it is made again.
func TestNotifiesFirstFailureOnce(t *testing.T) {
	w := newWorld()
	w.idle("i-1")
	people := &heard{People: w.people}
	w.connect(w.store, w.cloud, people)
	w.rounds(t, 15*time.Minute, 5*time.Minute)
	for range 2 {
		w.cloud.Fail(actiontest.Fault{Step: "terminate", Message: "access denied by an SCP"})
	}
	w.rounds(t, 20*time.Minute, time.Minute)
	var kinds []string
	for _, m := range people.messages {
		kinds = append(kinds, m.Kind)
		if m.Kind == "alarm" && !strings.Contains(m.Because, "access denied by an SCP") {
			t.Errorf("the alarm says %q", m.Because)
		}
	}
	if got := strings.Join(kinds, " "); got != "warning alarm acted" {
		t.Errorf("told %s", got)
	}
	items, err := w.store.Items(t.Context(), "test/1", action.ItemQuery{UnderWay: true})
	if err != nil || len(items) != 0 {
		t.Errorf("open are %+v, %v", items, err)
	}
}

// TestNotifiesActionConfirmedAfterRestart checks that the process that made the call ends before
// the provider confirms it, and the machine is gone when the next one looks: its owner is told all
// the same.
func TestNotifiesActionConfirmedAfterRestart(t *testing.T) {
	w := newWorld()
	w.idle("i-1")
	w.cloud.Slow(2)
	w.rounds(t, 17*time.Minute, time.Minute)
	people := &heard{People: w.people}
	w.clock.Reboot(10 * time.Minute)
	w.connect(w.store, w.cloud, people)
	w.ladder.Verify = func(context.Context, []action.Item) (map[string]action.Proposal, error) { return nil, nil }
	for range 3 {
		w.clock.Advance(time.Minute)
		if _, err := w.ladder.Round(t.Context(), action.Scope{}); err != nil {
			t.Fatal(err)
		}
	}
	if len(people.messages) != 1 {
		t.Fatalf("told %+v", people.messages)
	}
	m := people.messages[0]
	if m.Kind != "acted" || m.Resource.Owner.User != "ana" ||
		m.Resource.Type != "p4d.24xlarge" || len(m.Evidence) == 0 ||
		m.Because != "idle since yesterday" || !m.Hourly.Known() || m.Undo != "none" {
		t.Errorf("told %+v about %+v", m, m.Resource)
	}
}

// TestNoticesAreRetriedUntilAccepted checks that while its channel refuses, a notice is retried at
// growing intervals, delivered once when the channel accepts, and given up after a week.
func TestNoticesAreRetriedUntilAccepted(t *testing.T) {
	for _, tc := range []struct {
		name     string
		accepts  time.Duration // after the action
		attempts [2]int
		want     string
	}{
		{"accepts at once", 0, [2]int{0, 0}, "acted: accepted by test:ana"},
		{"accepts after an hour", time.Hour, [2]int{5, 7}, "acted: accepted by test:ana"},
		{"never accepts", 8 * 24 * time.Hour, [2]int{170, 180}, "acted: the channel of ana refused the message"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			w.idle("i-1")
			w.rounds(t, 15*time.Minute, 5*time.Minute)
			refused := &counted{People: w.people}
			w.connect(w.store, w.cloud, refused)
			w.people.Refuse("ana", tc.accepts > 0)
			w.rounds(t, tc.accepts+time.Minute, time.Minute)
			if n := refused.attempts; n < tc.attempts[0] || n > max(tc.attempts[1], 1) {
				t.Errorf("%d attempts", n)
			}
			w.people.Refuse("ana", false)
			w.rounds(t, 2*time.Hour, time.Minute)
			var got []string
			for _, e := range w.entries("i-1") {
				if e.What == action.EventNotified || e.What == action.EventUnnotified {
					got = append(got, e.Outcome)
				}
			}
			if len(got) != 1 || !strings.HasPrefix(got[0], tc.want) {
				t.Errorf("the audit log has %q", got)
			}
		})
	}
}

// counted counts the deliveries of notices of what was done.
type counted struct {
	*actiontest.People
	attempts int
}

func (c *counted) Notify(ctx context.Context, to string, m action.Message) (string, error) {
	if m.Kind == "acted" {
		c.attempts++
	}
	return c.People.Notify(ctx, to, m)
}

// TestSilentChannelsDoNotHoldUpActions: after a few refusals a round leaves the other notices to
// the next one.
func TestSilentChannelsDoNotHoldUpActions(t *testing.T) {
	w := newWorld()
	w.others = 100 // no fuse
	w.idle("i-1", "i-2", "i-3", "i-4", "i-5", "i-6")
	w.rounds(t, 15*time.Minute, time.Minute)
	refused := &counted{People: w.people}
	w.connect(w.store, w.cloud, refused)
	w.people.Refuse("ana", true)
	w.rounds(t, time.Minute, time.Minute)
	if n := len(w.cloud.Carried("terminate")); n != 6 || refused.attempts > 3 {
		t.Errorf("%d machines ended, %d deliveries were tried", n, refused.attempts)
	}
	w.people.Refuse("ana", false)
	w.rounds(t, 10*time.Minute, time.Minute)
	acted := 0
	for _, m := range w.people.Told() {
		if m.Kind == "acted" {
			acted++
		}
	}
	if acted != 6 {
		t.Errorf("%d notices arrived", acted)
	}
}
