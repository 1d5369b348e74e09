package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/money"
)

// TestExampleAccount runs examples/account/README.md: every figure of its table comes from a
// planner on the files of examples/account, in order, each step on the rest of the one before.
func TestExampleAccount(t *testing.T) {
	d := newDesktop(t)
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(examples, filepath.Join(d.dir, "examples")); err != nil {
		t.Fatal(err)
	}
	plan := func(doc any, line string) {
		t.Helper()
		code, out, errs := d.run(append(strings.Fields(line), "-o", "json")...)
		if err := json.Unmarshal([]byte(out), doc); err != nil || code != ExitDone {
			t.Fatalf("curfew %s: exit %d, %v\n%s", line, code, err, errs)
		}
	}
	monthly := func(hourly string, machines int64) money.Amount {
		a, err := money.ParseAmount(hourly)
		if err == nil {
			a, err = a.Mul(money.HoursPerMonth*machines, 1)
		}
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	// Training: seven p4d.24xlarge.
	var spot struct {
		OnDemand string `json:"on_demand_cost_usd"`
		Results  []struct {
			Name string
			Cost string `json:"mean_cost_usd"`
		}
	}
	plan(&spot, "plan spot --trace examples/data/spot.csv --gap 5m --work 12h --deadline 1.5x --spot-price 8.0001 "+
		"--on-demand-price 21.957642")
	training := monthly("21.957642", 7)
	trained := training
	for _, r := range spot.Results {
		if r.Name == "curfew" {
			trained, err = training.Mul(int64(amount(t, r.Cost)), int64(amount(t, spot.OnDemand)))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	// Serving: sixteen replicas with a GPU each on two p4de.24xlarge.
	var mig struct {
		Cost struct {
			After  string `json:"monthly_cost_usd"`
			Before string `json:"monthly_cost_without_sharing_usd"`
		} `json:"cost"`
	}
	plan(&mig, "plan mig --gpu A100-80GB --workloads examples/account/workloads.csv")
	serving, served := amount(t, mig.Cost.Before), amount(t, mig.Cost.After)
	// Evaluation: six g5.12xlarge.
	var rightsize struct {
		Saving string `json:"saving_usd_per_month"`
	}
	plan(&rightsize, "plan rightsize --usage examples/account/evaluation.csv.gz")
	evaluation := monthly("5.672", 6)
	evaluated := evaluation - amount(t, rightsize.Saving)
	// Commitments: the machines that still run on demand, and the development machines.
	var commit struct {
		OnDemand string `json:"on_demand_cost_usd"`
		Yearly   string `json:"yearly_saving_usd"`
		Hours    int64
	}
	plan(&commit, "plan commit --usage examples/account/hours.csv.gz --offers examples/account/offers.csv")
	onDemand, err := amount(t, commit.OnDemand).Mul(money.HoursPerMonth, commit.Hours)
	if err != nil {
		t.Fatal(err)
	}
	saved, err := amount(t, commit.Yearly).Mul(1, 12)
	if err != nil {
		t.Fatal(err)
	}
	development := onDemand - served - evaluated
	before := training + serving + evaluation + development
	steps := []struct {
		name        string
		from, saves money.Amount
	}{
		{"spot", training, training - trained},
		{"MIG sharing", serving, serving - served},
		{"right-sized evaluation", evaluation, evaluation - evaluated},
		{"commitments", onDemand, saved},
	}
	doc, err := os.ReadFile("../../examples/account/README.md")
	if err != nil {
		t.Fatal(err)
	}
	left := before
	for _, s := range steps {
		left -= s.saves
		row := fmt.Sprintf("| %s | %s | %s | %s |", s.name, s.from.Dollars(), s.saves.Dollars(), left.Dollars())
		if !strings.Contains(string(doc), row) {
			t.Errorf("examples/account/README.md lacks the row\n%s", row)
		}
	}
	for _, want := range []string{
		"From " + before.Dollars() + " to " + left.Dollars() + " a month", "office hours | " + development.Dollars(),
	} {
		if !strings.Contains(string(doc), want) {
			t.Errorf("examples/account/README.md lacks %q", want)
		}
	}
	near := func(got, want money.Amount) bool { return max(got-want, want-got) <= want/50 }
	if !near(before, 200_000*money.USD) || !near(left, 84_000*money.USD) {
		t.Errorf("from %s to %s a month, want about $200,000 and $84,000", before, left)
	}
}
