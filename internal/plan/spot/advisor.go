package spot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/plan"
)

// ErrNotInAdvisor means that the Spot Advisor has no machine type in a region.
var ErrNotInAdvisor = errors.New("not in the Spot Advisor")

// Advisor is the published data of the EC2 Spot Instance Advisor, by region and machine type: the
// band of the share of machines that were interrupted in the last month, and the saving over
// on-demand. Source: https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json.
type Advisor struct {
	// AsOf is the date of the data, for people; empty if it is unknown.
	AsOf string

	bands map[int]band
	types map[string]map[string]advised // by region
}

type band struct {
	Index int    `json:"index"`
	Label string `json:"label"`
	Max   int    `json:"max"` // percent
}

type advised struct {
	Saving int `json:"s"` // percent
	Range  int `json:"r"`
}

// ReadAdvisor reads the published JSON; Linux machines alone. A mistake is a [*plan.FileError].
func ReadAdvisor(name string, r io.Reader) (Advisor, error) {
	var doc struct {
		Ranges  []band                                   `json:"ranges"`
		Advisor map[string]map[string]map[string]advised `json:"spot_advisor"`
	}
	if err := json.NewDecoder(io.LimitReader(r, 64<<20)).Decode(&doc); err != nil {
		return Advisor{}, &plan.FileError{File: name, Reason: "expected the JSON of the Spot Advisor: " + err.Error()}
	}
	a := Advisor{bands: map[int]band{}, types: map[string]map[string]advised{}}
	for _, b := range doc.Ranges {
		a.bands[b.Index] = b
	}
	for region, systems := range doc.Advisor {
		a.types[region] = systems["Linux"]
	}
	if len(a.bands) == 0 || len(a.types) == 0 {
		return Advisor{}, &plan.FileError{File: name, Reason: "it has no ranges, or no spot_advisor by region"}
	}
	return a, nil
}

// Band is the published band of a machine type, next to what a trace records.
type Band struct {
	Type   string `json:"type"`
	Region string `json:"region"`
	// Label is the published band: "5-10%" of machines interrupted in a month.
	Label string `json:"interrupted_in_a_month"`
	// Low and High are the rates of interruptions an hour of a machine that runs on, by the bounds of
	// the band: −ln(1 − share) / 730; High is null for the open band.
	Low  float64  `json:"low_per_hour"`
	High *float64 `json:"high_per_hour"`
	// SavingShare is the published saving over on-demand.
	SavingShare float64 `json:"published_saving_share"`
	// AsOf is the date of the file.
	AsOf string `json:"as_of"`
	// RecordedPerHour is the rate of the trace: ends of availability for each hour of it.
	RecordedPerHour float64 `json:"recorded_per_hour"`
	RecordedHours   float64 `json:"recorded_hours"`
}

// Published returns the band of a type in a region, or [ErrNotInAdvisor].
func (a Advisor) Published(machineType, region string) (Band, error) {
	of, ok := a.types[region][machineType]
	b, known := a.bands[of.Range]
	if !ok || !known {
		return Band{}, fmt.Errorf("spot interruptions of %s in %s: %w", machineType, region, ErrNotInAdvisor)
	}
	out := Band{
		Type: machineType, Region: region, Label: strings.TrimSpace(b.Label), AsOf: a.AsOf,
		SavingShare: float64(of.Saving) / 100,
	}
	perHour := func(percent int) float64 { return -math.Log1p(-float64(percent)/100) / 730 }
	lower := 0
	for _, other := range a.bands {
		if other.Max < b.Max {
			lower = max(lower, other.Max)
		}
	}
	out.Low = perHour(lower)
	if b.Max < 100 {
		high := perHour(b.Max)
		out.High = &high
	}
	return out, nil
}

// String returns the band for people: "5-10% interrupted in a month, at most 0.00014/h".
func (b Band) String() string {
	s := b.Label + " interrupted in a month"
	if b.High != nil {
		return s + ", at most " + strconv.FormatFloat(*b.High, 'g', 2, 64) + "/h"
	}
	return s + ", at least " + strconv.FormatFloat(b.Low, 'g', 2, 64) + "/h"
}

// Source names the origin of the band with its date.
func (b Band) Source() string {
	if b.AsOf == "" {
		return "Spot Instance Advisor, of an unknown date"
	}
	return "Spot Instance Advisor, " + b.AsOf
}

// Band returns the band of a type in a region next to the rate of a trace, or [ErrNotInAdvisor].
func (a Advisor) Band(machineType, region string, tr Trace) (Band, error) {
	out, err := a.Published(machineType, region)
	if err != nil {
		return out, err
	}
	ends, up := 0, 0
	for _, z := range tr.Zones {
		for i, available := range z.Up {
			if !available {
				continue
			}
			up++
			if i+1 < len(z.Up) && !z.Up[i+1] {
				ends++
			}
		}
	}
	if out.RecordedHours = float64(up) * tr.Gap.Hours(); out.RecordedHours > 0 {
		out.RecordedPerHour = float64(ends) / out.RecordedHours
	}
	return out, nil
}

// middleBand is the middle of the band by which others are compared, "5-10%", in percent a month.
const middleBand = 7.5

// Relative returns the interruptions of the band as a ratio to those of the band "5-10%". Published
// bands rank places; how often machines are really taken is learned from runs.
func (b Band) Relative() float64 {
	share := func(perHour float64) float64 { return -math.Expm1(-perHour*730) * 100 }
	high := 30.0 // the open band
	if b.High != nil {
		high = share(*b.High)
	}
	return (share(b.Low) + high) / 2 / middleBand
}
