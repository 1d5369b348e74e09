package fleet

import (
	"fmt"
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// staleSteps is the age of a sample, in steps of its source, from which it is unknown
// (docs/safety.md, rule 2).
const staleSteps = 3

// maxRate bounds requests a second, and in flight, that a source may report.
const maxRate = 1e9

// Sample is the newest report of one source of demand: a gateway, a Prometheus server, a replica.
type Sample struct {
	Source string
	// At is the time of the sample; zero where the source is silent.
	At time.Time
	// Step is the time between samples of the source.
	Step time.Duration
	// InFlight is requests in service and waiting.
	InFlight inventory.Fact[float64]
	// Rate is requests a second that arrive; a source may know only one of the two.
	Rate inventory.Fact[float64]
	// CacheUse is the share of the KV cache in use, 0 to 1.
	CacheUse inventory.Fact[float64]
	// Problem is the reason for the silence of the source; empty where it answers.
	Problem string
}

// Demand is the load that callers put on a fleet. Its zero value is unknown.
type Demand struct {
	Known    bool
	InFlight inventory.Fact[float64]
	Rate     inventory.Fact[float64]
	CacheUse inventory.Fact[float64]
	// Why names the source that makes the demand unknown.
	Why string
}

// Sum adds the samples of all sources of one fleet. Demand is unknown without sources, and if one
// is silent, stale, dated in the future or reports no finite number of requests. In-flight
// requests and rate are each known only where every source knows them, and one of them must be.
func Sum(now time.Time, samples []Sample) Demand {
	if len(samples) == 0 {
		return Demand{Why: "no source of demand"}
	}
	inFlight, rate, cache := 0.0, 0.0, 0.0
	haveInFlight, haveRate, haveCache := true, true, true
	for _, s := range samples {
		if why := s.problem(now); why != "" {
			return Demand{Why: why}
		}
		haveInFlight = add(&inFlight, s.InFlight) && haveInFlight
		haveRate = add(&rate, s.Rate) && haveRate
		if v, ok := s.CacheUse.Get(); ok && v >= 0 && v <= 1 {
			cache = max(cache, v)
		} else {
			haveCache = false
		}
	}
	if !haveInFlight && !haveRate {
		return Demand{Why: "the sources report neither requests in flight nor their rate together"}
	}
	d := Demand{Known: true}
	if haveInFlight {
		d.InFlight = inventory.Known(inFlight)
	}
	if haveRate {
		d.Rate = inventory.Known(rate)
	}
	if haveCache {
		d.CacheUse = inventory.Known(cache)
	}
	return d
}

func add(sum *float64, f inventory.Fact[float64]) bool {
	v, ok := f.Get()
	*sum += v
	return ok
}

// problem returns why a sample is of no use now, or "".
func (s Sample) problem(now time.Time) string {
	switch age := now.Sub(s.At); {
	case s.Problem != "":
		return fmt.Sprintf("%s: %s", s.Source, s.Problem)
	case s.At.IsZero():
		return s.Source + " is silent"
	case s.Step <= 0:
		return s.Source + " has no step"
	case age > staleSteps*s.Step:
		return fmt.Sprintf("the newest sample of %s is %s old", s.Source, age.Round(time.Second))
	case age < -s.Step:
		return s.Source + " reports a time in the future"
	}
	for _, f := range []inventory.Fact[float64]{s.InFlight, s.Rate} {
		if v, ok := f.Get(); ok && !(v >= 0 && v <= maxRate) || math.IsNaN(v) {
			return fmt.Sprintf("%s reports %v requests", s.Source, v)
		}
	}
	_, inFlight := s.InFlight.Get()
	_, rate := s.Rate.Get()
	if !inFlight && !rate {
		return s.Source + " reports neither requests in flight nor their rate"
	}
	return ""
}

// Served is the demand for a fleet and its replicas, as the provider of the fleet measures them.
type Served struct {
	Sample Sample
	// Ready replicas serve; Starting ones do not yet.
	Ready, Starting int
}
