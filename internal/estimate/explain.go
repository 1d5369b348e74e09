package estimate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/spot"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/spec"
)

// maxAlternatives is how many machines that were not chosen are listed.
const maxAlternatives = 10

// write puts the cheapest option down, with the others as alternatives.
func (c *chooser) write(options []*outcome, unknown []string) (*Estimate, error) {
	o, s := options[0], c.spec
	e := &Estimate{Kind: string(s.Kind), Name: s.Name, SpecHash: c.hash, Owner: s.Owner, Purpose: s.Purpose,
		P50: o.p50, P95: o.p95, Hourly: o.hourly, Machine: o.bought(s), Region: o.region, Machines: o.count,
		Duration: &o.duration, Lines: o.lines,
		Unknown: slices.Concat([]string{}, s.Unknown, unknown), Open: slices.Concat(s.Unknown, o.openCosts)}
	if why := o.unbounded(s); why != "" {
		e.Unknown, e.Open = append(e.Unknown, why), append(e.Open, why)
	}
	if g := e.Machine; g.GPUs > 0 {
		e.GPUs = map[string]int{g.GPU: g.GPUs * g.Count}
	}
	for _, a := range options[1:min(len(options), 1+maxAlternatives)] {
		e.Alternatives = append(e.Alternatives, Alternative{
			Machine: *a.bought(s), Region: a.region, Hourly: a.hourly, P50: a.p50, P95: a.p95, Unknown: len(a.unknown),
		})
	}
	e.Title = fmt.Sprintf("%s: %s (p50) to %s (p95): %d × %s (%s) in %s for %s",
		s.Name, e.P50.Dollars(), e.P95.Dollars(), o.count, o.machine.Type, s.Capacity, o.region,
		plain.Duration(o.duration.p50))
	e.Assumptions, e.CoverageNotes, e.Changes = c.assumed(o), c.covered(o, len(options)), c.changes(o, options)
	return e, nil
}

// bought is the machine as it is bought.
func (o *outcome) bought(s *spec.Spec) *Machine {
	return &Machine{
		Type: o.machine.Type, Capacity: s.Capacity, Count: o.count, GPU: o.machine.Accelerator, GPUs: o.machine.GPUs(),
	}
}

// unbounded returns the reason why the duration has no bound: it is only declared, or known from
// few runs, and nothing ends the work. It is empty otherwise.
func (o *outcome) unbounded(s *spec.Spec) string {
	switch w := o.work; {
	case o.duration.limit > 0:
	case w.basis == Declared && s.Digest != "" && s.Duration == money.Month: // of a manifest that says nothing
		if slices.ContainsFunc(s.Unknown, func(why string) bool { return strings.HasPrefix(why, "how long") }) {
			return ""
		}
		return "how long it runs: nothing ends it, and it is estimated for a month of 730 hours; " +
			"activeDeadlineSeconds " +
			"would end it"
	case w.basis == Declared:
		return fmt.Sprintf("how long it runs: %s are declared and nothing ends it then; add max_runtime or max_cost",
			plain.Duration(s.Duration))
	case w.tooFewRuns:
		return fmt.Sprintf("how long it runs: %s say %s and nothing ends it then; add max_runtime or max_cost",
			plain.Count(w.runs, "past run"), plain.Duration(w.p95))
	}
	return ""
}

// notes are sentences.
type notes []string

func (n *notes) add(format string, a ...any) { *n = append(*n, fmt.Sprintf(format, a...)) }

