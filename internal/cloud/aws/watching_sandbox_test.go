package aws_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/wire"
)

// TestWatchingCountsCallsOfAPass checks that the stated cost of a pass equals the calls of a scan
// of such machines.
func TestWatchingCountsCallsOfAPass(t *testing.T) {
	f := wire.Fleet{Machines: 100, GPUs: 8, Type: "p4d.24xlarge", Now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	o, _ := readFleet(t, f, aws.Options{Size: func(string) inventory.Size {
		return inventory.Size{GPUs: inventory.Known(8), GPUMemory: inventory.Known[int64](40 << 30)}
	}})
	want, err := aws.Watching(100, 8)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, c := range o.Calls {
		got[c.API] = c.Units
		if strings.HasPrefix(c.API, "cloudwatch:") {
			want.Cost -= c.Cost
		}
	}
	if got["cloudwatch:GetMetricData"] != want.Metrics ||
		got["cloudwatch:ListMetrics"] != want.Lists || want.Cost != 0 {
		t.Errorf("a pass asks %v; said are %d metrics and %d lists, %s more", got, want.Metrics, want.Lists, want.Cost)
	}
}

// kept caches bills in memory.
type kept struct {
	docs map[string][]byte
	err  error
}

func (k *kept) Bill(account string) []byte { return k.docs[account] }

func (k *kept) KeepBill(account string, doc []byte) error {
	if k.err == nil {
		k.docs[account] = doc
	}
	return k.err
}

// TestQueriesCostExplorerDaily checks that a second scan on the same day makes no query, that
// the next day queries again, and that an unreadable or unstorable response is queried again.
func TestQueriesCostExplorerDaily(t *testing.T) {
	morning := time.Date(2026, 11, 21, 1, 0, 0, 0, time.UTC)
	k := &kept{docs: map[string][]byte{}}
	scan := func(at time.Time) (requests int, total string, blind int) {
		t.Helper()
		o, s := readFleet(t, wire.Fleet{Machines: 1, Now: at}, aws.Options{Bills: k, Size: oneGPU.Size})
		if o.Billed != nil {
			total = o.Billed.Total.String()
		}
		return s.Recorder.Count("ce:GetCostAndUsage"), total, len(o.BlindSpots)
	}
	first, billed, _ := scan(morning)
	if first == 0 {
		t.Fatal("Cost Explorer was not asked")
	}
	if n, again, _ := scan(morning.Add(20 * time.Hour)); n != 0 || again != billed {
		t.Errorf("the second scan of the day asked %d times and shows %q, want none and %q", n, again, billed)
	}
	if n, _, _ := scan(morning.Add(24 * time.Hour)); n != first {
		t.Errorf("the next day asked %d times, want %d", n, first)
	}
	for id := range k.docs {
		k.docs[id] = []byte(`{"services": {"x": null}}`)
	}
	if n, _, _ := scan(morning.Add(25 * time.Hour)); n != first {
		t.Errorf("a damaged answer was believed")
	}
	k.docs, k.err = map[string][]byte{}, os.ErrPermission
	if n, _, blind := scan(morning.Add(26 * time.Hour)); n != first || blind != 1 {
		t.Errorf("what cannot be kept: asked %d times, %d blind spots, want %d and 1", n, blind, first)
	}
}
