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

// decoder converts the fields of rows to samples. Its memory grows with the number of resources and
// GPUs, not with the number of rows.
type decoder struct {
	ctx    context.Context
	format Format
	layout *layout
	emit   func(*Sample) error

	// sample is the current row, previous the row before, which is held back because rows of the
	// same sample may follow.
	sample, previous *Sample
	hasPrevious      bool
	rows             int
	summary          Summary
	steps            stepMeter

	local   localTimes
	untimed untimed
	// rowError is the first error of the row; skipped means that the rest of the row is ignored.
	rowError *FileError
	skipped  bool

	names    map[string]string
	retained struct{ count, bytes int } // text that stays in memory until the end
	// device describes the GPU of the row. devices caches the names of parts of GPUs, and
	// dividedGPUs the GPUs that have parts.
	device      Device
	devices     map[Device]string
	dividedGPUs map[[2]string]bool
	resources   map[string]struct{}
	lastTime    cachedTime
	received    cachedTime
	description struct {
		decodeField []byte // the describing fields of this row, each followed by 0
		last        []byte // those of the previous row
		current     *Description
		known       map[string]*Description
		// fields are the positions of the describing fields of this row, for a new description.
		fields []describingField
	}
}

// cachedTime is the newest time of a column with its text.
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
		ctx: ctx, format: f, layout: l, emit: each, names: map[string]string{}, resources: map[string]struct{}{},
	}
	d.sample, d.previous = &Sample{}, &Sample{}
	d.local.location = f.Location
	d.description.known = map[string]*Description{}
	return d
}

// beginRow starts a row.
func (d *decoder) beginRow() {
	s := d.sample
	s.Resource, s.GPU, s.Time, s.Received, s.has, s.unsupported = d.format.Resource, "", time.Time{}, time.Time{}, 0, 0
	d.rowError, d.skipped = nil, false
	if d.layout.hasDeviceColumns {
		d.device = Device{}
	}
	d.description.decodeField, d.description.fields = d.description.decodeField[:0], d.description.fields[:0]
}

// reject records an error of the row; the first one stays. With skip the whole row is ignored, not
// only the value.
func (d *decoder) reject(skip bool, line, column int, format string, args ...any) {
	if d.rowError == nil {
		d.rowError = d.format.fail(line, column, format, args...)
	}
	d.skipped = d.skipped || skip
}

// decodeField decodes one field of a row from text. i is the column from 0. An error of the row is
// recorded; a returned error concerns the file.
func (d *decoder) decodeField(line, i int, field []byte) error {
	c := &d.layout.columns[i]
	switch c.role {
	case ignored:
	case resourceColumn:
		if len(field) == 0 {
			d.reject(true, line, i+1, "the resource is empty")
			return nil
		}
		return d.intern(&d.sample.Resource, field, d.previous.Resource, line, i)
	case gpuColumn:
		return d.intern(&d.sample.GPU, field, d.previous.GPU, line, i)
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
		d.device.InMIGMode = strings.EqualFold(string(field), "enabled") || string(field) == "1"
	case timeColumn:
		t, err := d.parseTime(&d.lastTime, field)
		if err != nil {
			d.reject(true, line, i+1, "time %.60q %s", field, err)
		}
		d.sample.Time = t
	case receivedColumn:
		if isUnmeasured(field) {
			break
		}
		t, err := d.parseTime(&d.received, field)
		if err != nil {
			d.reject(true, line, i+1, "received %.60q %s", field, err)
		}
		d.sample.Received = t
	case signalColumn:
		d.decodeSignal(c, line, i, field)
	default:
		start := len(d.description.decodeField)
		d.description.decodeField = append(append(d.description.decodeField, field...), 0)
		d.description.fields = append(d.description.fields, describingField{i, start, start + len(field)})
	}
	return nil
}

// decodeSignal decodes the value of a signal.
func (d *decoder) decodeSignal(c *column, line, i int, field []byte) {
	var v float64
	var err error
	if d.layout.nvidiaSMI {
		v, err = d.layout.quantity(c, field)
	} else if v, err = c.number(field); err != nil && !isUnmeasured(field) {
		if local, rest, ok := parseLocalized(field, d.layout.decimalComma); ok && len(rest) == 0 {
			v, err = local, nil
		}
	}
	if err == nil {
		err = d.recordValue(c, v)
	} else if isUnmeasured(field) {
		if len(field) > 0 {
			d.sample.unsupported |= 1 << c.signal
		}
		if err = nil; isReadError(field) {
			d.summary.ReadErrors++
		}
	}
	if err != nil {
		d.reject(false, line, i+1, "%s %.60q %s", c.name, field, err)
	}
}

// parseTime parses a time, which is often that of the previous row.
func (d *decoder) parseTime(c *cachedTime, field []byte) (time.Time, error) {
	if len(c.text) > 0 && bytes.Equal(field, c.text) {
		return c.time, nil
	}
	t, err := d.parseInstant(field)
	if err != nil {
		return time.Time{}, err
	}
	c.text, c.time = append(c.text[:0], field...), t
	return t, nil
}

