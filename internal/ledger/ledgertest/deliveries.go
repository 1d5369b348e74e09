package ledgertest

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
)

// Delivery is a round with its observations.
type Delivery struct {
	Round ledger.Round
	Seen  []ledger.Observation
}

// Deliveries generates rounds of a few resources that appear, disappear, start, stop and change
// price, from a time on. They may be inconsistent, as a provider's data sometimes is.
func Deliveries(t *rapid.T, account ledger.Account, start time.Time) []Delivery {
	states := []inventory.State{
		inventory.StateRunning, inventory.StateRunning, inventory.StateStopped, inventory.StateDeleting,
	}
	duties := []duty.State{duty.Busy, duty.Idle, duty.Held, duty.Starved}
	parts := []ledger.Part{
		{Region: "us-east-1", Kind: inventory.KindInstance}, {Region: "us-east-1", Kind: inventory.KindVolume},
	}
	var out []Delivery
	now := start
	for range rapid.IntRange(1, 12).Draw(t, "rounds") {
		now = now.Add(time.Duration(rapid.Int64Range(1, 5*3600).Draw(t, "gap")) * time.Second)
		d := Delivery{Round: ledger.Round{Account: account, At: now, Source: "test"}}
		for _, p := range parts {
			if rapid.Bool().Draw(t, "complete") {
				d.Round.Complete = append(d.Round.Complete, p)
			}
			for i := range 2 {
				if !rapid.Bool().Draw(t, "seen") {
					continue
				}
				o := ledger.Observation{
					At: now,
					Ref: inventory.Ref{
						Cloud: "aws", Account: account.ID, Region: p.Region, Kind: p.Kind, ID: fmt.Sprint(p.Kind, i),
					},
				}
				o.State = rapid.SampledFrom(states).Draw(t, "state")
				o.Owner.Team = rapid.SampledFrom([]string{"", "vision", "speech"}).Draw(t, "team")
				o.Hold = rapid.SampledFrom([]string{"", "h-1"}).Draw(t, "hold")
				past := func(name string) time.Time {
					if rapid.Bool().Draw(t, name) {
						return time.Time{}
					}
					return now.Add(-time.Duration(rapid.Int64Range(0, 8*3600).Draw(t, name+" ago")) * time.Second)
				}
				o.CreatedAt, o.StateSince = past("created"), past("since")
				if o.State == inventory.StateRunning || p.Kind == inventory.KindVolume {
					m := ledger.Meter{
						Name: "compute", Category: ledger.Compute, Source: "list",
						MinimumSeconds: 60, AsOf: past("priced"),
						Monthly: money.Amount(rapid.Int64Range(1, 1e14).Draw(t, "rate")),
						Moves:   rapid.Bool().Draw(t, "spot")}
					if p.Kind == inventory.KindVolume {
						m.Name, m.Category = "storage", ledger.Storage
					}
					if rapid.IntRange(0, 5).Draw(t, "priced") == 0 {
						m.Unpriced, m.Monthly = "no price", 0
					}
					o.Meters = []ledger.Meter{m}
				}
				if rapid.Bool().Draw(t, "measured") {
					o.Duty = []ledger.Span{
						{
							From:  now.Add(-time.Duration(rapid.Int64Range(1, 4000).Draw(t, "for")) * time.Second),
							To:    now,
							State: rapid.SampledFrom(duties).Draw(t, "duty"),
						},
					}
				}
				d.Seen = append(d.Seen, o)
			}
		}
		out = append(out, d)
	}
	return out
}

// Fleet returns a round with n busy machines that run since an hour before start.
func Fleet(account ledger.Account, start time.Time, n int, at time.Time) (ledger.Round, []ledger.Observation) {
	part := ledger.Part{Region: "us-east-1", Kind: inventory.KindInstance}
	r := ledger.Round{Account: account, At: at, Source: "test", Complete: []ledger.Part{part}}
	seen := make([]ledger.Observation, n)
	for i := range seen {
		seen[i] = ledger.Observation{
			At: at, Ref: inventory.Ref{
				Cloud: account.Cloud, Account: account.ID, Region: part.Region, Kind: part.Kind,
				ID: fmt.Sprintf("i-%08d", i),
			}, State: inventory.StateRunning,
			StateSince: start.Add(-time.Hour), CreatedAt: start.Add(-time.Hour),
			Attributes: ledger.Attributes{
				Type: "g6.2xlarge", Market: inventory.OnDemand,
				Owner: inventory.Owner{Team: fmt.Sprint("team-", i%7), Project: fmt.Sprint("p-", i%31)},
			},
			Meters: []ledger.Meter{
				{
					Name: "compute", Category: ledger.Compute, Monthly: 713_648_000_000, Source: "list",
					AsOf: start.Add(-time.Hour), MinimumSeconds: 60,
				},
			},
			Duty: []ledger.Span{{From: at.Add(-25 * time.Minute), To: at, State: duty.Busy}},
		}
	}
	return r, seen
}
