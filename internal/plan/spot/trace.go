package spot

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan"
)

const (
	// maxSamples is the number of samples a trace may have: a year of thirty zones, every minute.
	maxSamples = 1 << 24
	// maxSeconds is the latest time in a file, in the year 4147.
	maxSeconds = 1 << 36
)

// Trace is recorded availability, sampled every Gap.
type Trace struct {
	// Name is that of the file.
	Name string
	// Gap is the time from one sample to the next, whole seconds.
	Gap time.Duration
	// Zones are in the order of the file. Each is a machine type in a place.
	Zones []Zone
}

// Zone is one machine type in one place.
type Zone struct {
	Name string
	// First is how many gaps after the earliest sample of the trace its own start.
	First int
	// Up says by sample whether a spot machine can be had, and one that runs goes on.
	Up []bool
	// Prices are for an hour, by sample: over 0 if it is up. Nil where none are recorded.
	Prices []money.Amount
}

// Map is the column mapping of a file.
type Map struct {
	// Columns names the file's column for each of ours: {"zone": "trace"}.
	Columns map[string]string
	// Gap is the time between samples, whole seconds.
	Gap time.Duration
	// Zones is a pattern as in [path.Match], by which rows are chosen; empty is all.
	Zones string
	// Nodes is how many machines have to be up for a zone to count as up; 0 is 1.
	Nodes int64
}

// TraceFile is a file of spot availability.
var TraceFile = plan.Layout{
	Required: []plan.Column{
		{Name: "time", Doc: "start of a run of equal samples: RFC 3339, or seconds"},
		{Name: "up", Doc: "machines that were available; 0 is none"},
	},
	Optional: []plan.Column{
		{Name: "zone", Doc: "zone of the run; each zone is a trace of its own"},
		{Name: "length", Doc: "length of the run in seconds; one sampling step where it is absent"},
		{Name: "price", Doc: "spot price of an hour in dollars"},
	},
	Others: true,
}

// Read reads CSV with the columns time and up, and if it likes zone, length and price. A row is a
// run of samples: time is that of its first, in seconds from any start or as RFC 3339; length is a
// number of seconds and a multiple of the gap, one gap where it is empty; up is how many machines
// are up. A price is for an hour, and over 0 if they are. Rows of a zone are in order and without
// holes; a sample may be off its place by less than half a gap. Errors are a *plan.FileError with
// the place.
func Read(r io.Reader, name string, m Map) (Trace, error) {
	tr := Trace{Name: name, Gap: m.Gap}
	if m.Gap < time.Second || m.Gap%time.Second != 0 {
		return tr, fmt.Errorf("read %s: sampling step %s: expected whole seconds, at least 1s", name, m.Gap)
	}
	if _, err := path.Match(m.Zones, ""); err != nil {
		return tr, fmt.Errorf("read %s: the pattern of zones %q: %w", name, m.Zones, err)
	}
	in := reader{m: m, gap: int64(m.Gap / time.Second), at: map[string]int{}, nodes: max(m.Nodes, 1)}
	layout := TraceFile
	layout.Map = m.Columns
	if err := plan.ReadCSV(name, r, layout, in.row); err != nil {
		return tr, err
	}
	if len(in.zones) == 0 {
		reason := "no sample"
		if in.passed > 0 {
			reason = fmt.Sprintf("none of its %d rows has a zone that matches %q", in.passed, m.Zones)
		}
		return tr, &plan.FileError{File: name, Reason: reason}
	}
	earliest := slices.Min(in.starts)
	for i := range in.zones {
		in.zones[i].First = int((in.starts[i] - earliest + in.gap/2) / in.gap)
		if !in.priced {
			in.zones[i].Prices = nil
		}
	}
	tr.Zones = in.zones
	return tr, nil
}

// reader collects rows.
type reader struct {
	m          Map
	gap, nodes int64
	zones      []Zone
	// starts is the time of each zone's first sample, in seconds.
	starts  []int64
	at      map[string]int
	samples int64
	// passed is how many rows were not chosen, unpriced a line that is up without a price.
	passed, unpriced int
	priced           bool
}

