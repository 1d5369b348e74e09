package policy

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/usage"
)

// subject is a resource of a case with all that is said of it.
type subject struct {
	r    inventory.Resource
	tags map[string]string // nil cannot be read
	// given are owner and lifetime that stand beside the tags.
	given   []func(*inventory.Resource)
	facts   Facts
	samples []sample
}

// sample is what was measured at a time, of one GPU or of the machine.
type sample struct {
	at     time.Time
	gpu    string
	values map[usage.Signal]float64
}

// maxSamples bounds a case: a month of minutes.
const maxSamples = 50_000

// subject reads a resource. It is an instance, and runs, unless said otherwise.
func (d *document) subject(n ast.Node, c *testCase) (*subject, error) {
	s := &subject{r: inventory.Resource{Kind: inventory.KindInstance}, tags: map[string]string{}}
	words := map[string]*string{"id": &s.r.ID, "name": &s.r.Name, "cloud": &s.r.Cloud, "account": &s.r.Account,
		"region": &s.r.Region, "zone": &s.r.Zone, "type": &s.r.Type}
	var entries []entry
	for _, name := range []string{"id", "name", "cloud", "account", "region", "zone", "type"} {
		entries = append(entries, entry{name, name == "id", func(n ast.Node) (err error) { *words[name], err = d.text(n, name); return err }})
	}
	entries = append(entries,
		entry{"kind", false, func(n ast.Node) error { return d.chosen(n, "kind", kinds, (*string)(&s.r.Kind)) }},
		entry{"state", false, func(n ast.Node) error { return d.chosen(n, "state", states, (*string)(&s.r.State)) }},
	)
	for _, says := range []struct {
		name   string
		values []string
		set    func(*inventory.Resource, string)
	}{
		{"lifetime", lifetimes, func(r *inventory.Resource, v string) { r.Lifetime = inventory.Lifetime(v) }},
		{"purpose", purposes, func(r *inventory.Resource, v string) { r.Purpose = inventory.Purpose(v) }},
		{"team", nil, func(r *inventory.Resource, v string) { r.Owner.Team = v }},
		{"project", nil, func(r *inventory.Resource, v string) { r.Owner.Project = v }},
		{"user", nil, func(r *inventory.Resource, v string) { r.Owner.User = v }},
		{"environment", nil, func(r *inventory.Resource, v string) { r.Owner.Environment = strings.ToLower(v) }},
		{"cost_center", nil, func(r *inventory.Resource, v string) { r.Owner.CostCenter = v }},
		{"gang", nil, func(r *inventory.Resource, v string) { r.Gang = v }},
	} {
		entries = append(entries, entry{says.name, false, func(n ast.Node) error {
			var v string
			err := d.chosen(n, says.name, says.values, &v)
			s.given = append(s.given, func(r *inventory.Resource) { says.set(r, v) })
			return err
		}})
	}
	var more extra
	extras := d.extraEntries(&more, c)
	entries = append(append(entries, d.factEntries(s, c)...), extras...)
	given, err := d.mapping(n, "a resource", entries...)
	if err != nil {
		return nil, err
	}
	if given["state"] == nil && computes(s.r.Kind) {
		s.r.State = inventory.StateRunning
	}
	s.r.Detail = more.detail(s.r.Kind)
	for _, e := range extras {
		seen := factIndex["resource."+e.name].read(&evaluation{f: &s.facts, r: &s.r}) != nil
		if key := given[e.name]; key != nil && !seen {
			return nil, d.at(key, "%s is nothing that the kind %s has", e.name, s.r.Kind)
		}
	}
	return s, nil
}

// computes says whether a kind computes by itself. Such a resource runs unless a case says
// otherwise.
func computes(k inventory.Kind) bool {
	t := k.Traits()
	return t.Compute && !t.Container
}

// chosen reads one of some values; without values any text.
func (d *document) chosen(n ast.Node, what string, values []string, out *string) (err error) {
	if *out, err = d.text(n, what); err == nil && values != nil && !slices.Contains(values, *out) {
		err = d.at(n, "%s %q does not exist; it is %s", what, *out, oneOf(values))
	}
	return err
}

// extra is what only some kinds have, as a case gives it.
type extra struct {
	market       inventory.Market
	attached     bool
	gib          int
	lastActivity inventory.Fact[time.Time]
}

// detail puts it into the form that the kind has.
func (x extra) detail(kind inventory.Kind) inventory.Detail {
	gib := int64(x.gib)
	switch kind {
	case inventory.KindInstance:
		return &inventory.Instance{Market: x.market}
	case inventory.KindVolume:
		v := &inventory.Volume{SizeGiB: gib}
		if x.attached {
			v.AttachedTo = []string{"a machine"}
		}
		return v
	case inventory.KindAddress:
		a := &inventory.Address{}
		if x.attached {
			a.AssociationID = "an association"
		}
		return a
	case inventory.KindNotebook:
		return &inventory.Notebook{VolumeGiB: gib, LastActivity: x.lastActivity}
	case inventory.KindSnapshot:
		return &inventory.Snapshot{VolumeSizeGiB: gib}
	case inventory.KindImage:
		return &inventory.Image{LastLaunched: x.lastActivity}
	case inventory.KindSecret:
		return &inventory.Secret{LastAccessed: x.lastActivity}
	}
	return nil
}

