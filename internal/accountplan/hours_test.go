package accountplan

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
)

var since = time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)

// machine returns the reference of a machine.
func machine(id string) inventory.Ref {
	return inventory.Ref{Cloud: "aws", Account: "1", Region: "us-east-1", Kind: inventory.KindInstance, ID: id}
}

// stretch is the duty of one machine in a part of one hour.
type stretch struct {
	id, machineType, duty string
	hour                  int
	seconds               int64
}

// account returns the account of a machine; names that begin with lab are on premises.
func (s stretch) account() string {
	if strings.HasPrefix(s.id, "lab") {
		return "onprem/rack"
	}
	return "aws/1"
}

// rates are hourly dollars by machine type.
var rates = map[string]int64{"p4d.24xlarge": 20, "g5.12xlarge": 6, "g5.xlarge": 1}

// stretches implements sums.
type stretches []stretch

func (all stretches) Sums(_ context.Context, q ledger.SumQuery) ([]ledger.Sum, error) {
	sums := map[string]*ledger.Sum{}
	for _, s := range all {
		values := map[ledger.Dimension]string{
			ledger.ByType: s.machineType, ledger.ByRegion: "us-east-1", ledger.ByDuty: s.duty,
			ledger.ByResource: machine(s.id).String(), ledger.ByCategory: string(ledger.Compute),
			ledger.ByPricing: string(ledger.Standard), ledger.ByKind: string(inventory.KindInstance),
			ledger.ByAccount: s.account(),
		}
		misses := func(m ledger.Match) bool { return !slices.Contains(m.Values, values[m.By]) }
		if slices.ContainsFunc(q.Filter, misses) {
			continue
		}
		var key []string
		for _, d := range q.By {
			key = append(key, values[d])
		}
		at := fmt.Sprint(s.hour, key)
		if sums[at] == nil {
			sums[at] = &ledger.Sum{Period: since.Add(time.Duration(s.hour) * time.Hour), Key: key}
		}
		sums[at].Sums.Seconds += s.seconds
		sums[at].Sums.Amount += money.Amount(rates[s.machineType]*s.seconds) * money.USD / 3600
	}
	var out []ledger.Sum
	for _, at := range slices.Sorted(maps.Keys(sums)) {
		out = append(out, *sums[at])
	}
	return out, nil
}

// TestHoursExcludeFixedMachines compares the use for commitments with a count machine by
// machine: machines that stop or move to spot are gone, resized ones work at their new type, idle
// time is excluded.
func TestHoursExcludeFixedMachines(t *testing.T) {
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		fixes := map[string]change.Change{
			"stays": {}, "ends": {Verb: change.Stop}, "spot": {Verb: change.UseSpot},
			"weekly": {Verb: change.Schedule},
			"small":  {Verb: change.ChangeType, Arguments: change.Arguments{Type: "g5.xlarge"}},
			"odd":    {Verb: change.ChangeType, Arguments: change.Arguments{Type: "x9.unknown"}},
			"moves":  {Verb: change.Move, Arguments: change.Arguments{Region: "us-west-2"}},
			"spare":  {Verb: change.Advise}, "lab-1": {}, "lab-2": {Verb: change.Stop},
		}
		gone := []change.Verb{change.Stop, change.UseSpot, change.Schedule}
		var all stretches
		var kept []Fix
		lab := int64(0)            // dollar-seconds of machines without commitments
		want := map[string]int64{} // seconds to commit to, by hour and key
		for id, fix := range fixes {
			machineType := rapid.SampledFrom([]string{
				"p4d.24xlarge", "g5.12xlarge", "g5.xlarge",
			}).Draw(rt, "type of "+id)
			kept = append(kept, Fix{machine(id), machineType, fix})
			for hour := range 2 {
				for _, duty := range []string{"busy", "idle", "held"} {
					s := stretch{id, machineType, duty, hour, rapid.Int64Range(0, 1200).Draw(rt, "seconds")}
					all = append(all, s)
					key := machineType + "/us-east-1"
					switch {
					case strings.HasPrefix(id, "lab"):
						lab += rates[machineType] * s.seconds
						continue
					case duty != "busy" || slices.Contains(gone, fix.Verb) || id == "odd":
						continue
					case id == "small":
						key = "g5.xlarge/us-east-1"
					case id == "moves":
						key = machineType + "/us-west-2"
					}
					want[fmt.Sprint(hour, key)] += s.seconds
				}
			}
		}
		use, notes, err := Hours(rt.Context(), all, since, since.Add(2*time.Hour), NewLeaving(kept), book)
		if err != nil {
			rt.Fatal(err)
		}
		for _, u := range use {
			at := fmt.Sprint(int(u.Hour.Sub(since).Hours()), u.Key)
			left := u.Quantity - u.Idle - u.Leaving
			if diff := left - machines(want[at]); diff < -2 || diff > 2 { // three roundings
				rt.Fatalf("%s: %d of a machine remain, want %d", at, left, machines(want[at]))
			}
			delete(want, at)
		}
		for at, seconds := range want {
			if seconds > 0 {
				rt.Fatalf("%s is missing", at)
			}
		}
		text := strings.Join(notes, "\n")
		if got := strings.Contains(text, "machines of onprem ("); got != (lab > 0) {
			rt.Fatalf("%d dollar-seconds on premises: notes %q", lab, text)
		}
		if strings.Contains(text, "x9.unknown/us-east-1") != slices.ContainsFunc(all, func(s stretch) bool {
			return s.id == "odd" && s.duty == "busy" && s.seconds > 0
		}) {
			rt.Fatalf("notes %q", text)
		}
	})
}

