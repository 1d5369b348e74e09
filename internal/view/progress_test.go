package view_test

import (
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/view"
)

func TestLastProgressOfMachinesThatWorkTogether(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	machine := func(purpose string, hourly money.Amount, ago time.Duration) view.SeenResource {
		k := view.KeptResource{
			Ref:       inventory.Ref{Cloud: "aws", Account: "1", Kind: inventory.KindInstance, ID: "i-1"},
			CreatedAt: at.Add(-48 * time.Hour), Tags: map[string]string{inventory.TagPurpose: purpose},
			Progress: &view.KeptProgress{From: at.Add(-24 * time.Hour)}, HourlyUSD: &hourly,
		}
		if ago > 0 {
			k.Progress.Since, k.Progress.Reported = at.Add(-ago), true
		}
		if hourly == 0 {
			k.HourlyUSD = nil
		}
		return view.SeenResource{KeptResource: k, Duty: "busy", At: at}
	}
	tags := inventory.DefaultTagMapping()
	for name, c := range map[string]struct {
		machines []view.SeenResource
		since    time.Duration
		spent    money.Dollars
		reported bool
		unknown  bool
	}{
		"one that reports nothing": {
			machines: []view.SeenResource{machine("training", 2*money.USD, 0)},
			since:    24 * time.Hour, spent: money.Known(48 * money.USD),
		},
		"the step of one is that of all": {
			machines: []view.SeenResource{
				machine("training", 2*money.USD, 0), machine("training", 3*money.USD, 4*time.Hour),
				machine("training", 2*money.USD, 6*time.Hour),
			},
			since: 4 * time.Hour, spent: money.Known(28 * money.USD), reported: true,
		},
		"one without a price": {
			machines: []view.SeenResource{
				machine("training", 2*money.USD, time.Hour), machine("training", 0, time.Hour),
			},
			since: time.Hour, reported: true,
		},
		"the first without a price": {
			machines: []view.SeenResource{
				machine("training", 0, time.Hour), machine("training", 2*money.USD, time.Hour),
			},
			since: time.Hour, reported: true,
		},
		"serving makes none": {
			machines: []view.SeenResource{machine("inference", 2*money.USD, time.Hour)}, unknown: true,
		},
		"no machine": {unknown: true},
	} {
		p, known := view.LastProgress(tags, c.machines...)
		if known == c.unknown {
			t.Errorf("%s: known is %v", name, known)
		}
		if known && (!p.Since.Equal(at.Add(-c.since)) || p.SpentUSD != c.spent || p.Reported != c.reported) {
			t.Errorf("%s: %+v, want %+v", name, p, c)
		}
	}
}
