package accountplan

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/commit"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
)

// hourly is a machine of the brute-force evaluation, with its hourly cost in mills, the percentage
// of it that spot costs, and the mills of the smaller type; 0 for no such change.
type hourly struct {
	mills, spot, smaller int64
	ends                 bool
	idle                 [accountHours]bool
}

// mill is a tenth of a cent; prices of the test are whole mills.
const mill = money.Cent / 10

// accountHours is the length of the ledger of a brute-force evaluation, in hours.
const accountHours = 240

// after returns the hourly cost of the machine after the first steps, in hundredths of a mill: 0 if
// it ends, else its type's price, reduced by the spot share.
func (m *hourly) after(step int) int64 {
	if m.ends && step >= 1 {
		return 0
	}
	left := m.mills
	if m.smaller > 0 && step >= 5 {
		left = m.smaller
	}
	if m.spot > 0 && step >= 4 {
		return left * m.spot
	}
	return left * 100
}

// committable returns the on-demand machine type after the steps, or "".
func (m *hourly) committable() string {
	switch {
	case m.ends || m.spot > 0:
		return ""
	case m.smaller > 0:
		return "g5.xlarge"
	}
	return "g5.12xlarge"
}

// TestAccountPlanMatchesHourlyEvaluation compares each step of the plan with an evaluation hour by hour: the
// cost of each machine after each step, and every number of reserved machines of each type over the
// remaining hours.
func TestAccountPlanMatchesHourlyEvaluation(t *testing.T) {
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	mills := map[string]int64{} // an hour, by type, as the ledger of the test and the book charge it
	for _, machineType := range []string{"g5.12xlarge", "g5.xlarge"} {
		p, err := book.OnDemand(machineType, "us-east-1")
		if err != nil {
			t.Fatal(err)
		}
		hour, err := p.Hourly()
		if err != nil {
			t.Fatal(err)
		}
		mills[machineType] = int64(hour / mill)
	}
	rapid.Check(t, func(rt *rapid.T) {
		in := AccountInput{Kept: true, CommitCommand: "curfew plan commit --from ledger"}
		var machines []hourly
		var worked stretches
		reserved := int64(rapid.IntRange(30, 95).Draw(rt, "reserved")) // percent of on demand
		for i := range rapid.IntRange(1, 5).Draw(rt, "machines") {
			m := drawMachine(rt, mills)
			machines = append(machines, m)
			r := &inventory.Resource{
				Cloud: "aws", Account: "1", Kind: inventory.KindInstance, ID: fmt.Sprint("i-", i),
				Region: "us-east-1", Type: "g5.12xlarge", Owner: inventory.Owner{Team: fmt.Sprint("team-", i%2)},
			}
			in.Resources = append(in.Resources, r)
			in.Findings = append(in.Findings, m.findings(r)...)
			for h, idle := range m.idle {
				state := map[bool]string{true: "idle", false: "busy"}[idle]
				worked = append(worked, stretch{r.ID, r.Type, state, h, 3600})
			}
		}
		total(&in, machines)
		in.Commitments = planHours(rt, worked, in.Findings, book, mills, reserved)
		a, err := NewAccount(in)
		if err != nil {
			rt.Fatal(err)
		}
		saved := money.Amount(0)
		for machineType, cost := range mills {
			saved += bestReserved(machines, machineType, cost, reserved)
		}
		want := money.Amount(0)
		for step := 1; step <= len(a.Steps); step++ {
			sum := int64(0)
			for i := range machines {
				sum += machines[i].after(step)
			}
			if want = month(sum); step == 6 {
				want -= saved
			}
			if diff := a.Steps[step-1].AfterUSD - want; max(diff, -diff) > money.Cent*10 {
				rt.Fatalf("after step %d: %s, hour by hour %s: %q", step, a.Steps[step-1].AfterUSD, want, a.CoverageNotes)
			}
		}
		checkSums(rt, a)
	})
}

// drawMachine generates a machine that works for a part of each day long enough for a commitment,
// and its findings.
func drawMachine(t *rapid.T, mills map[string]int64) hourly {
	m := hourly{mills: mills["g5.12xlarge"], ends: rapid.IntRange(0, 3).Draw(t, "ends") == 0}
	if !m.ends && rapid.IntRange(0, 2).Draw(t, "to spot") == 0 {
		m.spot = int64(rapid.IntRange(10, 90).Draw(t, "spot"))
	}
	if !m.ends && rapid.IntRange(0, 2).Draw(t, "smaller") == 0 {
		m.smaller = mills["g5.xlarge"]
	}
	worked := rapid.IntRange(16, 24).Draw(t, "hours a day")
	for h := range m.idle {
		m.idle[h] = h%24 >= worked
	}
	return m
}

