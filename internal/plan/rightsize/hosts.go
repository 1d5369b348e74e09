package rightsize

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// HostSpan is the least time of samples by which a machine without accelerators is right-sized: load
// follows the days of the week.
const HostSpan = 7 * day

// Host is a machine without accelerators, right-sized by its CPUs and memory.
type Host struct {
	Name   string `json:"resource"`
	Type   string `json:"type"`
	Region string `json:"region"`
	// Verdict is "underutilized", "well-used" or "unknown", or the duty of a machine that does not work.
	Verdict string `json:"verdict"`
	Why     string `json:"why"`
	// CPUUtilMean, CPUUtilP95 and CPUUtilMax are in percent of all its CPUs; null where nothing was measured.
	CPUUtilMean *float64 `json:"cpu_util_mean"`
	CPUUtilP95  *float64 `json:"cpu_util_p95"`
	CPUUtilMax  *float64 `json:"cpu_util_max"`
	// Coverage is the share of the time that samples cover, 0 to 1.
	Coverage float64 `json:"coverage"`
	// VCPUsNeeded and MemoryGiBNeeded are what it needs, headroom included; null where unknown. Where
	// memory was not measured it needs what it has.
	VCPUsNeeded     *float64 `json:"vcpus_needed"`
	MemoryGiBNeeded *float64 `json:"memory_gib_needed"`
	MemoryMeasured  bool     `json:"memory_measured"`
	// HourlyUSD is the list price on demand; null where the book has none.
	HourlyUSD money.Dollars `json:"usd_per_hour"`
	// Advised is the type to move to, and Graviton a cheaper one whose work has to be rebuilt for arm64; null
	// where there is none.
	Advised  *HostFit `json:"advised"`
	Graviton *HostFit `json:"graviton"`
}

// HostFit is a machine type without accelerators that fits the measured work.
type HostFit struct {
	Type      string       `json:"type"`
	VCPUs     int          `json:"vcpus"`
	MemoryGiB float64      `json:"memory_gib"`
	HourlyUSD money.Amount `json:"usd_per_hour"`
	// SavingUSD is a month's saving at list price; null where today's price is unknown.
	SavingUSD money.Dollars `json:"saving_usd_per_month"`
	Source    string        `json:"source"`
	// AsOf is the date from which the price holds.
	AsOf string `json:"as_of"`
	// Against are reasons against it.
	Against []string `json:"against"`
}

// verdict returns the verdict on a machine that was sized.
func (s *CPUSizing) verdict() (Verdict, string) {
	switch {
	case s.Why == "":
		return Underutilized, "p95 CPU utilization " + plain.Percent(s.UtilP95, 0)
	case s.UtilP95 >= UnderutilizedCPUBelow:
		return WellUsed, s.Why
	}
	return Unknown, s.Why
}

// host adds a machine without accelerators.
func (t *total) host(m Measured) error {
	h := Host{Name: m.Name, Type: m.Type, Region: m.Region, Verdict: m.Rest, Why: m.RestWhy}
	from, known := t.offers.book.Machine(m.Type)
	if p, err := t.offers.book.OnDemand(m.Type, m.Region); err == nil {
		if hourly, err := p.Hourly(); err == nil {
			h.HourlyUSD = money.Known(hourly)
		}
	}
	switch {
	case m.Rest != "":
	case !known:
		h.Verdict, h.Why = Unknown.String(), "the price book does not know its type"
	case m.Window.To.Sub(m.Window.From)+2*m.Window.Step < HostSpan:
		h.Verdict, h.Why = Unknown.String(), "its samples are of less than a week"
	default:
		s, err := t.offers.SizeCPU(m.Window, from, m.Region, t.p.Options)
		if err != nil {
			return err
		}
		v, why := s.verdict()
		h.Verdict, h.Why = v.String(), why
		if err := h.size(&s, t.p.LeastSaving); err != nil {
			return fmt.Errorf("right-size %s: %w", m.Name, err)
		}
		if m.Spot {
			h.atSpotPrice()
		}
	}
	t.hosts = append(t.hosts, h)
	return nil
}

