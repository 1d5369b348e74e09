package fleets

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/view"
)

func onlyFleet(t *testing.T, doc view.ServingFleets) view.ServingFleet {
	t.Helper()
	if len(doc.Fleets) != 1 {
		t.Fatalf("got %+v", doc)
	}
	return doc.Fleets[0]
}

// TestDocumentSaysWhatIsUnknown reads a fleet before its first reading, with demand, and in silence.
func TestDocumentSaysWhatIsUnknown(t *testing.T) {
	source := &stub{}
	w := watching(fleetConfig(), source)
	if got := onlyFleet(t, w.Document(start)); got.Wanted != nil || got.Actual != nil || got.Demand.Known ||
		got.DecidedAt != nil || got.HourlyUSD.Known() || !strings.Contains(got.Next, "first reading") {
		t.Errorf("before the first reading: %+v", got)
	}
	source.says(start, 150, 30, 2, 0)
	w.Look(t.Context(), start)
	got := onlyFleet(t, w.Document(start))
	if got.Wanted == nil || *got.Wanted <= 2 || got.Actual == nil || *got.Actual != 2 || *got.Demand.InFlight != 150 ||
		*got.Demand.RequestsPerSecond != 30 || got.Demand.CacheUse != nil || *got.Demand.Need != *got.Wanted ||
		!strings.HasPrefix(got.Next, "other autoscalers are told") || got.Mode != "observe" {
		t.Errorf("with demand: %+v", got)
	}
	source.reading.Sample.Problem = "throttled"
	w.Look(t.Context(), start.Add(15*time.Second))
	if got := onlyFleet(t, w.Document(start)); got.Demand.Known || got.Demand.InFlight != nil ||
		!strings.Contains(got.Demand.Why, "throttled") || got.Next != "none until its demand is known" {
		t.Errorf("in silence: %+v", got)
	}
}

// TestDocumentNamesTheTimeOfTheNextStep compares the time from which a quiet fleet is to become smaller
// with that at which it does.
func TestDocumentNamesTheTimeOfTheNextStep(t *testing.T) {
	source := &stub{}
	w := watching(fleetConfig(), source)
	at := start
	read := func(inFlight, rate float64) view.ServingFleet {
		source.says(at, inFlight, rate, 4, 0)
		w.Look(t.Context(), at)
		return onlyFleet(t, w.Document(at))
	}
	for range 10 {
		read(110, 30)
		at = at.Add(15 * time.Second)
	}
	told, size := "", *onlyFleet(t, w.Document(at)).Wanted
	for range 100 {
		got := read(1, 0.5)
		if *got.Wanted < size {
			var from string
			if _, err := fmt.Sscanf(told, fmt.Sprintf("fewer than %d from %%s UTC,", size), &from); err != nil ||
				from > at.Format(time.TimeOnly) || from < at.Add(-30*time.Second).Format(time.TimeOnly) {
				t.Errorf("it was told %q, and shrank at %s", told, at.Format(time.TimeOnly))
			}
			return
		}
		if got.Rule == "stabilization" {
			told = got.Next
		}
		at = at.Add(15 * time.Second)
	}
	t.Fatal("it never shrank")
}

func TestDocumentPricesAndBlocks(t *testing.T) {
	p := newActed(fleetConfig(), 2)
	p.refuse = "over the month's budget"
	p.says(150, 30)
	p.step(t)
	got := onlyFleet(t, p.Document(p.clock.Wall))
	if got.ReplicaHourlyUSD.Cents() != "1.00" || got.HourlyUSD.Cents() != "2.00" || *got.Actual != 2 ||
		!strings.Contains(got.Blocked, "over the month's budget") || got.Next != "tried again at the next decision" {
		t.Errorf("got %+v", got)
	}
}

func TestPlannedFleetsAreUnknown(t *testing.T) {
	set, err := policy.Parse("p.yaml", []byte("apiVersion: curfew.policy/v1\npolicies:\n"+
		"  - {name: a, then: [{do: scale, fleet: asg/embed, min: 1, max: 3}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := Planned(apptest.Request(t, ""), config.Default(), set)
	if err != nil {
		t.Fatal(err)
	}
	if got := onlyFleet(t, doc); doc.Reason == "" || got.Max != 3 || got.Wanted != nil || got.Actual != nil ||
		got.Demand.Known || !strings.Contains(doc.Reason, "curfew serve") {
		t.Errorf("got %+v", doc)
	}
}