func (in *reader) row(row plan.Row) error {
	name := row.Text("zone")
	if in.m.Zones != "" {
		if ok, _ := path.Match(in.m.Zones, name); !ok { // the pattern is known to be one
			in.passed++
			return nil
		}
	}
	if len(in.zones) > 0 && (name == "") != (in.zones[0].Name == "") {
		return row.Error("zone", "zone is %.60q here, but %.60q in other rows: either all rows have a zone or none",
			name,
			in.zones[0].Name)
	}
	second, err := instant(row)
	if err != nil {
		return err
	}
	i, ok := in.at[name]
	if !ok {
		name = strings.Clone(name) // a field keeps its whole row in memory
		i = len(in.zones)
		in.at[name] = i
		in.zones, in.starts = append(in.zones, Zone{Name: name}), append(in.starts, second)
	}
	z := &in.zones[i]
	if next := in.starts[i] + int64(len(z.Up))*in.gap; 2*max(second-next, next-second) >= in.gap && second != next {
		if second < next {
			return row.Error("time",
				"time is %s, but earlier rows of this zone reach %d s: sort the rows, each sample once",
				row.Text("time"), next)
		}
		return row.Error("time",
			"time is %s, but earlier rows of this zone end at %d s: the availability in between is missing",
			row.Text("time"),
			next)
	}
	n, err := in.length(row)
	if err != nil {
		return err
	}
	return in.extend(row, z, n)
}

// length is the number of samples in a row.
func (in *reader) length(row plan.Row) (int64, error) {
	n := int64(1)
	if row.Text("length") != "" {
		length, err := row.Int("length", in.gap, maxSeconds)
		if err != nil {
			return 0, err
		}
		if length%in.gap != 0 {
			return 0, row.Error("length",
				"length is %d s: expected a multiple of the sampling step %s", length, in.m.Gap)
		}
		n = length / in.gap
	}
	if in.samples += n; in.samples > maxSamples {
		return 0, row.Error("length", "more than %s samples: too many to replay", money.Thousands(maxSamples))
	}
	return n, nil
}

func (in *reader) extend(row plan.Row, z *Zone, n int64) error {
	nodes, err := row.Int("up", 0, 1<<31)
	if err != nil {
		return err
	}
	up := nodes >= in.nodes
	for range n {
		z.Up = append(z.Up, up)
	}
	var price money.Amount
	if row.Text("price") != "" {
		if price, err = row.Amount("price"); err != nil {
			return err
		}
		if price == 0 && up || price > maxPrice {
			return row.Error("price", "price is %s: expected over 0 and at most %s an hour", row.Text("price"),
				maxPrice.Dollars())
		}
	}
	switch {
	case !up:
	case price > 0 && in.unpriced > 0:
		return row.Error("price",
			"price is %s here, but empty in line %d: either all rows with spot available have a price or none",
			row.Text("price"), in.unpriced)
	case price == 0 && in.priced:
		return row.Error("price", "price is empty")
	case price == 0:
		in.unpriced = row.Line()
	default:
		in.priced = true
	}
	for range n {
		z.Prices = append(z.Prices, price)
	}
	return nil
}

// instant is a time in seconds.
func instant(row plan.Row) (int64, error) {
	text := row.Text("time")
	if s, err := strconv.ParseInt(text, 10, 64); err == nil && s >= 0 && s < maxSeconds {
		return s, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil && t.Unix() >= 0 && t.Unix() < maxSeconds {
		return t.Unix(), nil
	}
	return 0, row.Error("time", "time %.40q: expected whole seconds or RFC 3339, such as 2026-03-01T14:00:00Z", text)
}

// check returns an error for an incomplete trace that was not read from a file.
func (t Trace) check() error {
	if t.Gap < time.Second {
		return fmt.Errorf("sampling step %s: expected at least 1s", t.Gap)
	}
	if len(t.Zones) == 0 {
		return errors.New("the trace has no zone")
	}
	for _, z := range t.Zones {
		if len(z.Up) == 0 || z.First < 0 || z.Prices != nil && len(z.Prices) != len(z.Up) {
			return fmt.Errorf("zone %q has %d samples and %d prices", z.Name, len(z.Up), len(z.Prices))
		}
		for i, price := range z.Prices {
			if price < 0 || price > maxPrice || z.Up[i] && price == 0 {
				return fmt.Errorf("sample %d of zone %q has a price of $%s an hour", i, z.Name, price)
			}
		}
	}
	return nil
}
