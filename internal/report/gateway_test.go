package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/gateway/stats"
)

// TestGatewayShowsSleep shows the state, wakes and cold starts of a pool that sleeps, and no such table
// where none does.
func TestGatewayShowsSleep(t *testing.T) {
	p50, p95 := 21.04, 64.5
	d := stats.Stats{Pools: []stats.Pool{
		{Name: "awake", UtilizationStatus: "unknown"},
		{Name: "chat", UtilizationStatus: "unknown", Sleep: &stats.Sleep{
			State: stats.Waking, HeldRequests: 7, Wakes: 1234, ColdStartP50: &p50, ColdStartP95: &p95, ColdStarts: 9,
		}},
		{Name: "new", UtilizationStatus: "unknown", Sleep: &stats.Sleep{State: stats.Asleep}},
	}}
	var got []string
	for _, table := range Gateway(d).Tables {
		if table.Title == "Sleep" {
			for _, row := range table.Rows {
				got = append(got, strings.Join(row, " "))
			}
		}
	}
	want := []string{"chat waking 7 1,234 9 21 64.5", "new asleep 0 0 0 – –"}
	if !slices.Equal(got, want) {
		t.Errorf("the table has %q, want %q", got, want)
	}
	d.Pools = d.Pools[:1]
	for _, table := range Gateway(d).Tables {
		if table.Title == "Sleep" {
			t.Errorf("without a pool that sleeps: %v", table)
		}
	}
}
