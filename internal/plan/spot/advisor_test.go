package spot

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

const advisorFile = `{"ranges":[{"index":0,"label":"<5%","dots":0,"max":5},{"index":1,"label":"5-10%","dots":1,"max":11},
{"index":4,"label":">20%","dots":4,"max":100}],"spot_advisor":{"eu-west-1":{"Linux":{"g6.xlarge":{"s":61,"r":1},
"p5.48xlarge":{"s":40,"r":4}},"Windows":{"g6.2xlarge":{"s":50,"r":0}}}}}`

// TestAdvisorBandBesideTrace checks that the published band becomes hourly rates, next to that of
// the trace.
func TestAdvisorBandBesideTrace(t *testing.T) {
	a, err := ReadAdvisor("advisor.json", strings.NewReader(advisorFile))
	if err != nil {
		t.Fatal(err)
	}
	tr := Trace{Gap: 30 * time.Minute, Zones: []Zone{
		{Up: []bool{true, true, false, true}}, {Up: []bool{true, false, true, false}},
	}}
	a.AsOf = "2026-11-20"
	b, err := a.Band("g6.xlarge", "eu-west-1", tr)
	if err != nil {
		t.Fatal(err)
	}
	// A machine with that rate is interrupted within 730 hours with the share of the band.
	within := func(rate float64) float64 { return 1 - math.Exp(-rate*730) }
	if b.Label != "5-10%" || b.High == nil || math.Abs(within(b.Low)-0.05) > 1e-9 ||
		math.Abs(within(*b.High)-0.11) > 1e-9 || b.SavingShare != 0.61 || b.AsOf != "2026-11-20" {
		t.Errorf("%+v", b)
	}
	if b.RecordedHours != 2.5 || math.Abs(b.RecordedPerHour-3/2.5) > 1e-9 {
		t.Errorf("recorded %v an hour of %v hours", b.RecordedPerHour, b.RecordedHours)
	}
	if b, err = a.Band("p5.48xlarge", "eu-west-1", tr); err != nil || b.High != nil ||
		math.Abs(within(b.Low)-0.11) > 1e-9 {
		t.Errorf("the open band: %+v, %v", b, err)
	}
	for _, of := range [][2]string{{"g6.2xlarge", "eu-west-1"}, {"g6.xlarge", "us-east-1"}} {
		if _, err := a.Band(of[0], of[1], tr); !errors.Is(err, ErrNotInAdvisor) {
			t.Errorf("%v: %v", of, err)
		}
	}
}

// TestRejectsOtherJSON checks that a file without bands is refused.
func TestRejectsOtherJSON(t *testing.T) {
	for _, text := range []string{"", "[]", "{}", `{"ranges":[],"spot_advisor":{}}`} {
		if _, err := ReadAdvisor("a.json", strings.NewReader(text)); err == nil ||
			!strings.Contains(err.Error(), "a.json") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
