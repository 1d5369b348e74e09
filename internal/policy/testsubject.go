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

// subject is a resource of a case.
type subject struct {
	r    inventory.Resource
	tags map[string]string // nil if unreadable
	// setters assign the owner and lifetime given outside the tags.
	setters []func(*inventory.Resource)
	facts   Facts
	samples []sample
}

// sample is a measurement at a time, of one GPU or of the machine.
type sample struct {
	at     time.Time
	gpu    string
	values map[usage.Signal]float64
}

// maxSamples bounds a case: a month of minutes.
const maxSamples = 50_000

// subject reads a resource. By default it is a running instance.
func (d *reader) subject(n ast.Node, c *testCase) (*subject, error) {
	s := &subject{r: inventory.Resource{Kind: inventory.KindInstance}, tags: map[string]string{}}
	entries := []document.Key{
		document.Required("id", "id of the resource", func(n ast.Node) (err error) {
			s.r.ID, err = d.Text(n, "id")
			return err
		}),
	}
	for _, word := range []struct {
		name, doc string
		to        *string
	}{
		{"name", "its name", &s.r.Name}, {"cloud", "its cloud", &s.r.Cloud}, {"account", "its account", &s.r.Account},
		{"region", "its region", &s.r.Region}, {"zone", "its zone", &s.r.Zone},
		{"type", "its machine type", &s.r.Type},
	} {
		entries = append(entries, document.Optional(word.name, word.doc, func(n ast.Node) (err error) {
			*word.to, err = d.Text(n, word.name)
			return err
		}))
	}
	entries = append(entries,
		document.Optional("kind", "its kind; instance where none is given", func(n ast.Node) error {
			return document.Choice(d.File, n, "kind", kinds, &s.r.Kind)
		}),
		document.Optional("state", "its state; running for machines where none is given", func(n ast.Node) error {
			return document.Choice(d.File, n, "state", states, &s.r.State)
		}),
	)
	for _, says := range []struct {
		name, doc string
		values    []string
		set       func(*inventory.Resource, string)
	}{
		{"lifetime", "its lifetime, over its tags", lifetimes, func(r *inventory.Resource, v string) {
			r.Lifetime = inventory.Lifetime(v)
		}},
		{"purpose", "its purpose, over its tags", purposes, func(r *inventory.Resource, v string) {
			r.Purpose = inventory.Purpose(v)
		}},
		{"team", "its team, over its tags", nil, func(r *inventory.Resource, v string) { r.Owner.Team = v }},
		{"project", "its project, over its tags", nil, func(r *inventory.Resource, v string) { r.Owner.Project = v }},
		{"user", "its user, over its tags", nil, func(r *inventory.Resource, v string) { r.Owner.User = v }},
		{"environment", "its environment, over its tags", nil, func(r *inventory.Resource, v string) {
			r.Owner.Environment = strings.ToLower(v)
		}},
		{"cost_center", "its cost center, over its tags", nil, func(r *inventory.Resource, v string) {
			r.Owner.CostCenter = v
		}},
		{"gang", "job group that it belongs to", nil, func(r *inventory.Resource, v string) { r.Gang = v }},
	} {
		entries = append(entries, document.Optional(says.name, says.doc, func(n ast.Node) error {
			var v string
			err := document.Choice(d.File, n, says.name, says.values, &v)
			s.setters = append(s.setters, func(r *inventory.Resource) { says.set(r, v) })
			return err
		}))
	}
	var more kindDetails
	extras := d.extraEntries(&more, c)
	entries = append(append(entries, d.factEntries(s, c)...), extras...)
	given, err := d.Mapping(n, "a resource", entries...)
	if err != nil {
		return nil, err
	}
	if given["state"] == nil && runsByItself(s.r.Kind) {
		s.r.State = inventory.StateRunning
	}
	s.r.Detail = more.detail(s.r.Kind)
	for _, e := range extras {
		seen := factIndex["resource."+e.Name].read(&evaluation{facts: &s.facts, resource: &s.r}) != nil
		if key := given[e.Name]; key != nil && !seen {
			return nil, d.At(key, "%s is nothing that the kind %s has", e.Name, s.r.Kind)
		}
	}
	return s, nil
}

// runsByItself reports whether a kind computes by itself; such a resource is running by default.
func runsByItself(k inventory.Kind) bool {
	t := k.Traits()
	return t.Compute && !t.Container
}

// kindDetails are properties that only some kinds have.
type kindDetails struct {
	market       inventory.Market
	attached     bool
	gib          int
	lastActivity inventory.Fact[time.Time]
}

