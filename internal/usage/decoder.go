package usage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
)

// decoder turns the fields of rows into samples. Its memory grows with the number
// of resources and GPUs, not with the number of rows.
type decoder struct {
	ctx    context.Context
	format Format
	layout *layout
	each   func(*Sample) error

	// sample is the row that is being read. held is the one before: rows of one sample
	// may follow it.
	sample, held *Sample
	holds        bool
	ended        int // rows
	summary      Summary
	steps        stepMeter

	local localTimes
	// bad is what is wrong with the row, and skipped says that the rest of it is of no use.
	bad     *FileError
	skipped bool

	names map[string]string
	kept  struct{ count, bytes int } // what stays in memory until the end
	// device is what the row says of its GPU, and devices are the names of those that are parts
	// of GPUs; parted are the GPUs that they are of.
	device      Device
	devices     map[Device]string
	parted      map[[2]string]bool
	resources   map[string]struct{}
	lastTime    cachedTime
	received    cachedTime
	description struct {
		text    []byte // the describing fields of this row, each followed by 0
		last    []byte // those of the row before
		current *Description
		known   map[string]*Description
		// fields are the describing fields of this row, for one that is new.
		fields []describingField
	}
}

// cachedTime is the newest time of a column as it was written.
type cachedTime struct {
	text []byte
	time time.Time
}

type describingField struct {
	column     int
	start, end int // in description.text
}

func newDecoder(ctx context.Context, f Format, l *layout, each func(*Sample) error) *decoder {
	d := &decoder{
		ctx: ctx, format: f, layout: l, each: each, names: map[string]string{}, resources: map[string]struct{}{},
	}
	d.sample, d.held = &Sample{}, &Sample{}
	d.local.location = f.Location
	d.description.known = map[string]*Description{}
	return d
}

// begin starts a row.
func (d *decoder) begin() {
	s := d.sample
	s.Resource, s.GPU, s.Time, s.Received, s.has, s.unsupported = d.format.Resource, "", time.Time{}, time.Time{}, 0, 0
	d.bad, d.skipped = nil, false
	if d.layout.divides {
		d.device = Device{}
	}
	d.description.text, d.description.fields = d.description.text[:0], d.description.fields[:0]
}

// wrong notes what is wrong with the row; the first counts. skip says that the row is of no use
// then, and not only the value.
func (d *decoder) wrong(skip bool, line, column int, format string, args ...any) {
	if d.bad == nil {
		d.bad = d.format.fail(line, column, format, args...)
	}
	d.skipped = d.skipped || skip
}

// text reads one field of a row, given as text. i is the column from 0. What is wrong with the
// row is noted; an error is about the file.
func (d *decoder) text(line, i int, field []byte) error {
	c := &d.layout.columns[i]
	switch c.role {
	case ignored:
	case resourceColumn:
		if len(field) == 0 {
			d.wrong(true, line, i+1, "the resource is empty")
			return nil
		}
		return d.intern(&d.sample.Resource, field, d.held.Resource, line, i)
	case gpuColumn:
		return d.intern(&d.sample.GPU, field, d.held.GPU, line, i)
	case partColumn:
		return d.intern(&d.device.Instance, field, d.device.Instance, line, i)
	case profileColumn:
		return d.intern(&d.device.Profile, field, d.device.Profile, line, i)
	case modeColumn:
		return d.intern(&d.device.Mode, field, d.device.Mode, line, i)
	case partitionColumn:
		return d.intern(&d.device.Partition, field, d.device.Partition, line, i)
	case serialColumn:
		return d.intern(&d.device.Serial, field, d.device.Serial, line, i)
	case modelColumn:
		return d.intern(&d.device.Model, field, d.device.Model, line, i)
	case migColumn:
		d.device.Divided = strings.EqualFold(string(field), "enabled") || string(field) == "1"
	case timeColumn:
		t, err := d.cached(&d.lastTime, field)
		if err != nil {
			d.wrong(true, line, i+1, "time %.60q %s", field, err)
		}
		d.sample.Time = t
	case receivedColumn:
		if unmeasured(field) {
			break
		}
		t, err := d.cached(&d.received, field)
		if err != nil {
			d.wrong(true, line, i+1, "received %.60q %s", field, err)
		}
		d.sample.Received = t
	case signalColumn:
		d.signal(c, line, i, field)
	default:
		start := len(d.description.text)
		d.description.text = append(append(d.description.text, field...), 0)
		d.description.fields = append(d.description.fields, describingField{i, start, start + len(field)})
	}
	return nil
}

