package view_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/budget/budgettest"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/ledger/ledgertest"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/internal/view/viewtest"
)

// object is a document as any reader of JSON has it.
type object map[string]any

// printed returns a document as its reader has it, and fails where one of its amounts is
// not an exact decimal.
func printed(t *rapid.T, document any) object {
	t.Helper()
	var text bytes.Buffer
	if err := view.WriteJSON(&text, document); err != nil {
		t.Fatal(err)
	}
	var o object
	if err := json.Unmarshal(text.Bytes(), &o); err != nil {
		t.Fatal(err)
	}
	checkForm(t, "", map[string]any(o))
	return o
}

// decimal is an amount with two digits after the point, and no zero past them.
var decimal = regexp.MustCompile(`^-?(0|[1-9]\d*)\.\d{2}(\d*[1-9])?$`)

func checkForm(t *rapid.T, key string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for k, x := range v {
			checkForm(t, k, x)
		}
	case []any:
		for _, x := range v {
			checkForm(t, key, x)
		}
	default:
		text, _ := v.(string)
		if v != nil && strings.HasSuffix(key, "_usd") && (!decimal.MatchString(text) || text == "-0.00") {
			t.Fatalf("%s is %v", key, v)
		}
	}
}

// at returns an object of an object.
func (o object) at(key string) object { return o[key].(map[string]any) }

// list returns the objects of a list.
func (o object) list(key string) []object {
	var out []object
	for _, x := range o[key].([]any) {
		out = append(out, x.(map[string]any))
	}
	return out
}

// sum adds amounts up as rational numbers; null is nothing.
func (o object) sum(keys ...string) *big.Rat {
	total := new(big.Rat)
	for _, key := range keys {
		text, known := o[key].(string)
		if !known {
			continue
		}
		v, ok := new(big.Rat).SetString(text)
		if !ok {
			panic(key + " is " + text)
		}
		total.Add(total, v)
	}
	return total
}

// column adds up one amount of all objects of a list.
func column(all []object, key string) *big.Rat {
	total := new(big.Rat)
	for _, o := range all {
		total.Add(total, o.sum(key))
	}
	return total
}

func same(t *rapid.T, what string, parts, whole *big.Rat) {
	t.Helper()
	if parts.Cmp(whole) != 0 {
		t.Fatalf("%s come to %s, the document says %s", what, parts.RatString(), whole.RatString())
	}
}

// amount draws an amount with any digits.
func amount(t *rapid.T, name string) money.Amount {
	return money.Amount(rapid.Int64Range(0, 1e13).Draw(t, name))
}

// TestCostsAddUp adds up the printed costs of any history.
func TestCostsAddUp(t *testing.T) {
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		store := ledgertest.NewStore()
		for _, d := range ledgertest.Deliveries(t, ledger.Account{Cloud: "aws", ID: "1"}, start) {
			if _, err := ledger.Post(context.Background(), store, d.Round, d.Seen); err != nil {
				t.Fatal(err)
			}
		}
		by := rapid.SliceOfNDistinct(rapid.SampledFrom(ledger.Dimensions), 0, 2,
			rapid.ID[ledger.Dimension]).Draw(t, "by")
		g := rapid.SampledFrom([]ledger.Granularity{ledger.Whole, ledger.Hourly, ledger.Daily}).Draw(t, "granularity")
		c, err := costs.Spent(context.Background(), store, costs.Query{
			By: by, Since: start, Until: start.AddDate(0, 0, 4), Granularity: g,
		})
		if err != nil {
			t.Fatal(err)
		}
		doc := printed(t, view.NewCosts(c))
		rows, total := doc.list("rows"), doc.at("total")
		for _, row := range append(rows, total) {
			same(t, "the parts of a row", row.sum("used_usd", "wasted_usd", "cannot_judge_usd", "other_usd"),
				row.sum("total_usd"))
		}
		for _, key := range []string{
			"total_usd", "used_usd", "starved_usd", "warming_usd", "wasted_usd", "cannot_judge_usd", "other_usd",
		} {
			same(t, "the rows' "+key, column(rows, key), total.sum(key))
		}
	})
}

