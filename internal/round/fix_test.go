package round

import (
	"context"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/usage"
)

// fix makes one round about the finding of idle GPUs on i-1.
func (f *fleet) fix(t testing.TB, id string) *Result {
	t.Helper()
	p := setting(t, Observation{})
	p.Lister, p.Sources, p.Clock, p.Ladder = f, []usage.Source{f}, f.now, f.ladder
	p.Requests = []Request{
		{
			Finding: id, Rule: "gpu-instance-idle", Resource: f.machines[0].Ref(), Notify: []string{"owner"},
			Grace: 15 * time.Minute, ScratchDisks: true,
		},
	}
	out, err := New(p).Round(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// idleFinding is the id of the finding that i-1 is idle.
func (f *fleet) idleFinding(t testing.TB) string {
	t.Helper()
	f.step = time.Hour
	p := setting(t, Observation{})
	p.Lister, p.Sources = f, []usage.Source{f}
	a, err := New(p).Round(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range a.Findings {
		if found.Rule == "gpu-instance-idle" && found.Resource.ID == "i-1" {
			return found.ID
		}
	}
	t.Fatalf("no finding: %s", rulesOf(a))
	return ""
}

func TestFixOfGangMember(t *testing.T) {
	for _, tc := range []struct {
		name  string
		busy  bool
		ended int
	}{{"the others rest", false, 1}, {"another works", true, 0}} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFleet(2)
			for _, r := range f.machines {
				r.Gang = "run-1"
			}
			f.busy["i-2"] = tc.busy
			id := f.idleFinding(t)
			var out *Result
			for range 3 {
				out = f.fix(t, id)
				f.clock.Advance(10 * time.Minute)
			}
			if got := len(f.cloud.Carried("")); got != tc.ended {
				t.Errorf("%d calls, want %d: %+v", got, tc.ended, out.Reports)
			}
		})
	}
}

// TestFixWarnsAgainAfterFindingWasGone checks that the machine worked between the warning and the
// end of its grace, so that the owner is warned again.
func TestFixWarnsAgainAfterFindingWasGone(t *testing.T) {
	f := newFleet(1)
	id := f.idleFinding(t)
	f.fix(t, id)
	f.clock.Advance(10 * time.Minute)
	f.busy["i-1"] = true
	if out := f.fix(t, id); len(out.GoneRequests) != 1 {
		t.Fatalf("a busy machine's finding holds: %+v", out)
	}
	f.busy["i-1"] = false
	f.clock.Advance(10 * time.Minute)
	if out := f.fix(t, id); len(f.cloud.Calls()) > 0 || out.Reports[0].Lines[0].Result != action.ResultWarned {
		t.Fatalf("acted under a warning that was void: %+v", out.Reports)
	}
	f.clock.Advance(20 * time.Minute)
	if f.fix(t, id); len(f.cloud.Carried("")) != 1 {
		t.Errorf("%d calls after the second warning, want one", len(f.cloud.Carried("")))
	}
}

// TestConfirmsFixAfterFindingIsGone: what is under way is looked up although the
// machine is no finding any more.
func TestConfirmsFixAfterFindingIsGone(t *testing.T) {
	f := newFleet(1)
	id := f.idleFinding(t)
	f.cloud.Slow(1)
	f.fix(t, id)
	f.clock.Advance(20 * time.Minute)
	if out := f.fix(t, id); len(out.Reports) != 1 || out.Reports[0].Lines[0].Result != action.ResultActed {
		t.Fatalf("not under way: %+v", out)
	}
	f.busy["i-1"] = true // it is no finding any more
	f.clock.Advance(time.Minute)
	out := f.fix(t, id)
	if len(out.Reports) != 1 || len(out.Reports[0].Lines) != 1 ||
		out.Reports[0].Lines[0].Result != action.ResultConfirmed {
		t.Errorf("the end was not confirmed: %+v", out)
	}
}
