package spot

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestReportSchema checks the documents to their shapes.
func TestReportSchema(t *testing.T) {
	const hostile = `<b>"z"&`
	tr := Trace{
		Gap: gap, Zones: []Zone{zone(hostile, strings.Repeat("###..", 20)), zone("y", strings.Repeat("##...", 20))},
	}
	r, err := Replay(tr, small)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Checkpoint(tr, saves)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		v      any
		schema string
		keys   []string
		names  []string
	}{
		{
			"spot", r, Schema, []string{
				"results", "zones", "assumptions", "coverage_notes", "changes", "on_demand_cost_usd",
			},
			[]string{Greedy, UniformProgress, Curfew, Bound},
		},
		{
			"checkpoint", c, CheckpointSchema, []string{
				"results", "prior", "assumptions", "coverage_notes", "changes",
			},
			[]string{Young, Daly, BestFixed, Curfew},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := json.Marshal(tc.v)
			if err != nil {
				t.Fatal(err)
			}
			var doc map[string]any
			if err := json.Unmarshal(b, &doc); err != nil {
				t.Fatal(err)
			}
			if doc["schema"] != tc.schema {
				t.Errorf("schema %v", doc["schema"])
			}
			for _, k := range tc.keys {
				if doc[k] == nil {
					t.Errorf("%s is missing in %s", k, b)
				}
			}
			for i, x := range doc["results"].([]any) {
				if got := x.(map[string]any)["name"]; got != tc.names[i] {
					t.Errorf("result %d is of %v, want %s", i, got, tc.names[i])
				}
			}
		})
	}
	if len(r.Case.Ran) == 0 || len(r.Case.Ran) != len(r.Case.Up) {
		t.Errorf("the case has %d steps and %d samples", len(r.Case.Ran), len(r.Case.Up))
	}
}

// shrinkHazard is zones as heavy-tailed as recorded ones.
func shrinkHazard(zones, samples int) Trace {
	tr := Trace{Gap: 195 * time.Second}
	for z := range zones {
		random := rand.New(rand.NewPCG(uint64(z), 1))
		zone := Zone{Name: fmt.Sprint(z)}
		for _, m := range drawHistory(random, samples, tr.Gap, prior{0.5 + random.Float64()/2, 30 * time.Minute},
			prior{0.5 + random.Float64()/2, 30 * time.Minute})[:samples] {
			zone.Up = append(zone.Up, m.up)
		}
		tr.Zones = append(tr.Zones, zone)
	}
	return tr
}

// BenchmarkReplay is 45 days of five zones, every 195 seconds, and ten times that.
func BenchmarkReplay(b *testing.B) {
	for _, zones := range []int{5, 50} {
		b.Run(fmt.Sprintf("zones=%d", zones), func(b *testing.B) {
			tr, p := shrinkHazard(zones, 20_000), campaignParams("1.15x")
			b.ReportAllocs()
			for b.Loop() {
				r, err := Replay(tr, p)
				if err != nil || r.result(Curfew).Misses > 0 {
					b.Fatal(r.result(Curfew), err)
				}
			}
		})
	}
}

// BenchmarkAcrossZones moves cases between 50 zones.
func BenchmarkAcrossZones(b *testing.B) {
	tr, p := shrinkHazard(50, 20_000), campaignParams("1.15x")
	p.AcrossZones = true
	for b.Loop() {
		if _, err := Replay(tr, p); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCheckpoint plans the runs of 50 zones over 45 days.
func BenchmarkCheckpoint(b *testing.B) {
	tr := shrinkHazard(50, 20_000)
	for b.Loop() {
		if _, err := Checkpoint(tr, saves); err != nil {
			b.Fatal(err)
		}
	}
}