func (d *decoder) parseInstant(field []byte) (time.Time, error) {
	t, zoned, ok, err := parseDate(field, '-')
	if !ok && err == nil && d.layout.nvidiaSMI {
		t, zoned, ok, err = parseDate(field, '/')
	}
	switch {
	case err != nil || ok && zoned:
		return t, err
	case ok:
		return d.local.instant(t)
	}
	return sinceEpoch(field, d.format.Epoch)
}

// recordValue records a number of a signal in the unit of its column, or returns why it is
// impossible.
func (d *decoder) recordValue(c *column, v float64) error {
	scaled := v * c.scale
	if !(v >= 0 && v < blankInt32 && scaled <= c.max) {
		return d.recordUnusual(c, v)
	}
	d.sample.values[c.signal] = scaled
	d.sample.has |= 1 << c.signal
	return nil
}

// recordUnusual records a number that may not be a measurement.
func (d *decoder) recordUnusual(c *column, v float64) error {
	scaled, reading := v, Valid
	if !IsMeasurement(v) { // sentinels are in the unit of the column
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

// intern sets to to b as a string shared with earlier rows; likely is its most likely value.
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
		if err := d.retain(line, i+1, len(b)); err != nil {
			return err
		}
		name = string(b)
		d.names[name] = name
	}
	*to = name
	return nil
}

