package view

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
)

// TestExactAmountsComeBack: a document that was written in cents has its amounts again, to the
// last digit, and its JSON is the one that it had.
func TestExactAmountsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := func() costs.Dollars { return costs.Dollars(rapid.Int64Range(-1e15, 1e15).Draw(t, "amount")) }
		c := &costs.Costs{Total: costs.Cost{Key: []string{}, Amount: amount()}, Committed: amount()}
		for range rapid.IntRange(0, 4).Draw(t, "rows") {
			row := costs.Cost{Key: []string{"x"}, Used: amount(), Wasted: amount(), Amount: amount()}
			if rapid.Bool().Draw(t, "bounded") {
				most := amount()
				row.AtMost = &most
			}
			c.Rows = append(c.Rows, row)
		}
		doc := NewCosts(c)
		want, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		var got Costs
		if err := json.Unmarshal(want, &got); err != nil {
			t.Fatal(err)
		}
		if err := Restore(&got, Exact(doc)); err != nil {
			t.Fatal(err)
		}
		if text, err := json.Marshal(got); err != nil || string(text) != string(want) {
			t.Fatalf("got %s, %v, want %s", text, err, want)
		}
		if got.Total.Amount != c.Total.Amount || got.Committed != c.Committed || len(got.Rows) != len(c.Rows) {
			t.Fatalf("got %+v, want %+v", got.Costs, c)
		}
		for i, r := range got.Rows {
			if r.Used != c.Rows[i].Used || r.Amount != c.Rows[i].Amount || r.AtMost != nil && *r.AtMost != *c.Rows[i].AtMost {
				t.Fatalf("row %d: got %+v, want %+v", i, r, c.Rows[i])
			}
		}
	})
}

// TestForeignAmountsAreRefused: amounts of another document restore nothing.
func TestForeignAmountsAreRefused(t *testing.T) {
	doc := NewCosts(&costs.Costs{Committed: costs.Dollars(5 * money.Cent)})
	exact := Exact(doc)
	if err := Restore(&doc, exact[1:]); err == nil {
		t.Error("too few were taken")
	}
	exact[len(exact)-1] += money.USD
	if err := Restore(&doc, exact); err == nil {
		t.Error("other amounts were taken")
	}
}
