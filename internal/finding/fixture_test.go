package finding

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/price/aws"
	"github.com/curfew-dev/curfew/internal/usage"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// fleetGroup manages the machines of a group.
var fleetGroup = inventory.Manager{Kind: inventory.ManagerAutoScaling, Name: "fleet"}

// fixture builds an account.
type fixture struct {
	Account
	t testing.TB
	// judge lets package duty derive verdicts that were not set explicitly.
	judge bool
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{t: t, Account: Account{Now: now, Prices: book, Rules: registered, CommitmentsKnown: true,
		Windows: map[inventory.Ref]*usage.Window{}, Verdicts: map[inventory.Ref]duty.Verdict{}}}
}

// add adds a resource with default account and region.
func (f *fixture) add(r inventory.Resource) *inventory.Resource {
	if r.Cloud == "" {
		r.Cloud, r.Account = "aws", "123456789012"
	}
	if r.Region == "" {
		r.Region = "us-east-1"
	}
	if r.Tags == nil {
		r.Tags = map[string]string{}
	}
	f.Resources = append(f.Resources, &r)
	return &r
}

// running adds a Linux on-demand machine launched 60 days ago.
func (f *fixture) running(id, machineType string,
	change ...func(*inventory.Resource, *inventory.Instance)) *inventory.Resource {
	d := &inventory.Instance{
		Market: inventory.OnDemand, Platform: inventory.LinuxPlatform, Tenancy: inventory.SharedTenancy,
	}
	r := inventory.Resource{ID: id, Kind: inventory.KindInstance, Type: machineType, State: inventory.StateRunning,
		Zone: "us-east-1a", CreatedAt: ago(60 * day), Detail: d}
	for _, c := range change {
		c(&r, d)
	}
	return f.add(r)
}

// is sets a machine's verdict.
func (f *fixture) is(r *inventory.Resource, s duty.State) *inventory.Resource {
	f.Verdicts[r.Ref()] = duty.Verdict{State: s, Duration: 14 * day, Why: "it is " + s.String(), Coverage: 1,
		Evidence: []usage.Evidence{
			{Signal: "gpu_util_max_pct", Value: "0", Window: 14 * day, Coverage: 1, Source: "test"},
		}}
	return r
}

// window gives a resource an empty window with a point an hour.
func (f *fixture) window(r *inventory.Resource, length time.Duration) *usage.Window {
	w := usage.NewWindow(ago(length), now, time.Hour, "test", nil)
	f.Windows[r.Ref()] = w
	return w
}

// series adds a point for every step of a window; negative values are gaps.
func series(w *usage.Window, gpu string, s usage.Signal, value func(at time.Time) float64) {
	for at := w.From; at.Before(w.To); at = at.Add(w.Step) {
		if v := value(at); v >= 0 {
			w.Add(gpu, s, usage.Point{Time: at, Mean: v, Max: v})
		}
	}
}

func always(v float64) func(time.Time) float64 { return func(time.Time) float64 { return v } }

// priced fixes the present costs of the resources.
func (f *fixture) priced() {
	aws.Attach(f.Resources)
	f.Charges = ledger.RunRates(f.Resources, f.Prices)
}

// evaluate judges the account.
func (f *fixture) evaluate(required ...string) []Finding {
	f.t.Helper()
	for _, r := range f.Resources {
		f.Prices.Fill(r)
	}
	if f.Charges == nil {
		f.priced()
	}
	if f.judge {
		for _, r := range f.Resources {
			if _, ok := f.Verdicts[r.Ref()]; ok || r.State != inventory.StateRunning {
				continue
			}
			switch r.Kind {
			case inventory.KindInstance, inventory.KindNotebook, inventory.KindEndpoint, inventory.KindTrainingJob:
				f.Verdicts[r.Ref()] = duty.Judge(f.Windows[r.Ref()], r.Size.GPUs.Or(-1), now, duty.DefaultThresholds())
			}
		}
	}
	found, err := Evaluate(&f.Account, Thresholds{}, required)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, x := range found {
		checkShape(f.t, x)
	}
	return found
}

// checkShape checks the invariants of every finding.
func checkShape(t testing.TB, f Finding) {
	t.Helper()
	if len(f.Evidence) == 0 || f.Because == "" || f.Fix.Change.Verb == "" || f.Fix.Command == "" || f.Fix.Risk == "" ||
		f.Fix.Undo == "" ||
		f.Confidence == "" || f.ID != ID(f.Rule, f.Resource.Ref()) {
		t.Errorf("%s of %s lacks a part: %+v", f.Rule, f.Resource.ID, f)
	}
	if n := len([]rune(f.Because)); n > 72 {
		t.Errorf("%s of %s: the reason has %d characters: %q", f.Rule, f.Resource.ID, n, f.Because)
	}
	if !f.Savings.Known && f.Savings.Why == "" {
		t.Errorf("%s of %s: the saving is unknown and no reason is given", f.Rule, f.Resource.ID)
	}
	if f.WasteUnknown && (f.Waste != 0 || f.Savings.Known || f.Confidence != Low) {
		t.Errorf("%s of %s: unknown waste with known dollars: %+v", f.Rule, f.Resource.ID, f)
	}
	if f.Savings.Amount < 0 || f.Waste < 0 || f.Savings.UpperBound < 0 || f.Savings.LowerBound < 0 ||
		f.Savings.LowerBound > f.Savings.UpperBound {
		t.Errorf("%s of %s: negative dollars: %+v", f.Rule, f.Resource.ID, f)
	}
	for _, e := range f.Evidence {
		if e.Signal == "" || e.Value == "" || e.Source == "" {
			t.Errorf("%s of %s: evidence lacks a part: %+v", f.Rule, f.Resource.ID, e)
		}
	}
}

// show formats findings by rule and resource: rule, resource, saving ("<=" for a bound, "?" for
// unknown), and waste if it differs.
func show(found []Finding) []string {
	out := []string{}
	for _, f := range found {
		s := f.Rule + " " + f.Resource.ID + " "
		switch {
		case f.Savings.Known:
			s += f.Savings.Amount.Cents()
		case f.Savings.Bounded:
			if f.Savings.LowerBound > 0 {
				s += f.Savings.LowerBound.Cents() + ".."
			}
			s += "<=" + f.Savings.UpperBound.Cents()
		default:
			s += "?"
		}
		if f.WasteUnknown {
			s += " of unknown waste"
		}
		if f.Waste != f.Savings.Amount {
			s += " wasting " + f.Waste.Cents()
		}
		if f.Overlaps != "" {
			for _, o := range found {
				if o.ID == f.Overlaps {
					s += " after " + o.Rule + " " + o.Resource.ID
				}
			}
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

// scenario is an account with its expected findings.
type scenario struct {
	name  string
	build func(f *fixture)
	want  []string
}

func runScenarios(t *testing.T, scenarios []scenario) {
	t.Helper()
	for _, tc := range scenarios {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			tc.build(f)
			want := append([]string{}, tc.want...)
			slices.Sort(want)
			if diff := cmp.Diff(want, show(f.evaluate())); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// only returns the finding of a rule.
func only(t testing.TB, found []Finding, rule string) Finding {
	t.Helper()
	for _, f := range found {
		if f.Rule == rule {
			return f
		}
	}
	t.Fatalf("no finding %s in %s", rule, strings.Join(show(found), ", "))
	return Finding{}
}

// evidence returns the value of a signal of a finding.
func evidence(f Finding, signal string) string {
	for _, e := range f.Evidence {
		if e.Signal == signal {
			return e.Value
		}
	}
	return fmt.Sprintf("no %s in %+v", signal, f.Evidence)
}