// signal reads the value of a signal.
func (d *decoder) signal(c *column, line, i int, field []byte) {
	var v float64
	var err error
	if d.layout.smi {
		v, err = d.layout.quantity(c, field)
	} else if v, err = c.number(field); err != nil && !unmeasured(field) {
		if local, rest, ok := localized(field, d.layout.comma); ok && len(rest) == 0 {
			v, err = local, nil
		}
	}
	if err == nil {
		err = d.value(c, v)
	} else if unmeasured(field) {
		if len(field) > 0 {
			d.sample.unsupported |= 1 << c.signal
		}
		if err = nil; failed(field) {
			d.summary.Failed++
		}
	}
	if err != nil {
		d.wrong(false, line, i+1, "%s %.60q %s", c.name, field, err)
	}
}

// cached reads a time, which is often that of the row before.
func (d *decoder) cached(c *cachedTime, field []byte) (time.Time, error) {
	if len(c.text) > 0 && bytes.Equal(field, c.text) {
		return c.time, nil
	}
	t, err := d.instant(field)
	if err != nil {
		return time.Time{}, err
	}
	c.text, c.time = append(c.text[:0], field...), t
	return t, nil
}

func (d *decoder) instant(field []byte) (time.Time, error) {
	t, zoned, ok, err := date(field, '-')
	if !ok && err == nil && d.layout.smi {
		t, zoned, ok, err = date(field, '/')
	}
	switch {
	case err != nil || ok && zoned:
		return t, err
	case ok:
		return d.local.instant(t)
	}
	return sinceEpoch(field, d.format.Epoch)
}

// value records a number that was read of a signal, in the unit of its column. It returns why
// the number is impossible.
func (d *decoder) value(c *column, v float64) error {
	scaled := v * c.scale
	if !(v >= 0 && v < blankInt32 && scaled <= c.most) {
		return d.odd(c, v)
	}
	d.sample.values[c.signal] = scaled
	d.sample.has |= 1 << c.signal
	return nil
}

// odd records a number that may be no measurement.
func (d *decoder) odd(c *column, v float64) error {
	scaled, reading := v, Valid
	if !IsMeasurement(v) { // which is told in the unit of the column
		_, reading = c.signal.Check(v)
	}
	if reading == Valid {
		scaled, reading = c.signal.Check(v * c.scale)
	}
	switch reading {
	case Unsupported:
		d.summary.Unsupported++
		d.sample.unsupported |= 1 << c.signal
		return nil
	case Impossible:
		d.summary.Impossible++
		return whyImpossible(c.signal, v*c.scale)
	}
	d.sample.values[c.signal] = scaled
	d.sample.has |= 1 << c.signal
	return nil
}

// intern sets to to b, as a string that is shared with earlier rows; likely is what it
// most likely is.
func (d *decoder) intern(to *string, b []byte, likely string, line, i int) error {
	if string(b) == likely {
		*to = likely
		return nil
	}
	name, ok := d.names[string(b)]
	if !ok {
		if len(b) > maxName {
			return d.format.fail(line, i+1, "the name %.60q… is over %d bytes long", b, maxName)
		}
		if err := d.keep(line, i+1, len(b)); err != nil {
			return err
		}
		name = string(b)
		d.names[name] = name
	}
	*to = name
	return nil
}

// end completes a row, and hands on the sample before it.
func (d *decoder) end(line int) error {
	if d.ended++; d.ended%4096 == 0 && d.ctx.Err() != nil {
		return fmt.Errorf("read recorded usage %s: %w", d.format.Name, context.Cause(d.ctx))
	}
	s, p := d.sample, d.held
	if s.Time.IsZero() {
		d.wrong(true, line, 0, "the time is empty")
	}
	if used, ok := s.Get(MemUsed); ok {
		if total, ok := s.Get(MemTotal); ok && used > total*(1+noise) {
			d.wrong(false, line, 0, "%s of memory are used of %s", plain.Number(used, 0), plain.Number(total, 0))
			s.has &^= 1<<MemUsed | 1<<MemTotal
		}
	}
	if !d.skipped && (d.layout.divides || strings.HasPrefix(s.GPU, migUUID)) {
		if err := d.identify(line); err != nil {
			return err
		}
	}
	if !d.skipped && d.layout.describes {
		if err := d.describe(line); err != nil {
			return err
		}
	}
	if d.bad != nil {
		d.noteBad(d.bad)
		if n := d.summary.Bad; n >= hopeless && n > d.ended/2 {
			return d.refuse()
		}
		if d.skipped {
			return nil
		}
	}
	sum := &d.summary
	if d.holds && s.Resource == p.Resource && s.GPU == p.GPU && s.Time.Equal(p.Time) && s.Received.Equal(p.Received) &&
		s.Description == p.Description {
		if d.layout.smi && !d.layout.gpu {
			return d.format.fail(line, 0,
				"a second row at the same time: several GPUs are distinguished only by index or uuid among the queried fields")
		}
		if s.has&^p.has == 0 {
			sum.Duplicates++
		} else {
			sum.Rows++
		}
		p.join(s)
		return nil
	}
	if !d.holds || s.Resource != p.Resource {
		d.resources[s.Resource] = struct{}{}
	}
	d.steps.add(s)
	sum.Rows++
	if sum.First.IsZero() || s.Time.Before(sum.First) {
		sum.First = s.Time
	}
	if s.Time.After(sum.Last) {
		sum.Last = s.Time
	}
	err := d.flush()
	d.sample, d.held, d.holds = d.held, d.sample, true
	return err
}

