package estimate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/spot"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/spec"
)

// chooser looks for the machine and region that cost least.
type chooser struct {
	spec *spec.Spec
	// hash is that of the specification as it was given.
	hash string
	// nodes are the types of nodes that it may run on, where it names none itself.
	nodes []string
	// assumedRuntime is how long it runs by the configuration; 0: it says so itself.
	assumedRuntime time.Duration
	book           *price.Book
	params         Params
	// runs are those to learn the duration from, the shortest first.
	runs []Run
	// interruptionRate is how often one spot machine is taken away.
	interruptionRate spot.Interruptions
}

// candidate is a machine type in a region, with its known prices.
type candidate struct {
	machine        price.Machine
	count          int
	region         string
	onDemand, spot price.Price
	hasSpot        bool
}

func newEstimate(s *spec.Spec, book *price.Book, p Params) (*Estimate, error) {
	if s.Unread() {
		return unread(s, s.Unknown), nil
	}
	if s.Name == "" || s.Resources.Nodes < 1 {
		return nil, errors.New("estimate: the specification has no name or no nodes; it comes from spec.Parse")
	}
	p.Defaults.fill()
	hash := s.Hash()
	s, nodes := placed(s, book, p.Defaults)
	assumed := time.Duration(0)
	if limit, _ := s.Cap(); s.Digest != "" && limit == 0 && s.Duration == 0 && p.Defaults.Runtime > 0 {
		assumed = p.Defaults.Runtime
		given := *s
		given.Duration = assumed
		s = &given
	}
	c := &chooser{
		hash: hash, nodes: nodes, assumedRuntime: assumed, spec: s, book: book, params: p, runs: pastRuns(s, p),
	}
	if limit, _ := s.Cap(); s.Digest != "" && limit == 0 && s.Duration == 0 && s.MaxCost == 0 && len(c.runs) == 0 {
		given := *s // nothing ends it, and the gate asks about it
		given.Duration = money.Month
		c.spec = &given
		s = c.spec
	}
	c.interruptionRate = interruptions(s, p)
	machines, err := c.machines()
	if err != nil {
		return nil, err
	}
	regions := s.Regions
	if len(regions) == 0 {
		regions = p.Defaults.Regions
	}
	if len(regions) == 0 {
		return nil, fmt.Errorf("estimate %s: no region is allowed: add regions, such as [us-east-1]", s.Name)
	}
	var options []*outcome
	var unknown []string
	var unpriced error
	for _, region := range regions {
		found := len(options)
		var why error
		for _, m := range machines {
			o, err := c.option(m, region)
			switch {
			case errors.Is(err, price.ErrUnpriced):
				why = cmp.Or(why, err)
			case err != nil:
				return nil, err
			default:
				options = append(options, o)
			}
		}
		if len(options) == found {
			unknown = append(unknown, fmt.Sprintf("%s, which is allowed: %s", region, why))
			unpriced = cmp.Or(unpriced, why)
		}
	}
	if len(options) == 0 {
		return nil, fmt.Errorf("estimate %s: %w", s.Name, unpriced)
	}
	slices.SortStableFunc(options, func(a, b *outcome) int {
		return cmp.Or(cmp.Compare(a.unsizedTransfers, b.unsizedTransfers), cmp.Compare(a.uncappedCost, b.uncappedCost),
			cmp.Compare(a.p95, b.p95))
	})
	if len(c.nodes) > 1 {
		costliestFirst(options)
	}
	return c.write(options, append(options[0].unknown, unknown...))
}

// fill takes the defaults where nothing is given.
func (d *Defaults) fill() {
	all := DefaultDefaults()
	d.DiskGiB, d.Disk = cmp.Or(d.DiskGiB, all.DiskGiB), cmp.Or(d.Disk, all.Disk)
	d.Interruptions = cmp.Or(d.Interruptions, all.Interruptions)
	d.CheckpointEvery, d.Restart = cmp.Or(d.CheckpointEvery, all.CheckpointEvery), cmp.Or(d.Restart, all.Restart)
}

// machines are the types that a node can run on: the one that is named, or those with
// exactly as many GPUs, or else with the fewest more.
func (c *chooser) machines() ([]candidate, error) {
	r := c.spec.Resources
	if len(c.nodes) > 1 {
		var out []candidate
		for _, t := range c.nodes {
			m, known := c.book.Machine(t)
			if !known {
				m = price.Machine{Type: t}
			}
			out = append(out, candidate{machine: m, count: c.count(m)})
		}
		return out, nil
	}
	if r.InstanceType != "" {
		m, known := c.book.Machine(r.InstanceType)
		if !known {
			m = price.Machine{Type: r.InstanceType}
		}
		if known && m.GPUs() < r.GPUs {
			return nil, fmt.Errorf("estimate %s: a node needs %d GPUs and %s has %d", c.spec.Name,
				r.GPUs, m.Type, m.GPUs())
		}
		return []candidate{{machine: m, count: c.count(m)}}, nil
	}
	if r.GPU == "" && r.CPUs > 0 {
		return c.withCPUs()
	}
	if r.GPU == "" {
		return nil, &UnplacedError{Name: c.spec.Name, GPUs: r.GPUs, Nodes: r.Nodes}
	}
	gpu, known := c.book.Accelerator(r.GPU)
	if !known {
		return nil, fmt.Errorf("estimate %s: GPU %q is not in the price book; `curfew price list` shows what is%s",
			c.spec.Name, r.GPU, c.book.DidYouMean(r.GPU))
	}
	const perDevice = 1000
	best, most := int64(0), int64(0)
	var out []candidate
	for _, m := range c.book.Machines() {
		has := m.AcceleratorMilli
		if m.Accelerator != gpu.Name || m.Cloud != price.AWS {
			continue
		}
		most = max(most, has)
		switch {
		case has < int64(r.GPUs)*perDevice || best > 0 && has > best:
		case best == 0 || has < best:
			best, out = has, []candidate{{machine: m, count: c.count(m)}}
		default:
			out = append(out, candidate{machine: m, count: c.count(m)})
		}
	}
	switch {
	case most == 0:
		return nil, fmt.Errorf("estimate %s: no machine type in the price book has a %s", c.spec.Name, gpu.Name)
	case len(out) == 0 && most < perDevice:
		return nil, fmt.Errorf("estimate %s: no machine has a whole %s", c.spec.Name, gpu.Name)
	case len(out) == 0:
		return nil, fmt.Errorf(`estimate %s: no machine has %d %s, the most is %d: write gpus: "%s:%d" and more nodes`,
			c.spec.Name, r.GPUs, gpu.Name, most/perDevice, gpu.Name, most/perDevice)
	}
	return out, nil
}

