package action_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
)

// TestAWarningsKeepNamesTheResource: the command works for a person who never scanned,
// and in whatever account the id is.
func TestAWarningsKeepNamesTheResource(t *testing.T) {
	w := newWorld()
	w.idle("i-1")
	people := &heard{People: w.people}
	w.connect(w.store, w.cloud, people)
	w.round(t)
	if len(people.messages) != 1 || !strings.HasPrefix(people.messages[0].Keep, "curfew keep test/1/here/instance/i-1 --for ") {
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

// TestAFailedCallIsNoAct: a failed call is reported as failed, also when its outcome
// cannot be looked up.
func TestAFailedCallIsNoAct(t *testing.T) {
	w := newWorld()
	w.idle("i-1")
	w.rounds(t, 15*time.Minute, 5*time.Minute)
	w.cloud.Fail(actiontest.Fault{Step: "terminate", Message: "access denied"})
	w.cloud.Fail(actiontest.Fault{Step: "look", Message: "throttled"})
	r := w.rounds(t, 5*time.Minute, 5*time.Minute)
	want(t, r, "i-1", action.ResultFailed)
	if !r.Partial || !strings.Contains(why(r, "i-1"), "access denied") || !strings.Contains(why(r, "i-1"), "throttled") {
		t.Errorf("partial: %v, %s", r.Partial, why(r, "i-1"))
	}
}

// TestAFailureIsToldOnce tells people of a failed call at once, in the provider's words, and not
// again while it is made again.
func TestAFailureIsToldOnce(t *testing.T) {
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