// TestLeavingMachines checks which fixes remove machines from commitments, and their precedence.
func TestLeavingMachines(t *testing.T) {
	volume := machine("vol-1")
	volume.Kind = inventory.KindVolume
	smaller := change.Arguments{Type: "g6.xlarge"}
	members := change.Arguments{Members: []string{"m1", "m2"}}
	got := NewLeaving([]Fix{
		{machine("both"), "g5.xlarge", change.Change{Verb: change.ChangeType, Arguments: smaller}},
		{machine("both"), "g5.xlarge", change.Change{Verb: change.Terminate}},
		{machine("both"), "g5.xlarge", change.Change{Verb: change.UseSpot}},
		{machine("lead"), "g5.xlarge", change.Change{Verb: change.Advise, Arguments: members}},
		{
			machine("grow"), "g5.xlarge",
			change.Change{Verb: change.Advise, Arguments: change.Arguments{Count: new(int64(2))}},
		},
		{machine("tag"), "g5.xlarge", change.Change{Verb: change.Tag}},
		{volume, "gp3", change.Change{Verb: change.Delete}},
	})
	if want := "3 to stop"; got.String() != want || len(got) != 3 {
		t.Errorf("got %s of %v, want %s", got, got, want)
	}
	for resource, want := range map[string]bool{
		"m1": true, "arn:aws:ec2:us-east-1:1:instance/both": true, "lead": false,
		"vol-1": false, "": false, "x/": false,
	} {
		if got.Billed()(resource) != want {
			t.Errorf("%q: got %v", resource, !want)
		}
	}
}

// folded is a ledger that has single resources only from a time on.
type folded struct {
	stretches
	until time.Time
}

func (f folded) Sums(ctx context.Context, q ledger.SumQuery) ([]ledger.Sum, error) {
	if slices.Contains(q.By, ledger.ByResource) && q.Since.Before(f.until) {
		return nil, &ledger.FoldedError{Until: f.until}
	}
	all, err := f.stretches.Sums(ctx, q)
	return slices.DeleteFunc(all, func(s ledger.Sum) bool { return s.Period.Before(q.Since) }), err
}

// TestHoursOfFoldedLedger checks that old hours of a leaving machine, recorded without the machine,
// count as staying, with a note.
func TestHoursOfFoldedLedger(t *testing.T) {
	all := stretches{{"gone", "g5.xlarge", "busy", 0, 3600}, {"gone", "g5.xlarge", "busy", 1, 3600}}
	leaves := Leaving{machine("gone"): {}}
	for hours, want := range map[int][2]bool{0: {true, true}, 1: {false, true}} {
		ledgerOf := folded{all, since.Add(time.Duration(hours) * time.Hour)}
		use, notes, err := Hours(t.Context(), ledgerOf, since, since.Add(2*time.Hour), leaves, nil)
		if err != nil || len(use) != 2 {
			t.Fatalf("%d hours, %v", len(use), err)
		}
		for i, u := range use {
			if (u.Leaving > 0) != want[i] {
				t.Errorf("%d hours folded: hour %d has %d that leave", hours, i, u.Leaving)
			}
		}
		if strings.Contains(strings.Join(notes, "\n"), "kept without the machine") != (hours > 0) {
			t.Errorf("%d hours folded: notes %q", hours, notes)
		}
	}
}