// flush hands on the sample that is held back, if there is one.
func (d *decoder) flush() error {
	if !d.holds {
		return nil
	}
	d.holds = false
	d.held.derive()
	return d.each(d.held)
}

// join adds what another row says of the same sample: of two values the larger.
func (s *Sample) join(o *Sample) {
	for left := o.has; left != 0; left &= left - 1 {
		sig := Signal(bits.TrailingZeros32(left))
		if v := o.values[sig]; s.has&(1<<sig) == 0 || v > s.values[sig] {
			s.Set(sig, v)
		}
	}
	s.unsupported = (s.unsupported | o.unsupported) &^ s.has
}

// identify names the GPU of a row whose columns tell how GPUs are divided, and leaves out values
// that mean nothing on it.
func (d *decoder) identify(line int) error {
	s, device := d.sample, &d.device
	device.UUID, device.Index = s.GPU, ""
	if !NamesGPU(s.GPU) {
		s.GPU = ""
	}
	name, ok := d.devices[*device]
	if !ok {
		name = device.Name("")
		if err := d.keep(line, 0, len(name)+len(device.Serial)); err != nil {
			return err
		}
		if d.devices == nil {
			d.devices, d.parted = map[Device]string{}, map[[2]string]bool{}
		}
		d.devices[*device] = name
	}
	s.GPU = name
	parent, part := Parent(name)
	if part {
		d.parted[[2]string{s.Resource, parent}] = true
	}
	divided := *device
	divided.Divided = device.Divided || !part && d.parted[[2]string{s.Resource, name}]
	if !divided.Divided && !divided.Part() && !d.layout.partsOnly {
		return nil
	}
	for i := range d.layout.columns {
		c := &d.layout.columns[i]
		if c.role != signalColumn || s.has&(1<<c.signal) == 0 || c.means(s.values[c.signal], divided) {
			continue
		}
		s.has &^= 1 << c.signal
		s.unsupported |= 1 << c.signal
		d.summary.Unsupported++
	}
	return nil
}

// noteBad counts a row that is wrong, and keeps the first ones.
func (d *decoder) noteBad(e *FileError) {
	if d.summary.Bad++; len(d.summary.BadRows) < maxBadRows {
		d.summary.BadRows = append(d.summary.BadRows, e)
	}
}

// maxBadRows is how many of the rows that are wrong are told by their lines.
const maxBadRows = 5

// A file is refused when more than one row in badShare is wrong; one may be from fewBad rows
// on. It is then more likely read wrongly than damaged. Of hopeless wrong rows that are the most
// so far, the rest is not read.
const (
	badShare = 100
	fewBad   = 10
	hopeless = 10_000
)

// refuse returns what is wrong with a file of which too many rows are wrong.
func (d *decoder) refuse() error {
	s := &d.summary
	allowed := d.ended / badShare
	if d.ended >= fewBad {
		allowed = max(allowed, 1)
	}
	if s.Bad == 0 || s.Bad <= allowed {
		return nil
	}
	e := *s.BadRows[0]
	if d.ended > 1 && s.Bad > 1 {
		e.Reason = fmt.Sprintf("%s; %d of %d rows cannot be read, and up to 1%% are left out",
			e.Reason, s.Bad, d.ended)
	}
	return &e
}

// finish returns the summary of what was read.
func (d *decoder) finish() Summary {
	d.summary.Resources = len(d.resources)
	d.summary.Step = d.steps.median()
	d.summary.Zoneless, d.summary.Repeated = d.local.read, d.local.repeated
	if d.layout != nil {
		d.summary.UnknownColumns = d.layout.unknown
	}
	return d.summary
}