// extraEntries are the keys of what only some kinds have.
func (d *document) extraEntries(x *extra, c *testCase) []entry {
	return []entry{
		{"market", false, func(n ast.Node) error { return d.chosen(n, "market", markets, (*string)(&x.market)) }},
		{"attached", false, func(n ast.Node) (err error) { x.attached, err = d.flag(n, "attached"); return err }},
		{"size_gib", false, func(n ast.Node) (err error) { x.gib, err = d.count(n, "size_gib", 1); return err }},
		{"last_activity", false, func(n ast.Node) error {
			at, err := d.moment(n, "last_activity", c.start)
			x.lastActivity = inventory.Known(at)
			return err
		}},
	}
}

// factEntries are the keys of what is known of a resource beside itself.
func (d *document) factEntries(s *subject, c *testCase) []entry {
	return []entry{
		{"tags", false, func(n ast.Node) (err error) {
			if word, ok := n.(*ast.StringNode); ok && word.Value == "unknown" {
				s.tags = nil
				return nil
			}
			s.tags, err = d.tags(n)
			return err
		}},
		{"created", false, func(n ast.Node) (err error) { s.r.CreatedAt, err = d.moment(n, "created", c.start); return err }},
		{"state_since", false, func(n ast.Node) (err error) { s.r.StateSince, err = d.moment(n, "state_since", c.start); return err }},
		{"gpus", false, func(n ast.Node) error {
			v, err := d.count(n, "gpus", 0)
			s.facts.GPUs = inventory.Known(v)
			return err
		}},
		{"hourly_usd", false, func(n ast.Node) error {
			v, err := money.ParseAmount(scalar(n))
			if err != nil {
				return d.at(n, "hourly_usd is an amount of dollars such as 3.06")
			}
			s.facts.Hourly = inventory.Known(v)
			return nil
		}},
		{"checkpoint", false, func(n ast.Node) error {
			v, err := d.moment(n, "checkpoint", c.start)
			s.facts.Checkpoint = inventory.Known(v)
			return err
		}},
		{"price_drift", false, func(n ast.Node) error {
			v, err := d.decimal(n, "price_drift")
			s.facts.PriceDrift = inventory.Known(v)
			return err
		}},
		{"budget", false, func(n ast.Node) error {
			b := &Budget{}
			s.facts.Budget = b
			_, err := d.mapping(n, "budget",
				entry{"state", true, func(n ast.Node) error { return d.chosen(n, "state", budgetStates, &b.State) }},
				entry{"used_share", true, func(n ast.Node) (err error) { b.UsedShare, err = d.decimal(n, "used_share"); return err }},
				entry{"forecast_share", false, func(n ast.Node) error {
					v, err := d.decimal(n, "forecast_share")
					b.ForecastShare = inventory.Known(v)
					return err
				}})
			return err
		}},
		{"stale", false, func(n ast.Node) (err error) { s.facts.Stale, err = d.flag(n, "stale"); return err }},
		{"samples", false, func(n ast.Node) error {
			at := c.start
			return d.items(n, "samples", func(item ast.Node) (err error) {
				at, err = d.samples(item, s, c, at)
				return err
			})
		}},
	}
}

// noSignal is the name of what is no signal: the end of the list of them.
var noSignal = usage.Signal(math.MaxUint8).String()

// samples reads one row, or a run of equal rows one step apart, that begins where the
// last one ended; it returns where this one does. A gap is time without samples.
func (d *document) samples(n ast.Node, s *subject, c *testCase, at time.Time) (time.Time, error) {
	length, values, gpus := c.step, map[usage.Signal]float64{}, []string{""}
	gap := time.Duration(0)
	entries := []entry{
		{"at", false, func(n ast.Node) (err error) { at, err = d.moment(n, "at", c.start); return err }},
		{"for", false, func(n ast.Node) (err error) { length, err = d.span(n, "for", c.step); return err }},
		{"gap", false, func(n ast.Node) (err error) { gap, err = d.span(n, "gap", c.step); return err }},
		{"gpu", false, func(n ast.Node) (err error) {
			if v, ok := n.(*ast.IntegerNode); ok {
				gpus = []string{v.GetToken().Value}
				return nil
			}
			gpus = nil
			return d.items(n, "gpu", func(item ast.Node) error {
				v, err := d.count(item, "gpu", 0)
				gpus = append(gpus, strconv.Itoa(v))
				return err
			})
		}},
	}
	for sig := usage.Signal(0); sig.String() != noSignal; sig++ {
		entries = append(entries, entry{sig.String(), false, func(n ast.Node) (err error) {
			values[sig], err = d.decimal(n, sig.String())
			return err
		}})
	}
	_, err := d.mapping(n, "samples", entries...)
	switch {
	case err != nil:
		return at, err
	case gap > 0 && len(values) > 0:
		return at, d.at(n, "a gap has no values")
	case gap > 0:
		return at.Add(gap), nil
	case len(values) == 0:
		return at, d.at(n, "samples need a value such as gpu_util: 0")
	case len(s.samples)+int(length/c.step)*len(gpus) > maxSamples:
		return at, d.at(n, "more than %d samples of one resource", maxSamples)
	}
	for end := at.Add(length); at.Before(end); at = at.Add(c.step) {
		for _, gpu := range gpus {
			s.samples = append(s.samples, sample{at: at, gpu: gpu, values: values})
		}
	}
	return at, nil
}