// TestScanAddsUp adds up the printed audit of any account.
func TestScanAddsUp(t *testing.T) {
	kinds := map[inventory.Kind]ledger.Category{
		inventory.KindInstance: ledger.Compute, inventory.KindVolume: ledger.Storage,
		inventory.KindAddress: ledger.Network,
	}
	rapid.Check(t, func(t *rapid.T) {
		w := viewtest.NewWorld()
		for i := range rapid.IntRange(1, 8).Draw(t, "resources") {
			kind := rapid.SampledFrom([]inventory.Kind{
				inventory.KindInstance, inventory.KindVolume, inventory.KindAddress,
			}).Draw(t, "kind")
			team := rapid.SampledFrom([]string{"", "vision", "speech"}).Draw(t, "team")
			r := w.Resource(kind, fmt.Sprint("r-", i), "any", "", inventory.Owner{Team: team})
			cost := amount(t, "cost")
			w.Charge(r, "meter", kinds[kind], cost.String())
			state := rapid.SampledFrom([]duty.State{duty.Unknown, duty.Busy, duty.Idle}).Draw(t, "duty")
			if state != duty.Unknown {
				w.Verdict(r, state, "measured")
			}
			if state == duty.Idle {
				wasted := money.Amount(rapid.Int64Range(0, int64(cost)).Draw(t, "wasted"))
				step := rapid.SampledFrom([]finding.Step{finding.StepIdle, finding.StepStorage}).Draw(t, "step")
				w.Find(r, viewtest.Found{
					Rule: "instance-idle", Step: step, Waste: wasted.String(),
					Saving: viewtest.Saving(wasted.String()),
					Cost:   cost.String(),
				})
			}
		}
		audit := view.NewScan(w.Audit(), view.ScanOptions{})
		figuresAddUp(t, &audit)
		doc := printed(t, audit)
		categories := doc.at("categories")
		cost := doc.sum("monthly_cost_usd")
		same(t, "the categories", categories.sum("storage", "idle", "active", "egress",
			"overhead", "unknown", "network"),
			cost)
		same(t, "the owners' costs", column(doc.list("owners"), "monthly_cost_usd"), cost)
		now := doc.at("now")
		same(t, "the parts of what runs now", now.sum("used_usd", "wasted_usd", "unmeasured_usd", "other_usd"),
			now.sum("running_usd"))
		same(t, "what runs now", now.sum("running_usd"), cost)
		same(t, "the owners' waste", column(doc.list("owners"), "wasted_now_usd"), now.sum("wasted_usd"))
		window := doc.at("window")
		same(t, "the parts of the window", window.sum("used_usd", "wasted_usd", "unmeasured_usd", "other_usd"),
			window.sum("total_usd"))
		steps, findings, totals := doc.list("steps"), doc.list("findings"), doc.at("totals")
		for _, key := range []string{"monthly_savings_usd", "savings_upper_bound_usd"} {
			same(t, "the steps' "+key, column(steps, key), totals.sum(key))
			same(t, "the findings' "+key, column(findings, key), totals.sum(key))
		}
		same(t, "the findings' waste", column(findings, "monthly_waste_usd"), totals.sum("findings_waste_usd"))
		same(t, "the findings' waste", column(findings, "monthly_waste_usd"), now.sum("wasted_usd"))
		same(t, "the steps' waste", column(steps, "monthly_waste_usd"), totals.sum("findings_waste_usd"))
	})
}

// figuresAddUp adds up the rows of every figure of an audit, and of every figure that its rows name.
func figuresAddUp(t *rapid.T, audit *view.Scan) {
	t.Helper()
	list, err := view.NewWhy(audit, "")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for todo := list.Rows; len(todo) > 0; todo = todo[1:] {
		row := todo[0]
		if row.Figure == "" || seen[row.Figure] {
			continue
		}
		seen[row.Figure] = true
		why, err := view.NewWhy(audit, row.Figure)
		if err != nil {
			t.Fatal(err)
		}
		doc := printed(t, why)
		if _, known := why.ValueUSD.Get(); known {
			same(t, "the rows of "+row.Figure, column(doc.list("rows"), "amount_usd"), doc.sum("value_usd"))
		}
		todo = append(todo, why.Rows...)
	}
}

// TestBudgetsAddUp adds up the printed statuses of budgets with any charges and holds.
func TestBudgetsAddUp(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 30, 0, 0, time.UTC)
	vision := inventory.Owner{Team: "vision", User: "ana"}
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.Bool().Draw(t, "count unknown")
		limit := amount(t, "limit") + money.USD
		set, err := budget.Parse("budgets.yaml",
			fmt.Appendf(nil, "budgets: [{id: vision, team: vision, purpose: any, amount: %s, count_unknown: %t}]",
				limit,
				counts))
		if err != nil {
			t.Fatal(err)
		}
		store := &budgettest.Store{}
		for range rapid.IntRange(0, 5).Draw(t, "charges") {
			store.Charge(budgettest.Charge{
				At: now.Add(-time.Duration(rapid.IntRange(1, 400).Draw(t, "hours")) * time.Hour), Owner: vision,
				Purpose: inventory.Training,
				Amount:  amount(t, "charge"), Unpriced: rapid.Bool().Draw(t, "unpriced"),
			})
		}
		desk := budget.Desk{Store: store, Set: set}
		for i := range rapid.IntRange(0, 3).Draw(t, "holds") {
			h := budget.Hold{
				Key: fmt.Sprint(i), Kind: "job", Name: "j", SpecHash: "h", Owner: vision, Purpose: inventory.Training,
				Amount: amount(t, "held"), From: now, Until: now.Add(10 * time.Hour),
			}
			if h, err = desk.Reserve(context.Background(), h, now); err != nil {
				continue // over the budget
			}
			if _, err = desk.Admit(context.Background(), h, now); err != nil {
				t.Fatal(err)
			}
		}
		all, err := desk.Statuses(context.Background(), now)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range printed(t, view.NewBudgets(all, now)).list("budgets") {
			parts := []string{"used_usd", "held_usd", "left_usd"}
			if counts {
				parts = append(parts, "unknown_usd")
			}
			same(t, "the parts of the budget", b.sum(parts...), b.sum("amount_usd"))
		}
	})
}
