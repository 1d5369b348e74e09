package prom

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/test/prometheus"
)

// TestReadsOnlySeriesOfMachines checks that a reader of a few machines on a large server gets the same
// points as a reader of all, with little else transferred. A machine that appears later is found,
// and one without series stays unknown.
func TestReadsOnlySeriesOfMachines(t *testing.T) {
	const many, few = 60, 4
	from := time.Now().Add(-2 * time.Hour).Truncate(time.Minute)
	at := from.Add(50 * time.Minute)
	var h []prometheus.Series
	for i := range many {
		for gpu := range 2 {
			// The address is a pod's and may need quoting.
			labels := fmt.Sprintf(
				`gpu="%d",UUID="GPU-%d-%d",instance="10.0.%d.1:9400",Hostname="exporter",node="i-%d"`, gpu, i,
				gpu, i, i)
			for _, name := range []string{"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"} {
				begin, minutes := from, 60
				if i == few { // its series begin later
					begin, minutes = from.Add(40*time.Minute), 20
				}
				h = append(h, history(name, labels, begin, minutes, func(n int) float64 {
					return float64((n*7 + i + gpu) % 100)
				}))
			}
		}
	}
	url := prometheus.Start(t, h, "")
	source := func() *Source {
		t.Helper()
		s, err := New(Options{Access: Access{URL: url, Now: time.Now}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	var machines []*inventory.Resource
	for i := range many {
		machines = append(machines, &inventory.Resource{
			ID: fmt.Sprintf("i-%d", i), Kind: inventory.KindInstance, Cloud: "aws", State: inventory.StateRunning,
		})
	}
	machines = append(machines, &inventory.Resource{
		ID: "i-silent", Kind: inventory.KindInstance, Cloud: "aws", State: inventory.StateRunning,
	})
	own := append(machines[:few:few], machines[many])
	one := source()
	for _, step := range []struct {
		name     string
		machines []*inventory.Resource
		to       time.Time
	}{
		{"first", own, at.Add(-20 * time.Minute)},
		{"again", own, at.Add(-19 * time.Minute)},
		{"a new machine", append(machines[:few+1:few+1], machines[many]), at},
		{"later", append(machines[:few+1:few+1], machines[many]), at.Add(time.Minute)},
	} {
		iv := usage.Interval{From: step.to.Add(-30 * time.Minute), To: step.to, Step: time.Minute}
		before := one.Asked().Bytes
		got, _ := measure(t, one, step.machines, iv)
		sent := one.Asked().Bytes - before
		all := source()
		everything, _ := measure(t, all, machines, iv)
		var want []recordedPoint
		for _, x := range everything {
			for _, m := range step.machines {
				if x.Machine == m.ID {
					want = append(want, x)
				}
			}
		}
		if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" || len(want) < 100 {
			t.Errorf("%s: %d points (-all +own):\n%s", step.name, len(want), diff)
		}
		if whole := all.Asked().Bytes; sent*3 > whole {
			t.Errorf("%s: %d bytes of %d were sent", step.name, sent, whole)
		}
	}
	if one.near.selector != `,node=~"i-0|i-1|i-2|i-3|i-4"` {
		t.Errorf("it asks for %s", one.near.selector)
	}
}