// endRow completes a row, and emits the previous sample.
func (d *decoder) endRow(line int) error {
	if d.rows++; d.rows%4096 == 0 && d.ctx.Err() != nil {
		return fmt.Errorf("read recorded usage %s: %w", d.format.Name, context.Cause(d.ctx))
	}
	s, p := d.sample, d.previous
	if d.layout.untimed && !d.skipped {
		s.Time = d.untimed.next(s.GPU, &d.format)
	}
	if s.Time.IsZero() {
		d.reject(true, line, 0, "the time is empty")
	}
	if used, ok := s.Get(MemUsed); ok {
		if total, ok := s.Get(MemTotal); ok && used > total*(1+overshoot) {
			d.reject(false, line, 0, "%s of memory are used of %s", plain.Number(used, 0), plain.Number(total, 0))
			s.has &^= 1<<MemUsed | 1<<MemTotal
		}
	}
	if !d.skipped && (d.layout.hasDeviceColumns || strings.HasPrefix(s.GPU, migUUID)) {
		if err := d.nameGPU(line); err != nil {
			return err
		}
	}
	if !d.skipped && d.layout.describes {
		if err := d.describe(line); err != nil {
			return err
		}
	}
	if d.rowError != nil {
		d.countBadRow(d.rowError)
		if n := d.summary.BadRowCount; n >= maxBadRowsRead && n > d.rows/2 {
			return d.checkBadRows()
		}
		if d.skipped {
			return nil
		}
	}
	sum := &d.summary
	if d.hasPrevious && s.Resource == p.Resource && s.GPU == p.GPU && s.Time.Equal(p.Time) &&
		s.Received.Equal(p.Received) &&
		s.Description == p.Description {
		if d.layout.nvidiaSMI && !d.layout.gpu {
			return d.format.fail(line, 0,
				"a second row at the same time: several GPUs are distinguished only by index or uuid among the queried fields")
		}
		if s.has&^p.has == 0 {
			sum.Duplicates++
		} else {
			sum.Rows++
		}
		p.merge(s)
		return nil
	}
	if !d.hasPrevious || s.Resource != p.Resource {
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
	d.sample, d.previous, d.hasPrevious = d.previous, d.sample, true
	return err
}

// flush emits the sample that is held back, if any.
func (d *decoder) flush() error {
	if !d.hasPrevious {
		return nil
	}
	d.hasPrevious = false
	d.previous.derive()
	return d.emit(d.previous)
}

// merge adds the values of another row of the same sample; of two values the larger is kept.
func (s *Sample) merge(o *Sample) {
	for left := o.has; left != 0; left &= left - 1 {
		sig := Signal(bits.TrailingZeros32(left))
		if v := o.values[sig]; s.has&(1<<sig) == 0 || v > s.values[sig] {
			s.Set(sig, v)
		}
	}
	s.unsupported = (s.unsupported | o.unsupported) &^ s.has
}

// nameGPU names the GPU of a row with device columns, and drops values that are not measurements of
// that device.
func (d *decoder) nameGPU(line int) error {
	s, device := d.sample, &d.device
	device.UUID, device.Index = s.GPU, ""
	if !IsGPUName(s.GPU) {
		s.GPU = ""
	}
	name, ok := d.devices[*device]
	if !ok {
		name = device.Name("")
		if err := d.retain(line, 0, len(name)+len(device.Serial)); err != nil {
			return err
		}
		if d.devices == nil {
			d.devices, d.dividedGPUs = map[Device]string{}, map[[2]string]bool{}
		}
		d.devices[*device] = name
	}
	s.GPU = name
	parent, part := Parent(name)
	if part {
		d.dividedGPUs[[2]string{s.Resource, parent}] = true
	}
	divided := *device
	divided.InMIGMode = device.InMIGMode || !part && d.dividedGPUs[[2]string{s.Resource, name}]
	if !divided.InMIGMode && !divided.IsPart() && !d.layout.partsOnly {
		return nil
	}
	for i := range d.layout.columns {
		c := &d.layout.columns[i]
		if c.role != signalColumn || s.has&(1<<c.signal) == 0 || c.appliesTo(s.values[c.signal], divided) {
			continue
		}
		s.has &^= 1 << c.signal
		s.unsupported |= 1 << c.signal
		d.summary.Unsupported++
	}
	return nil
}

// countBadRow counts a bad row, and keeps the first ones.
func (d *decoder) countBadRow(e *FileError) {
	if d.summary.BadRowCount++; len(d.summary.BadRows) < maxBadRows {
		d.summary.BadRows = append(d.summary.BadRows, e)
	}
}

// maxBadRows bounds the bad rows that are reported with their lines.
const maxBadRows = 5

// A file is rejected if more than one row in badRowDivisor is bad; one bad row is allowed from
// minRowsForBadRow rows on. More errors suggest a wrong format rather than damage. Reading stops
// after maxBadRowsRead bad rows if they are the majority.
const (
	badRowDivisor    = 100
	minRowsForBadRow = 10
	maxBadRowsRead   = 10_000
)

// checkBadRows returns an error if too many rows are bad.
func (d *decoder) checkBadRows() error {
	s := &d.summary
	allowed := d.rows / badRowDivisor
	if d.rows >= minRowsForBadRow {
		allowed = max(allowed, 1)
	}
	if s.BadRowCount == 0 || s.BadRowCount <= allowed {
		return nil
	}
	e := *s.BadRows[0]
	if d.rows > 1 && s.BadRowCount > 1 {
		e.Reason = fmt.Sprintf("%s; %d of %d rows cannot be read, and up to 1%% are left out",
			e.Reason, s.BadRowCount, d.rows)
	}
	return &e
}

// finish returns the summary of the rows read.
func (d *decoder) finish() Summary {
	d.summary.Resources = len(d.resources)
	d.summary.Step = d.steps.median()
	d.summary.Zoneless, d.summary.RepeatedHour = d.local.zoneless, d.local.repeated
	if d.layout != nil {
		d.summary.UnknownColumns, d.summary.Untimed = d.layout.unknown, d.layout.untimed
	}
	return d.summary
}

// describe sets the sample's description, and parses it only if it is new.
func (d *decoder) describe(line int) error {
	desc := &d.description
	if desc.current != nil && bytes.Equal(desc.decodeField, desc.last) {
		d.sample.Description = desc.current
		return nil
	}
	known, ok := desc.known[string(desc.decodeField)]
	if !ok {
		if len(desc.decodeField) > maxDescription {
			return d.format.fail(line, 0, "what describes the resource is over %d KiB", maxDescription>>10)
		}
		// The text is kept twice: as a key and parsed.
		if err := d.retain(line, 0, 2*len(desc.decodeField)); err != nil {
			return err
		}
		known = &Description{}
		for _, f := range desc.fields {
			c := &d.layout.columns[f.column]
			if err := d.setDescription(known, c.role, string(desc.decodeField[f.start:f.end])); err != nil {
				d.reject(true, line, f.column+1, "%s %.60q %s", c.name, desc.decodeField[f.start:f.end], err)
				return nil
			}
		}
		desc.known[string(desc.decodeField)] = known
	}
	d.sample.Description, desc.current = known, known
	desc.last = append(desc.last[:0], desc.decodeField...)
	return nil
}

// setDescription parses a describing field. An empty one sets nothing.
func (d *decoder) setDescription(to *Description, r role, text string) error {
	switch r {
	case gpusColumn:
		if isUnmeasured([]byte(text)) {
			return nil
		}
		n, err := parseNumber([]byte(text))
		if err != nil || n != math.Trunc(n) || n < 0 || n > maxGPUs {
			return fmt.Errorf("is no whole number from 0 to %d", maxGPUs)
		}
		to.GPUs = inventory.Known(int(n))
		return nil
	case launchedColumn:
		if isUnmeasured([]byte(text)) {
			return nil
		}
		t, err := d.parseInstant([]byte(text))
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

// parseTags parses a JSON object of strings or "key=value;key=value". Empty text gives nil: unknown
// tags, not an empty set.
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

// stepMeter finds the sampling step: the median time between neighboring samples of one meter.
type stepMeter struct {
	last  map[[2]string]time.Time
	steps []time.Duration
}

// Bounds of the samples that determine the step.
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