// detail returns the properties in the form of a kind.
func (x kindDetails) detail(kind inventory.Kind) inventory.Detail {
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

// extraEntries returns the keys of kindDetails.
func (d *reader) extraEntries(x *kindDetails, c *testCase) []document.Key {
	return []document.Key{
		document.Optional("market", "how a machine was bought", func(n ast.Node) error {
			return document.Choice(d.File, n, "market", markets, &x.market)
		}),
		document.Optional("attached", "whether a volume or an address is attached", func(n ast.Node) (err error) {
			x.attached, err = d.Flag(n, "attached")
			return err
		}),
		document.Optional("size_gib", "size of a volume, snapshot or notebook in GiB", func(n ast.Node) (err error) {
			x.gib, err = d.Count(n, "size_gib", 1, math.MaxInt32)
			return err
		}),
		document.Optional("last_activity", "last use of a notebook, access of a secret or launch of an image",
			func(n ast.Node) error {
				at, err := d.moment(n, "last_activity", c.start)
				x.lastActivity = inventory.Known(at)
				return err
			}),
	}
}

// factEntries returns the keys of further facts about a resource.
func (d *reader) factEntries(s *subject, c *testCase) []document.Key {
	return []document.Key{
		document.Optional("tags", "its tags, or unknown where they could not be read", func(n ast.Node) (err error) {
			return document.Forms(n,
				document.IfWord("unknown", func(ast.Node) error { s.tags = nil; return nil }),
				document.Otherwise(func(n ast.Node) (err error) { s.tags, err = d.tags(n); return err }))
		}),
		document.Optional("created", "time of its creation, or launch", func(n ast.Node) (err error) {
			s.r.CreatedAt, err = d.moment(n, "created", c.start)
			return err
		}),
		document.Optional("state_since", "time since when it is in its state", func(n ast.Node) (err error) {
			s.r.StateSince, err = d.moment(n, "state_since", c.start)
			return err
		}),
		document.Optional("gpus", "its GPUs", func(n ast.Node) error {
			v, err := d.Count(n, "gpus", 0, math.MaxInt32)
			s.r.Size.GPUs = inventory.Known(v)
			return err
		}),
		document.Optional("hourly_usd", "its list price an hour, in dollars", func(n ast.Node) error {
			document.Note(n, document.Shape{Type: document.Decimal})
			v, err := money.ParseAmount(document.Scalar(n))
			if err != nil || v < 0 {
				return d.At(n, "hourly_usd is an amount of dollars such as 3.06")
			}
			s.facts.Hourly = inventory.Known(v)
			return nil
		}),
		document.Optional("checkpoint", "time of its newest confirmed checkpoint", func(n ast.Node) error {
			v, err := d.moment(n, "checkpoint", c.start)
			s.facts.Checkpoint = inventory.Known(v)
			return err
		}),
		document.Optional("price_drift", "rate paid over the price of the catalog, less 1", func(n ast.Node) error {
			v, err := d.decimal(n, "price_drift")
			s.facts.PriceDrift = inventory.Known(v)
			return err
		}),
		document.Optional("budget", "the budget that it counts against", func(n ast.Node) error {
			b := &Budget{}
			s.facts.Budget = b
			_, err := d.Mapping(n, "budget",
				document.Required("state", "state of the budget", func(n ast.Node) error {
					return document.Choice(d.File, n, "state", budgetStates, &b.State)
				}),
				document.Required("used_share", "spent and reserved over the amount of the budget",
					func(n ast.Node) (err error) {
						b.UsedShare, err = d.decimal(n, "used_share")
						return err
					}),
				document.Optional("forecast_share", "forecast over the amount of the budget", func(n ast.Node) error {
					v, err := d.decimal(n, "forecast_share")
					b.ForecastShare = inventory.Known(v)
					return err
				}))
			return err
		}),
		document.Optional("stale", "whether its facts are too old to act on", func(n ast.Node) (err error) {
			s.facts.Stale, err = d.Flag(n, "stale")
			return err
		}),
		document.Optional("samples", "runs of equal samples, each from where the last one ended",
			func(n ast.Node) error {
				at := c.start
				return d.Items(n, "samples", func(item ast.Node) (err error) {
					at, err = d.samples(item, s, c, at)
					return err
				})
			}),
	}
}

// noSignal is the name of an invalid signal, which ends the list of signals.
var noSignal = usage.Signal(math.MaxUint8).String()

// samples reads one row, or a run of equal rows one step apart, that begins where the previous one
// ended; it returns the end. A gap is time without samples.
func (d *reader) samples(n ast.Node, s *subject, c *testCase, at time.Time) (time.Time, error) {
	length, values, gpus := c.step, map[usage.Signal]float64{}, []string{""}
	gap := time.Duration(0)
	entries := []document.Key{
		document.Optional("at", "time of the first sample", func(n ast.Node) (err error) {
			at, err = d.moment(n, "at", c.start)
			return err
		}),
		document.Optional("for", "length of the run; one step where none is given", func(n ast.Node) (err error) {
			length, err = d.span(n, "for", c.step)
			return err
		}),
		document.Optional("gap", "time without samples", func(n ast.Node) (err error) {
			gap, err = d.span(n, "gap", c.step)
			return err
		}),
		document.Optional("gpu", "number of the GPU, or a list of numbers; without it the only one",
			func(n ast.Node) (err error) {
				return document.Forms(n,
					document.IfInteger(func(n ast.Node) error { gpus = []string{n.GetToken().Value}; return nil }),
					document.Otherwise(func(n ast.Node) error {
						gpus = nil
						return d.Items(n, "gpu", func(item ast.Node) error {
							v, err := d.Count(item, "gpu", 0, math.MaxInt32)
							gpus = append(gpus, strconv.Itoa(v))
							return err
						})
					}))
			}),
	}
	for sig := usage.Signal(0); sig.String() != noSignal; sig++ {
		entries = append(entries, document.Optional(sig.String(), sig.Doc(), func(n ast.Node) (err error) {
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