// describe points the sample at the description in its row, parsing it only when
// it was not seen before.
func (d *decoder) describe(line int) error {
	desc := &d.description
	if desc.current != nil && bytes.Equal(desc.text, desc.last) {
		d.sample.Description = desc.current
		return nil
	}
	known, ok := desc.known[string(desc.text)]
	if !ok {
		if len(desc.text) > maxDescribed {
			return d.format.fail(line, 0, "what describes the resource is over %d KiB", maxDescribed>>10)
		}
		// It is kept as it is written and as it is read.
		if err := d.keep(line, 0, 2*len(desc.text)); err != nil {
			return err
		}
		known = &Description{}
		for _, f := range desc.fields {
			c := &d.layout.columns[f.column]
			if err := d.state(known, c.role, string(desc.text[f.start:f.end])); err != nil {
				d.wrong(true, line, f.column+1, "%s %.60q %s", c.name, desc.text[f.start:f.end], err)
				return nil
			}
		}
		desc.known[string(desc.text)] = known
	}
	d.sample.Description, desc.current = known, known
	desc.last = append(desc.last[:0], desc.text...)
	return nil
}

// state reads a describing field. An empty one states nothing.
func (d *decoder) state(to *Description, r role, text string) error {
	switch r {
	case gpusColumn:
		if unmeasured([]byte(text)) {
			return nil
		}
		n, err := number([]byte(text))
		if err != nil || n != math.Trunc(n) || n < 0 || n > maxGPUs {
			return fmt.Errorf("is no whole number from 0 to %d", maxGPUs)
		}
		to.GPUs = inventory.Known(int(n))
		return nil
	case launchedColumn:
		if unmeasured([]byte(text)) {
			return nil
		}
		t, err := d.instant([]byte(text))
		to.Launched = t
		return err
	}
	return to.set(r, text)
}

// maxGPUs is more than any machine has.
const maxGPUs = 4096

func (d *Description) set(r role, text string) error {
	switch r {
	case environmentColumn:
		d.Environment = strings.ToLower(text)
	case kindColumn:
		if d.Kind = inventory.Kind(text); text != "" && !d.Kind.Valid() {
			return errors.New("is no kind of resource")
		}
	case lifetimeColumn:
		d.Lifetime = inventory.Lifetime(text)
		if !slices.Contains([]inventory.Lifetime{inventory.LifetimeUnknown, inventory.Ephemeral, inventory.Persistent},
			d.Lifetime) {
			return fmt.Errorf("is neither %s nor %s", inventory.Ephemeral, inventory.Persistent)
		}
	case purposeColumn:
		d.Purpose = inventory.Purpose(text)
		purposes := []inventory.Purpose{
			inventory.Training, inventory.Evaluation, inventory.Experimentation, inventory.Inference, inventory.Data,
		}
		if text != "" && !slices.Contains(purposes, d.Purpose) {
			return fmt.Errorf("is none of %v", purposes)
		}
	case typeColumn:
		d.Type = text
	case teamColumn:
		d.Team = text
	case projectColumn:
		d.Project = text
	case userColumn:
		d.User = text
	case tagsColumn:
		tags, err := parseTags(text)
		if err != nil {
			return err
		}
		d.Tags = tags
	}
	return nil
}

// parseTags reads a JSON object of strings or "key=value;key=value". Empty text is
// no tags at all, which is not known to be none.
func parseTags(text string) (map[string]string, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	tags := map[string]string{}
	if text[0] == '{' {
		if err := json.Unmarshal([]byte(text), &tags); err != nil {
			return nil, fmt.Errorf("is not a JSON object of strings: %w", err)
		}
		return tags, nil
	}
	for pair := range strings.SplitSeq(text, ";") {
		key, value, ok := strings.Cut(pair, "=")
		if key = strings.TrimSpace(key); !ok || key == "" {
			return nil, fmt.Errorf("holds %q: a JSON object or key=value;key=value is expected", pair)
		}
		if _, twice := tags[key]; twice {
			return nil, fmt.Errorf("gives %q twice", key)
		}
		tags[key] = strings.TrimSpace(value)
	}
	return tags, nil
}

// stepMeter finds the sampling step: the median time between neighboring samples
// of one meter.
type stepMeter struct {
	last  map[[2]string]time.Time
	steps []time.Duration
}

// Bounds of what the step is taken from.
const (
	maxSteps  = 4096
	maxMeters = 1 << 16
)

func (m *stepMeter) add(s *Sample) {
	if len(m.steps) >= maxSteps {
		return
	}
	key := [2]string{s.Resource, s.GPU}
	last, ok := m.last[key]
	if !ok && len(m.last) >= maxMeters {
		return
	}
	if m.last == nil {
		m.last = map[[2]string]time.Time{}
	}
	m.last[key] = s.Time
	if d := s.Time.Sub(last); ok && d > 0 {
		m.steps = append(m.steps, d)
	}
}

func (m *stepMeter) median() time.Duration {
	if len(m.steps) == 0 {
		return 0
	}
	slices.Sort(m.steps)
	return m.steps[(len(m.steps)-1)/2]
}
