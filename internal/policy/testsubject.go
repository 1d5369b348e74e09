package policy

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/document"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/usage"
)

// subject is a resource of a case with all that is said of it.
type subject struct {
	r    inventory.Resource
	tags map[string]string // nil cannot be read
	// given are owner and lifetime that are given next to the tags.
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
func (d *reader) subject(n ast.Node, c *testCase) (*subject, error) {
	s := &subject{r: inventory.Resource{Kind: inventory.KindInstance}, tags: map[string]string{}}
	words := map[string]*string{"name": &s.r.Name, "cloud": &s.r.Cloud, "account": &s.r.Account,
		"region": &s.r.Region, "zone": &s.r.Zone, "type": &s.r.Type}
	entries := []document.Key{document.Required("id", func(n ast.Node) (err error) { s.r.ID, err = d.Text(n, "id"); return err })}
	for _, name := range []string{"name", "cloud", "account", "region", "zone", "type"} {
		entries = append(entries, document.Optional(name, func(n ast.Node) (err error) { *words[name], err = d.Text(n, name); return err }))
	}
	entries = append(entries,
		document.Optional("kind", func(n ast.Node) error { return document.Choice(d.File, n, "kind", kinds, &s.r.Kind) }),
		document.Optional("state", func(n ast.Node) error { return document.Choice(d.File, n, "state", states, &s.r.State) }),
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
		entries = append(entries, document.Optional(says.name, func(n ast.Node) error {
			var v string
			err := document.Choice(d.File, n, says.name, says.values, &v)
			s.given = append(s.given, func(r *inventory.Resource) { says.set(r, v) })
			return err
		}))
	}
	var more extra
	extras := d.extraEntries(&more, c)
	entries = append(append(entries, d.factEntries(s, c)...), extras...)
	given, err := d.Mapping(n, "a resource", entries...)
	if err != nil {
		return nil, err
	}
	if given["state"] == nil && computes(s.r.Kind) {
		s.r.State = inventory.StateRunning
	}
	s.r.Detail = more.detail(s.r.Kind)
	for _, e := range extras {
		seen := factIndex["resource."+e.Name].read(&evaluation{f: &s.facts, r: &s.r}) != nil
		if key := given[e.Name]; key != nil && !seen {
			return nil, d.At(key, "%s is nothing that the kind %s has", e.Name, s.r.Kind)
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
func (d *reader) extraEntries(x *extra, c *testCase) []document.Key {
	return []document.Key{
		document.Optional("market", func(n ast.Node) error { return document.Choice(d.File, n, "market", markets, &x.market) }),
		document.Optional("attached", func(n ast.Node) (err error) { x.attached, err = d.Flag(n, "attached"); return err }),
		document.Optional("size_gib", func(n ast.Node) (err error) { x.gib, err = d.Count(n, "size_gib", 1, math.MaxInt32); return err }),
		document.Optional("last_activity", func(n ast.Node) error {
			at, err := d.moment(n, "last_activity", c.start)
			x.lastActivity = inventory.Known(at)
			return err
		}),
	}
}

// factEntries are the keys of further facts about a resource.
func (d *reader) factEntries(s *subject, c *testCase) []document.Key {
	return []document.Key{
		document.Optional("tags", func(n ast.Node) (err error) {
			if word, ok := n.(*ast.StringNode); ok && word.Value == "unknown" {
				s.tags = nil
				return nil
			}
			s.tags, err = d.tags(n)
			return err
		}),
		document.Optional("created", func(n ast.Node) (err error) { s.r.CreatedAt, err = d.moment(n, "created", c.start); return err }),
		document.Optional("state_since", func(n ast.Node) (err error) { s.r.StateSince, err = d.moment(n, "state_since", c.start); return err }),
		document.Optional("gpus", func(n ast.Node) error {
			v, err := d.Count(n, "gpus", 0, math.MaxInt32)
			s.r.Size.GPUs = inventory.Known(v)
			return err
		}),
		document.Optional("hourly_usd", func(n ast.Node) error {
			v, err := money.ParseAmount(document.Scalar(n))
			if err != nil {
				return d.At(n, "hourly_usd is an amount of dollars such as 3.06")
			}
			s.facts.Hourly = inventory.Known(v)
			return nil
		}),
		document.Optional("checkpoint", func(n ast.Node) error {
			v, err := d.moment(n, "checkpoint", c.start)
			s.facts.Checkpoint = inventory.Known(v)
			return err
		}),
		document.Optional("price_drift", func(n ast.Node) error {
			v, err := d.decimal(n, "price_drift")
			s.facts.PriceDrift = inventory.Known(v)
			return err
		}),
		document.Optional("budget", func(n ast.Node) error {
			b := &Budget{}
			s.facts.Budget = b
			_, err := d.Mapping(n, "budget",
				document.Required("state", func(n ast.Node) error { return document.Choice(d.File, n, "state", budgetStates, &b.State) }),
				document.Required("used_share", func(n ast.Node) (err error) { b.UsedShare, err = d.decimal(n, "used_share"); return err }),
				document.Optional("forecast_share", func(n ast.Node) error {
					v, err := d.decimal(n, "forecast_share")
					b.ForecastShare = inventory.Known(v)
					return err
				}))
			return err
		}),
		document.Optional("stale", func(n ast.Node) (err error) { s.facts.Stale, err = d.Flag(n, "stale"); return err }),
		document.Optional("samples", func(n ast.Node) error {
			at := c.start
			return d.Items(n, "samples", func(item ast.Node) (err error) {
				at, err = d.samples(item, s, c, at)
				return err
			})
		}),
	}
}

// noSignal is the name of what is no signal: the end of the list of them.
var noSignal = usage.Signal(math.MaxUint8).String()

// samples reads one row, or a run of equal rows one step apart, that begins where the
// last one ended; it returns where this one does. A gap is time without samples.
func (d *reader) samples(n ast.Node, s *subject, c *testCase, at time.Time) (time.Time, error) {
	length, values, gpus := c.step, map[usage.Signal]float64{}, []string{""}
	gap := time.Duration(0)
	entries := []document.Key{
		document.Optional("at", func(n ast.Node) (err error) { at, err = d.moment(n, "at", c.start); return err }),
		document.Optional("for", func(n ast.Node) (err error) { length, err = d.span(n, "for", c.step); return err }),
		document.Optional("gap", func(n ast.Node) (err error) { gap, err = d.span(n, "gap", c.step); return err }),
		document.Optional("gpu", func(n ast.Node) (err error) {
			if v, ok := n.(*ast.IntegerNode); ok {
				gpus = []string{v.GetToken().Value}
				return nil
			}
			gpus = nil
			return d.Items(n, "gpu", func(item ast.Node) error {
				v, err := d.Count(item, "gpu", 0, math.MaxInt32)
				gpus = append(gpus, strconv.Itoa(v))
				return err
			})
		}),
	}
	for sig := usage.Signal(0); sig.String() != noSignal; sig++ {
		entries = append(entries, document.Optional(sig.String(), func(n ast.Node) (err error) {
			values[sig], err = d.decimal(n, sig.String())
			return err
		}))
	}
	_, err := d.Mapping(n, "samples", entries...)
	switch {
	case err != nil:
		return at, err
	case gap > 0 && len(values) > 0:
		return at, d.At(n, "a gap has no values")
	case gap > 0:
		return at.Add(gap), nil
	case len(values) == 0:
		return at, d.At(n, "samples need a value such as gpu_util: 0")
	case len(s.samples)+int(length/c.step)*len(gpus) > maxSamples:
		return at, d.At(n, "more than %d samples of one resource", maxSamples)
	}
	for end := at.Add(length); at.Before(end); at = at.Add(c.step) {
		for _, gpu := range gpus {
			s.samples = append(s.samples, sample{at: at, gpu: gpu, values: values})
		}
	}
	return at, nil
}