// total sets the cost of running machines by team and category.
func total(in *AccountInput, machines []hourly) {
	for team := range 2 {
		var cost money.Amount
		for i := range machines {
			if i%2 == team {
				cost += month(machines[i].after(0))
			}
		}
		in.Totals.Now.Running += cost
		in.Totals.ByOwner = append(in.Totals.ByOwner, round.OwnerTotal{
			Team: fmt.Sprint("team-", team), Now: round.RunRate{Running: cost},
		})
	}
	in.Totals.ByCategory = map[string]money.Amount{round.CategoryActive: in.Totals.Now.Running}
}

// planHours plans commitments on the hours of the ledger without those that the findings remove.
func planHours(t *rapid.T, worked stretches, found []finding.Finding, book *price.Book, mills map[string]int64,
	reserved int64) *commit.Report {
	until := since.Add(accountHours * time.Hour)
	use, _, err := Hours(t.Context(), priced{worked, mills}, since, until, NewLeaving(FixesOf(found)), book)
	if err != nil {
		t.Fatal(err)
	}
	var offers []commit.Offer
	for _, machineType := range slices.Sorted(maps.Keys(mills)) {
		offers = append(offers, commit.Offer{
			Key: machineType + "/us-east-1", Kind: commit.Reserved, TermMonths: 12, Payment: commit.NoUpfront,
			Hourly: money.Amount(mills[machineType]*reserved) * mill / 100, OneSize: true,
		})
	}
	plan, err := commit.Plan(use, offers, nil, commit.Options{MinHours: -1})
	if err != nil {
		t.Fatal(err)
	}
	return &plan
}

// priced is a ledger with machines that cost mills an hour.
type priced struct {
	stretches
	mills map[string]int64
}

func (p priced) Sums(ctx context.Context, q ledger.SumQuery) ([]ledger.Sum, error) {
	all, err := p.stretches.Sums(ctx, q)
	for i, s := range all {
		all[i].Sums.Amount = money.Amount(p.mills[s.Key[0]]*s.Sums.Seconds) * mill / 3600
	}
	return all, err
}

// bestReserved tries every number of reserved machines of a type against the on-demand hours that
// remain, and returns the highest monthly saving.
func bestReserved(machines []hourly, machineType string, mills, reserved int64) money.Amount {
	best := int64(0)
	for n := 1; n <= len(machines); n++ {
		saves := int64(0)
		for h := range accountHours {
			working := 0
			for i := range machines {
				if machines[i].committable() == machineType && !machines[i].idle[h] {
					working++
				}
			}
			saves += int64(min(n, working))*mills*100 - int64(n)*mills*reserved
		}
		best = max(best, saves)
	}
	return money.Amount(best) * mill / 100 * 730 / accountHours
}

// month is 730 hours of hundredths of a mill.
func month(hundredths int64) money.Amount { return money.Amount(hundredths) * mill / 100 * 730 }

// findings returns the findings about a machine, each with a claim on the remaining cost.
func (m *hourly) findings(r *inventory.Resource) []finding.Finding {
	make := func(step finding.Step, verb change.Verb, risk finding.Level, saving money.Amount) finding.Finding {
		return finding.Finding{
			ID: fmt.Sprint(r.ID, step), Rule: string(verb), Step: step, Resource: r,
			Savings: finding.Saving{Known: true, Amount: saving},
			Fix: finding.Fix{Change: change.Change{Verb: verb, Arguments: change.Arguments{
				Type: map[change.Verb]string{change.ChangeType: "g5.xlarge"}[verb],
			}}, Risk: risk},
			Claims: []finding.Claim{{Resource: r.Ref(), Category: ledger.Compute, Savings: saving}},
		}
	}
	var out []finding.Finding
	if m.ends {
		out = append(out, make(finding.StepIdle, change.Stop, finding.Low, month(m.after(0))))
	}
	if m.spot > 0 {
		out = append(out, make(finding.StepSpot, change.UseSpot, finding.Medium, month(m.after(3)-m.after(4))))
	}
	if m.smaller > 0 {
		out = append(out, make(finding.StepRightsize, change.ChangeType, finding.High, month(m.after(4)-m.after(5))))
	}
	return out
}

// checkSums checks that steps, risks and teams have equal sums.
func checkSums(t *rapid.T, a Account) {
	var steps, items, risks, before, after, commitments money.Amount
	for _, s := range a.Steps {
		steps += s.SavingUSD
		for _, it := range s.Items {
			items += it.SavingUSD.Or(0)
			if it.Rule == "commitment" {
				commitments += it.SavingUSD.Or(0)
			}
		}
	}
	for _, r := range a.Risks {
		risks += r.SavingUSD
	}
	for _, p := range a.Teams {
		before, after = before+p.BeforeUSD, after+p.AfterUSD
	}
	if steps != a.SavingUSD || items != a.SavingUSD || risks != a.SavingUSD || before != a.BeforeUSD ||
		after-commitments != a.AfterUSD || a.BeforeUSD-a.SavingUSD != a.AfterUSD || a.AfterUSD < 0 {
		t.Fatalf("from %s to %s saving %s: steps %s, items %s, risks %s, teams from %s to %s", a.BeforeUSD, a.AfterUSD,
			a.SavingUSD, steps, items, risks, before, after)
	}
}