// size adds what the machine needs, and the types that fit. A type that saves a smaller share of the price
// than least is none.
func (h *Host) size(s *CPUSizing, least float64) error {
	h.Coverage = s.Coverage
	if s.VCPUs > 0 {
		h.CPUUtilMean, h.CPUUtilP95, h.CPUUtilMax = &s.UtilMean, &s.UtilP95, &s.UtilMax
		h.VCPUsNeeded = &s.VCPUs
		h.MemoryGiBNeeded, h.MemoryMeasured = &s.MemoryGiB, s.MemoryKnown
	}
	if s.Why != "" {
		return nil
	}
	own, priced := s.Hourly.Get()
	accept := func(c CPUCandidate) bool {
		return !priced || float64(c.Hourly) <= (1-least)*float64(own)
	}
	fit := func(arch string) (*HostFit, error) {
		c, ok := s.First(arch, accept)
		if !ok {
			return nil, nil
		}
		f := &HostFit{
			Type: c.Machine.Type, VCPUs: c.Machine.VCPUs, MemoryGiB: float64(c.Machine.MemoryMiB) / 1024,
			HourlyUSD: c.Hourly, Source: c.Price.Source, AsOf: c.Price.AsOf.Format(time.DateOnly),
			Against: append([]string{}, c.Drawbacks...),
		}
		if priced {
			month, err := (own - c.Hourly).Mul(money.HoursPerMonth, 1)
			if err != nil {
				return nil, err
			}
			f.SavingUSD = money.Known(month)
		}
		return f, nil
	}
	var err error
	if h.Advised, err = fit(s.m.from.Arch); err != nil || s.m.from.Arch == ARM {
		return err
	}
	if h.Graviton, err = fit(ARM); err != nil {
		return err
	}
	if h.Graviton != nil && h.Advised != nil && h.Graviton.HourlyUSD >= h.Advised.HourlyUSD {
		h.Graviton = nil
	}
	return nil
}

// atSpotPrice takes back the savings, which are of the price on demand.
func (h *Host) atSpotPrice() {
	for _, f := range []*HostFit{h.Advised, h.Graviton} {
		if f != nil {
			f.SavingUSD = money.Dollars{}
			f.Against = append(f.Against, "it runs at the spot price, which is not compared")
		}
	}
}

// hostSavings adds up the savings of the advised types; known is false without any.
func hostSavings(hosts []Host) (sum money.Amount, known bool, err error) {
	for _, h := range hosts {
		if h.Advised == nil {
			continue
		}
		v, ok := h.Advised.SavingUSD.Get()
		if !ok {
			continue
		}
		known = true
		if sum, err = sum.Add(v); err != nil {
			return 0, false, fmt.Errorf("add up the savings of machines without GPUs: %w", err)
		}
	}
	return sum, known, nil
}

// hostNotes are the assumptions about machines without accelerators.
func (t *total) hostNotes(r *Report) {
	if len(t.hosts) == 0 {
		return
	}
	unknown, resting := 0, 0
	for _, h := range t.hosts {
		switch h.Verdict {
		case Unknown.String():
			unknown++
		case Underutilized.String(), WellUsed.String():
		default:
			resting++
		}
	}
	r.Assumptions = append(r.Assumptions,
		"machines without GPUs: CPUs at their 95th percentile, or at their peak where it is under "+
			plain.Percent(restingCPU, 0)+"; from "+plain.Percent(UnderutilizedCPUBelow, 0)+" on they are well used; burstable "+
			"types only where their credits last, and without spending on more")
	note := fmt.Sprintf("%s without GPUs: %d not judged", plain.Count(len(t.hosts), "machine"), unknown)
	if resting > 0 {
		note += fmt.Sprintf(", %d at rest, which `curfew scan` finds", resting)
	}
	r.CoverageNotes = append(r.CoverageNotes, note)
}