// Types are the machine types that a node of a specification can run on, in the order of the price
// book: the one that is named, or those that an estimate chooses from. It is an error if there is
// none.
func Types(s *spec.Spec, book *price.Book) ([]price.Machine, error) {
	c := &chooser{spec: s, book: book}
	all, err := c.machines()
	out := make([]price.Machine, len(all))
	for i := range all {
		out[i] = all[i].machine
	}
	return out, err
}

// TypeNames are the names of [Types].
func TypeNames(s *spec.Spec, book *price.Book) (names []string, err error) {
	machines, err := Types(s, book)
	for _, m := range machines {
		names = append(names, m.Type)
	}
	return names, err
}

// usual is the architecture of machines that are chosen by their CPUs alone: most packages are
// built for it.
const usual = "x86_64"

// withCPUs are the types without an accelerator that have exactly as many CPUs, or else the
// fewest more.
func (c *chooser) withCPUs() ([]candidate, error) {
	best, most := 0, 0
	var out []candidate
	for _, m := range c.book.Machines() {
		if m.Accelerator != "" || m.Cloud != price.AWS || m.Arch != usual || strings.Contains(m.Type, ".metal") {
			continue
		}
		most = max(most, m.VCPUs)
		switch {
		case m.VCPUs < c.spec.Resources.CPUs || best > 0 && m.VCPUs > best:
		case best == 0 || m.VCPUs < best:
			best, out = m.VCPUs, []candidate{{machine: m, count: c.count(m)}}
		default:
			out = append(out, candidate{machine: m, count: c.count(m)})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("estimate %s: no machine has %d CPUs, the most is %d",
			c.spec.Name, c.spec.Resources.CPUs,
			most)
	}
	return out, nil
}

// count is the number of machines of a type the nodes need: one each, or, where they are pods, as
// few as their GPUs fit on.
func (c *chooser) count(m price.Machine) int {
	r := c.spec.Resources
	if c.spec.Digest == "" || r.GPUs == 0 || m.GPUs() < r.GPUs {
		return r.Nodes
	}
	each := m.GPUs() / r.GPUs
	return (r.Nodes + each - 1) / each
}

// option prices a machine type in a region.
func (c *chooser) option(m candidate, region string) (*outcome, error) {
	m.region = region
	var err error
	m.spot, err = c.book.Spot(m.machine.Type, region)
	m.hasSpot = err == nil
	if c.spec.Capacity == spec.Spot && !m.hasSpot {
		return nil, notKnown(fmt.Sprintf("price of %s on spot in %s", m.machine.Type, region),
			c.book.DidYouMean(m.machine.Type), c.book.DidYouMean(region))
	}
	if c.spec.Capacity != spec.Spot {
		if m.onDemand, err = c.book.OnDemand(m.machine.Type, region); err != nil {
			return nil, notKnown(fmt.Sprintf("price of %s on demand in %s", m.machine.Type, region),
				c.book.DidYouMean(m.machine.Type), c.book.DidYouMean(region))
		}
	}
	w, err := c.work(m.machine.Type, m.count)
	if err != nil {
		return nil, err
	}
	o := &outcome{candidate: m, work: w}
	return o, c.price(o)
}

// ordeal returns the effect of spot interruptions on work on so many machines.
func (c *chooser) ordeal(count int) interruptedWork {
	o := interruptedWork{
		perHour: c.interruptionRate.PerHour * float64(count), restart: c.params.Defaults.Restart,
		retries: c.spec.Retries.Interruptions,
	}
	if p := c.spec.Checkpoint; p != nil {
		o.saveInterval, o.restart = cmp.Or(p.Every, c.params.Defaults.CheckpointEvery), cmp.Or(p.Restart, o.restart)
	}
	return o
}

// Bucket returns the name of the S3 bucket of an address.
func Bucket(uri string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(uri, "s3://")
	name, _, _ = strings.Cut(rest, "/")
	return name, ok && name != ""
}

// seconds are whole seconds of a duration, begun ones counted.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// sum adds up amounts of lines.
func sum(lines []Line) (p50, p95 money.Amount, err error) {
	for _, l := range lines {
		if p50, err = p50.Add(l.P50); err != nil {
			return 0, 0, err
		}
		if p95, err = p95.Add(l.P95); err != nil {
			return 0, 0, err
		}
	}
	return p50, p95, nil
}
