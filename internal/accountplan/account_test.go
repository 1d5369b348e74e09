package accountplan

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/commit"
	"github.com/curfew-dev/curfew/internal/round"
)

// hourly is a machine of the brute-force evaluation: cents an hour, and the shares of them that are
// left after spot and after a smaller type, in percent; 0 is no such change.
type hourly struct {
	cents, spot, smaller int64
	ends                 bool
}

// after is what an hour of the machine costs after the first steps: nothing where it ends, else the
// spot share of what it costs, and of that the share of the smaller type. Hundredths of a cent.
func (m hourly) after(step int) int64 {
	left := m.cents * 10_000
	if m.ends && step >= 1 {
		return 0
	}
	if m.spot > 0 && step >= 4 {
		left = left * m.spot / 100
	}
	if m.smaller > 0 && step >= 5 {
		left = left * m.smaller / 100
	}
	return left / 100
}

// TestAccountPlanEqualsHours evaluates small accounts hour by hour, with every number of reserved
// machines for what remains on demand, and compares each step of the plan with it.
func TestAccountPlanEqualsHours(t *testing.T) {
	const hours = 1460
	start := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(rt *rapid.T) {
		var in AccountInput
		var machines []hourly
		var use []commit.Usage
		reserved := int64(rapid.IntRange(30, 95).Draw(rt, "reserved")) // percent of on demand
		cents := int64(rapid.IntRange(50, 900).Draw(rt, "cents"))
		staying := 0
		for i := range rapid.IntRange(1, 5).Draw(rt, "machines") {
			m := hourly{cents: cents, ends: rapid.IntRange(0, 3).Draw(rt, "ends") == 0}
			if !m.ends && rapid.Bool().Draw(rt, "to spot") {
				m.spot = int64(rapid.IntRange(10, 90).Draw(rt, "spot"))
			}
			if !m.ends && rapid.IntRange(0, 2).Draw(rt, "smaller") == 0 {
				m.smaller = int64(rapid.IntRange(10, 90).Draw(rt, "share"))
			}
			if !m.ends && m.spot == 0 && m.smaller == 0 {
				staying++
			}
			machines = append(machines, m)
			r := &inventory.Resource{
				Cloud: "aws", Kind: inventory.KindInstance, ID: fmt.Sprint("i-", i),
				Region: "us-east-1", Type: "g5.xlarge",
				Owner: inventory.Owner{Team: fmt.Sprint("team-", i%2)},
			}
			in.Resources = append(in.Resources, r)
			in.Findings = append(in.Findings, m.findings(r)...)
		}
		for h := range hours {
			use = append(use, commit.Usage{
				Hour: start.Add(time.Duration(h) * time.Hour), Key: "g5.xlarge/us-east-1",
				Quantity: commit.Quantity(len(machines)) * commit.Machine,
				Leaving:  commit.Quantity(len(machines)-staying) * commit.Machine,
				OnDemand: money.Amount(cents) * money.Cent,
			})
		}
		for team := range 2 {
			var cost money.Amount
			for i, m := range machines {
				if i%2 == team {
					cost += month(m.after(0))
				}
			}
			in.Totals.Now.Running += cost
			in.Totals.ByOwner = append(in.Totals.ByOwner, round.OwnerTotal{
				Team: fmt.Sprint("team-", team), Now: round.RunRate{Running: cost},
			})
		}
		plan, err := commit.Plan(use, []commit.Offer{{
			Key: "g5.xlarge/us-east-1", Kind: commit.Reserved, TermMonths: 12, Payment: commit.NoUpfront,
			Hourly: money.Amount(cents*reserved) * money.Cent / 100,
		}}, nil, commit.Options{})
		if err != nil {
			rt.Fatal(err)
		}
		in.Commitments = &plan
		a, err := NewAccount(in)
		if err != nil {
			rt.Fatal(err)
		}
		// The machines that stay run in every hour: the best number of reserved ones is tried out.
		best := int64(1 << 62)
		for n := range staying + 1 {
			best = min(best, int64(n)*cents*reserved+int64(staying-n)*cents*100)
		}
		want := money.Amount(0)
		for step := 1; step <= len(a.Steps); step++ {
			sum := int64(0)
			for _, m := range machines {
				sum += m.after(step)
			}
			if want = month(sum); step == 6 {
				want -= month(int64(staying)*cents*100 - best)
			}
			if diff := a.Steps[step-1].AfterUSD - want; max(diff, -diff) > 10*money.Cent {
				rt.Fatalf("after step %d: %s, hour by hour %s\n%+v", step, a.Steps[step-1].AfterUSD, want, machines)
			}
		}
		checkSums(rt, a)
	})
}

// month is 730 hours of hundredths of a cent.
func month(hundredths int64) money.Amount { return money.Amount(hundredths) * money.Cent / 100 * 730 }

// findings are what an audit finds at a machine, with claims on what the findings before left.
func (m hourly) findings(r *inventory.Resource) []finding.Finding {
	make := func(step finding.Step, verb change.Verb, risk finding.Level, saving money.Amount) finding.Finding {
		return finding.Finding{
			ID: fmt.Sprint(r.ID, step), Rule: string(verb), Step: step, Resource: r,
			Savings: finding.Saving{Known: true, Amount: saving},
			Fix:     finding.Fix{Change: change.Change{Verb: verb}, Risk: risk},
			Claims:  []finding.Claim{{Resource: r.Ref(), Savings: saving}},
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

// checkSums holds that steps, risks and teams add up to the same.
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
