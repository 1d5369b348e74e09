package ledger

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
)

func TestObserve(t *testing.T) {
	machine := resource(inventory.KindInstance, "g6.2xlarge", inventory.StateRunning, linux(inventory.Spot))
	machine.Tags = map[string]string{inventory.TagHold: "h-7"}
	machine.Owner.Team, machine.CreatedAt = "vision", noon.Add(-time.Hour).Add(300*time.Millisecond)
	image := resource(inventory.KindImage, "", inventory.StateAvailable, nil)
	elsewhere := resource(inventory.KindInstance, "g6.2xlarge", inventory.StateRunning, linux(inventory.OnDemand))
	elsewhere.Account = "2"
	all := []*inventory.Resource{machine, image, elsewhere}
	s := Seen{
		Account: Account{"aws", "1"}, At: noon.Add(700 * time.Millisecond), Source: "scan",
		Regions:   []string{"us-east-1", "eu-west-1"},
		Kinds:     map[inventory.Kind]bool{inventory.KindInstance: true, inventory.KindVolume: true},
		Unread:    map[string]bool{"1/eu-west-1/instance": true},
		Resources: all, Rates: rates(all, book(t)),
		Spans: map[inventory.Ref][]Span{
			machine.Ref(): {{noon.Add(-20 * time.Minute), noon.Add(time.Minute), duty.Idle}},
		},
	}
	r, seen := Observe(s)
	want := []Part{
		{"eu-west-1", inventory.KindVolume}, {"us-east-1", inventory.KindInstance},
		{"us-east-1", inventory.KindVolume},
	}
	if !slices.Equal(r.Complete, want) || !r.At.Equal(noon) {
		t.Errorf("round %+v, want complete %v at noon", r, want)
	}
	if len(seen) != 1 {
		t.Fatalf("observed %d resources, want the account's own that can cost", len(seen))
	}
	o := seen[0]
	if o.Hold != "h-7" || o.Owner.Team != "vision" || o.Market != inventory.Spot ||
		!o.CreatedAt.Equal(noon.Add(-time.Hour)) {
		t.Errorf("observed %+v", o)
	}
	if len(o.Meters) != 1 || !o.Meters[0].Moves || o.Meters[0].MinimumSeconds != 60 ||
		o.Meters[0].AtMost <= o.Meters[0].Monthly || o.Meters[0].Source == "" {
		t.Errorf("meters %+v: want a spot machine's, bounded by its on-demand price", o.Meters)
	}
	if want := []Span{{noon.Add(-20 * time.Minute), noon, duty.Idle}}; !slices.Equal(o.Duty, want) {
		t.Errorf("duty %v, want %v", o.Duty, want)
	}
}

func TestLayered(t *testing.T) {
	s := func(from, to string, state duty.State) Span { return Span{clock(from), clock(to), state} }
	for _, tc := range []struct {
		name string
		in   []Span
		want []Span
	}{
		{
			"the first is on top", []Span{s("11:00", "11:30", duty.Idle), s("10:00", "12:00", duty.Busy)},
			[]Span{s("10:00", "11:00", duty.Busy), s("11:00", "11:30", duty.Idle), s("11:30", "12:00", duty.Busy)},
		},
		{
			"nothing after now", []Span{s("11:00", "13:00", duty.Idle), s("12:00", "13:00", duty.Busy)},
			[]Span{s("11:00", "12:00", duty.Idle)},
		},
		{
			"covered whole", []Span{s("10:00", "12:00", duty.Idle), s("10:30", "11:00", duty.Busy)},
			[]Span{s("10:00", "12:00", duty.Idle)},
		},
		{
			"without a break", []Span{
				s("11:00", "12:00", duty.Idle), s("10:00", "11:30", duty.Idle), s("09:00", "10:00", duty.Busy),
				s("08:00", "08:30", duty.Busy),
			},
			[]Span{s("08:00", "08:30", duty.Busy), s("09:00", "10:00", duty.Busy), s("10:00", "12:00", duty.Idle)}},
		{"empty and reversed", []Span{s("11:00", "11:00", duty.Idle), s("11:30", "11:00", duty.Busy)}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := layered(tc.in, noon); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// BenchmarkDerive derives the entries of an hour of 100,000 machines after those of the previous
// hour.
func BenchmarkDerive(b *testing.B) {
	histories := make([]History, 100_000)
	for i := range histories {
		name := func(o *Observation) { o.Ref.ID = fmt.Sprintf("i-%08d", i) }
		first := seen("12:00", inventory.StateRunning, name, launched("08:00"))
		second := seen("13:00", inventory.StateRunning, name, launched("08:00"), did(duty.Busy, "12:10", "13:00"))
		third := seen("14:00", inventory.StateRunning, name, launched("08:00"), did(duty.Busy, "13:30", "14:00"))
		h := History{Ref: first.Ref, Observations: []Observation{first, second}, Rounds: clocks("12:00", "13:00")}
		posted, err := h.accrue(clock("12:00"), clock("14:00"))
		if err != nil {
			b.Fatal(err)
		}
		h.Observations, h.Rounds, h.Posted = append(h.Observations, third), clocks("12:00", "13:00", "14:00"), posted
		histories[i] = h
	}
	for b.Loop() {
		added := 0
		for some := range slices.Chunk(histories, postBatch) {
			var a accrual
			var entries []Entry
			for i := range some {
				var err error
				if entries, err = a.differences(entries, &some[i], clock("12:00"), clock("15:00"),
					clock("14:00")); err != nil {
					b.Fatal(err)
				}
			}
			added += len(entries)
		}
		if added != 2*len(histories) {
			b.Fatalf("added %d entries", added)
		}
	}
}
