package act_test

import (
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/act"
	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/view"
)

// TestDoctorStateListsEachTrouble plants each kind of trouble that a state can have, and looks for
// its line and for what to do.
func TestDoctorStateListsEachTrouble(t *testing.T) {
	req := apptest.Request(t, "")
	doc, err := act.DoctorState(t.Context(), req)
	if err != nil || len(doc.Troubles) != 0 || doc.Bytes == 0 || doc.Database != "sqlite" {
		t.Fatalf("a new state: %+v, %v", doc, err)
	}
	_, s, err := req.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now := apptest.Now
	if _, _, err := s.Actions().BeginRound(t.Context(), "sim/1", action.Clock{Wall: now}); err != nil {
		t.Fatal(err)
	}
	item := func(id string, phase action.Phase, alarm string, at time.Time) action.Item {
		return action.Item{
			ID: id, Account: "sim/1", Source: "idle", Phase: phase, Alarm: alarm, UpdatedAt: at,
			Do: policy.Do{Verb: policy.Stop},
			Ref: inventory.Ref{
				Cloud: "sim", Account: "1", Region: "us-east-1", Kind: inventory.KindInstance, ID: "i-" + id,
			},
		}
	}
	owed := []action.Notice{{
		ID: "open-1-owner", Account: "sim/1", Item: "open", Recipient: "owner", Kind: "acted",
		Error: "the channel refused",
		Ref:   inventory.Ref{ID: "i-open"}, CreatedAt: now.Add(-time.Hour), DueAt: now.Add(time.Hour),
	}}
	if _, err := s.Actions().SaveOwing(t.Context(), item("open", action.Acting, "stop failed: denied", now),
		owed); err != nil {
		t.Fatal(err)
	}
	for _, it := range []action.Item{
		item("failed", action.Failed, "the provider gave up stop", now.Add(-6*24*time.Hour)),
		item("old", action.Failed, "the provider gave up stop", now.Add(-8*24*time.Hour)),
		item("withdrawn", action.Withdrawn, "its condition no longer holds", now),
		item("fine", action.Warned, "", now),
		item("consent", action.Observed, "unsaved-disk: vol-1 would be lost", now),
		item("unwarned", action.Observed, action.NoWarning+": no recipient", now.Add(-time.Minute)),
		item("unwarned-too", action.Observed, action.NoWarning+": no recipient", now.Add(-2*time.Minute)),
	} {
		if _, err := s.Actions().Save(t.Context(), it); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Actions().Blow(t.Context(), action.Fuse{
		Account: "sim/1", Source: "nights", At: now, Due: 6, Selected: 8,
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := act.Freeze(t.Context(), req, "incident", true); err != nil {
		t.Fatal(err)
	}
	req.Troubles = func() []view.Trouble {
		return []view.Trouble{{What: view.TroubleSource, Why: "aws/2: denied", Next: "look"}}
	}
	if doc, err = act.DoctorState(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range doc.Troubles {
		got = append(got, x.What+": "+x.Why+" → "+x.Next)
	}
	want := []struct{ what, why, next string }{
		{"frozen", "by ana: incident", "curfew unfreeze"},
		{"source", "aws/2: denied", "look"},
		{"fuse", "nights", "curfew confirm nights"},
		{"alarm", "stop i-open: stop failed: denied", "curfew audit --item open"},
		{"alarm", "stop i-unwarned: no warning was sent", "curfew audit --what unwarned"},
		{"alarm", "stop i-failed: the provider gave up stop", "curfew audit --item failed"},
		{"notice", "the owner of i-open was not notified", "notify"},
	}
	if len(got) != len(want) {
		t.Fatalf("troubles:\n%s", strings.Join(got, "\n"))
	}
	for i, w := range want {
		if x := doc.Troubles[i]; x.What != w.what || !strings.Contains(x.Why, w.why) ||
			!strings.Contains(x.Next, w.next) {
			t.Errorf("got %s, want %+v", got[i], w)
		}
	}
	if len(doc.Rounds) != 1 || doc.Rounds[0].Account != "sim/1" || !doc.Rounds[0].At.Equal(now) {
		t.Errorf("rounds: %+v", doc.Rounds)
	}
}