// assumed lists the assumptions of the estimate.
func (c *chooser) assumed(o *outcome) []string {
	n := notes{}
	d := c.params.Defaults
	if c.spec.Resources.GPUs > 0 && c.spec.Resources.GPUs < o.machine.GPUs() && c.spec.Resources.InstanceType == "" {
		n.add("no machine has exactly %d × %s: %s has %d, and all are paid",
			c.spec.Resources.GPUs, o.machine.Accelerator,
			o.machine.Type, o.machine.GPUs())
	}
	switch {
	case len(c.nodes) > 1:
		n.add("it names no machine and may run on %s nodes of the cluster: the most expensive counts",
			strings.Join(c.nodes, ", "))
	case len(c.nodes) == 1:
		n.add("it names no machine and runs on %s nodes of the cluster", c.nodes[0])
	}
	if c.spec.DiskGiB == 0 {
		n.add("each machine has a root disk of %d GiB", d.DiskGiB)
	}
	switch w := o.work; w.basis {
	case Learned:
		on := "any machines"
		if w.sameMachines {
			on = "the same machines"
		}
		n.add("the work takes as long as in %s of that name on %s; a run that is %s old counts half",
			plain.Count(w.runs, "completed run"), on, plain.Duration(halfLife))
	case Declared:
		if c.assumedRuntime > 0 {
			n.add("it says nothing of how long it runs: %s by estimate.runtime", plain.Duration(c.assumedRuntime))
			break
		}
		n.add("the work takes the declared %s without interruption", plain.Duration(c.spec.Duration))
	case Capped:
		n.add("it runs until %s ends it", o.duration.CapBy)
	}
	if o.hasSpot && c.spec.Capacity != spec.OnDemand {
		r := c.ordeal(o.count)
		from := c.interruptionRate.Source
		if c.interruptionRate.Hours > 0 {
			from = fmt.Sprintf("%s machine hours of past runs and, as if seen for %d hours, %s",
				plain.Number(c.interruptionRate.Hours, 0),
				spot.PriorHours, from)
		}
		n.add("a spot machine is interrupted %s times an hour (%s), and each time the run continues after %s",
			plain.Number(c.interruptionRate.PerHour, 2), from, plain.Duration(r.restart))
		if c.interruptionRate.Ranged() {
			n.add(
				"how often is not measured here: %s to %s times an hour; state it as spot.interruptions_per_hour, or give "+
					"past runs as spot.runs",
				plain.Number(c.interruptionRate.Low, 2), plain.Number(c.interruptionRate.High, 2))
		}
		if a := c.params.Defaults.Advisor; a != nil {
			if band, err := a.Published(o.machine.Type, o.region); err == nil {
				n.add("published for %s in %s: %s (%s); the rate above is of the time of one machine, launches included",
					o.machine.Type, o.region, band, band.Source())
			} else {
				n.add("the Spot Instance Advisor's file says nothing of %s in %s", o.machine.Type, o.region)
			}
		}
		if r.saveInterval > 0 {
			n.add("work is saved every %s, which takes no time (assumed); an interruption loses the work since then",
				plain.Duration(r.saveInterval))
		} else if c.spec.Kind == spec.Job {
			n.add("no checkpoint is kept: an interruption loses all work")
		}
		if c.spec.Kind == spec.Job {
			n.add("it is given up after %s", plain.Count(c.spec.Retries.Interruptions, "interruption"))
		}
		if c.spec.Capacity == spec.Auto {
			n.add("at the worst there is no spot capacity and all runs on demand")
		}
	}
	if len(c.spec.Data) > 0 {
		n.add("the data is read once, and once more after each interruption")
	}
	if c.spec.Checkpoint != nil || c.spec.Artifacts != nil {
		n.add(
			"data in buckets is priced for one month; a bucket whose region is not known is taken to be near")
	}
	n.add("list prices, without commitments and discounts; requests, logs and traffic to the internet are not counted")
	return n
}

// covered describes the coverage of the figures.
func (c *chooser) covered(o *outcome, options int) []string {
	n := notes{}
	if w := o.work; w.tooFewRuns {
		n.add(
			"%s do not carry a 95%% quantile: p95 is the bound of the duration, or the longest run where there is none",
			plain.Count(w.runs, "past run"))
	}
	if o.work.exceedsCap {
		n.add("the work is expected to take %s and %s ends it after %s: it is paid and may not be done",
			plain.Duration(o.work.p50), o.duration.CapBy, plain.Duration(o.duration.limit))
	}
	if o.duration.limit == 0 {
		n.add("nothing ends it: it may cost more than the p95")
	}
	if skipped := c.skipped(); skipped > 0 {
		n.add("%s of that name did not complete and say nothing of its duration", plain.Count(skipped, "past run"))
	}
	if c.spec.Capacity == spec.Auto && !o.hasSpot {
		n.add("the price of %s on spot in %s is not known: it is estimated on demand", o.machine.Type, o.region)
	}
	n.add("%s in the allowed regions compared; those without a known price are passed over",
		plain.Count(options, "machine"))
	if age := c.params.Now.Sub(oldest(o.lines)); age > 90*24*time.Hour {
		n.add("the oldest price is of %s; `curfew price update` reads new ones", oldest(o.lines).Format(time.DateOnly))
	}
	return n
}

// skipped is how many past runs did not complete.
func (c *chooser) skipped() (n int) {
	for _, r := range c.params.History {
		if r.Name == c.spec.Name && !r.Completed {
			n++
		}
	}
	return n
}

// oldest is the earliest date of a price.
func oldest(lines []Line) (first time.Time) {
	for _, l := range lines {
		if t, err := time.Parse(time.DateOnly, l.AsOf); err == nil && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// changes lists the facts that would change the answer.
func (c *chooser) changes(o *outcome, options []*outcome) []string {
	n := notes{}
	if len(options) > 1 {
		a := options[1]
		n.add("the next is %d × %s in %s: %s, at most %s", a.count, a.machine.Type, a.region, a.p50.Dollars(),
			a.p95.Dollars())
	}
	for _, other := range []struct {
		capacity spec.Capacity
		words    string
		price    func(string, string) (price.Price, error)
	}{{spec.Spot, "on spot", c.book.Spot}, {spec.OnDemand, "on demand", c.book.OnDemand}} {
		if other.capacity == c.spec.Capacity {
			continue
		}
		if p, err := other.price(o.machine.Type, o.region); err == nil {
			if hourly, err := p.Cost(int64(o.count), 1); err == nil {
				n.add("%s the machines cost %s an hour", other.words, hourly.Dollars())
			}
		}
	}
	if _, by := c.spec.Cap(); by == "" && o.duration.CapBy == "" {
		n.add("max_runtime or max_cost would bound it")
	}
	if o.duration.RestartsP95 > 0 && c.spec.Checkpoint == nil && c.spec.Kind == spec.Job {
		n.add("a checkpoint would bound what an interruption loses")
	}
	if most := c.spec.MaxCost; most > 0 && o.duration.CapBy != "max_cost" {
		n.add("max_cost of %s is %s above the p95", most.Dollars(), (most - o.p95).Dollars())
	}
	return n
}
