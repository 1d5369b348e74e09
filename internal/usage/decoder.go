package usage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// decoder turns the fields of rows into samples. Its memory grows with the number
// of resources and GPUs, not with the number of rows.
type decoder struct {
	ctx    context.Context
	format Format
	layout *layout
	each   func(*Sample) error

	sample  Sample
	ended   int // rows
	summary Summary
	steps   stepMeter

	names     map[string]string
	part      string // the MIG instance that the row names
	parts     map[[2]string]string
	resources map[string]struct{}
	// seen are the signals that rows with the identity of the row before this one
	// have carried.
	previous struct {
		resource, gpu string
		time          time.Time
		seen          uint32
	}
	lastTime struct {
		text []byte
		time time.Time
	}
	description struct {
		text  []byte // the describing fields of this row, each followed by 0
		last  []byte // those of the row before
		known map[string]*Description
		// fields are the describing fields of this row, for one that is new.
		fields []describingField
	}
}

type describingField struct {
	column     int
	start, end int // in description.text
}

func newDecoder(ctx context.Context, f Format, l *layout, each func(*Sample) error) *decoder {
	d := &decoder{ctx: ctx, format: f, layout: l, each: each, names: map[string]string{}, resources: map[string]struct{}{}}
	d.description.known = map[string]*Description{}
	return d
}

// begin starts a row.
func (d *decoder) begin() {
	d.sample.Resource, d.sample.GPU, d.sample.Time, d.sample.has = d.format.Resource, "", time.Time{}, 0
	d.part = ""
	d.description.text, d.description.fields = d.description.text[:0], d.description.fields[:0]
}

// text reads one field of a row, given as text. i is the column from 0.
func (d *decoder) text(line, i int, field []byte) error {
	c := &d.layout.columns[i]
	switch c.role {
	case ignored:
	case resourceColumn:
		if len(field) == 0 {
			return d.format.fail(line, i+1, "the resource is empty")
		}
		d.sample.Resource = d.intern(field, d.sample.Resource)
	case gpuColumn:
		d.sample.GPU = d.intern(field, d.previous.gpu)
	case partColumn:
		d.part = d.intern(field, d.part)
	case timeColumn:
		if len(d.lastTime.text) > 0 && bytes.Equal(field, d.lastTime.text) {
			d.sample.Time = d.lastTime.time
			break
		}
		t, err := d.instant(field)
		if err != nil {
			return d.format.fail(line, i+1, "time %.60q %s", field, err)
		}
		d.sample.Time = t
		d.lastTime.text, d.lastTime.time = append(d.lastTime.text[:0], field...), t
	case signalColumn:
		var v float64
		var err error
		if d.layout.smi {
			var ok bool
			if v, ok, err = quantity(c, field); err == nil && !ok {
				break
			}
		} else if v, err = number(field); err != nil && unmeasured(field) {
			break
		}
		if err != nil {
			return d.format.fail(line, i+1, "%s %.60q %s", c.name, field, err)
		}
		if err := d.value(c, v); err != nil {
			return d.format.fail(line, i+1, "%s %.60q %s", c.name, field, err)
		}
	default:
		start := len(d.description.text)
		d.description.text = append(append(d.description.text, field...), 0)
		d.description.fields = append(d.description.fields, describingField{i, start, start + len(field)})
	}
	return nil
}

func (d *decoder) instant(field []byte) (time.Time, error) {
	if !d.layout.smi {
		return instant(field, d.format.Epoch, d.format.Location)
	}
	location := d.format.Location
	if location == nil {
		location = time.UTC
	}
	if t, ok, err := date(field, '/', location); ok || err != nil {
		return t, err
	}
	return instant(field, d.format.Epoch, location)
}

// value records a number that was read of a signal, in the unit of its column.
func (d *decoder) value(c *column, v float64) error {
	if v == -1 || (v >= 0 && !measured(v)) {
		d.summary.Unsupported++
		return nil
	}
	v, err := check(c.signal, v*c.scale)
	if err != nil {
		return err
	}
	if c.spare && d.sample.has&(1<<c.signal) != 0 {
		return nil
	}
	d.sample.values[c.signal] = v
	d.sample.has |= 1 << c.signal
	return nil
}

// intern returns b as a string that is shared with earlier rows; likely is what it
// most likely is.
func (d *decoder) intern(b []byte, likely string) string {
	if string(b) == likely {
		return likely
	}
	if string(b) == d.previous.resource {
		return d.previous.resource
	}
	if s, ok := d.names[string(b)]; ok {
		return s
	}
	s := string(b)
	d.names[s] = s
	return s
}

// end completes a row and hands it on.
func (d *decoder) end(line int) error {
	if d.ended++; d.ended%4096 == 0 && d.ctx.Err() != nil {
		return fmt.Errorf("read recorded usage %s: %w", d.format.Name, context.Cause(d.ctx))
	}
	s, p := &d.sample, &d.previous
	if s.Time.IsZero() {
		return d.format.fail(line, 0, "the time is empty")
	}
	if d.part != "" {
		s.GPU = d.partOf(s.GPU, d.part)
	}
	if used, ok := s.Get(MemUsed); ok {
		if total, ok := s.Get(MemTotal); ok && used > total*(1+noise) {
			return d.format.fail(line, 0, "%s of memory are used of %s", Number(used, 0), Number(total, 0))
		}
	}
	if d.layout.describes {
		if err := d.describe(line); err != nil {
			return err
		}
	}
	if s.Resource == p.resource && s.GPU == p.gpu && s.Time.Equal(p.time) {
		if d.layout.smi && !d.layout.gpu {
			return d.format.fail(line, 0, "a second row at the same time: several GPUs are told apart only by index or uuid among the queried fields")
		}
		if fresh := s.has &^ p.seen; fresh == 0 {
			d.summary.Duplicates++
			return nil
		}
		s.has &^= p.seen
		p.seen |= s.has
	} else {
		if s.Resource != p.resource {
			d.resources[s.Resource] = struct{}{}
		}
		d.steps.add(s)
		p.resource, p.gpu, p.time, p.seen = s.Resource, s.GPU, s.Time, s.has
	}
	sum := &d.summary
	sum.Rows++
	if sum.First.IsZero() || s.Time.Before(sum.First) {
		sum.First = s.Time
	}
	if s.Time.After(sum.Last) {
		sum.Last = s.Time
	}
	return d.each(s)
}

// partOf returns the name of a MIG instance, shared with earlier rows.
func (d *decoder) partOf(gpu, part string) string {
	key := [2]string{gpu, part}
	name, ok := d.parts[key]
	if !ok {
		if d.parts == nil {
			d.parts = map[[2]string]string{}
		}
		name = partName(gpu, part)
		d.parts[key] = name
	}
	return name
}

// finish returns the summary of what was read.
func (d *decoder) finish() Summary {
	d.summary.Resources = len(d.resources)
	d.summary.Step = d.steps.median()
	return d.summary
}

// describe points the sample at the description in its row, parsing it only when
// it was not seen before.
func (d *decoder) describe(line int) error {
	desc := &d.description
	if d.sample.Description != nil && bytes.Equal(desc.text, desc.last) {
		return nil
	}
	known, ok := desc.known[string(desc.text)]
	if !ok {
		known = &Description{}
		for _, f := range desc.fields {
			c := &d.layout.columns[f.column]
			if err := known.set(c.role, string(desc.text[f.start:f.end])); err != nil {
				return d.format.fail(line, f.column+1, "%s %.60q %s", c.name, desc.text[f.start:f.end], err)
			}
		}
		desc.known[string(desc.text)] = known
	}
	d.sample.Description = known
	desc.last = append(desc.last[:0], desc.text...)
	return nil
}

func (d *Description) set(r role, text string) error {
	switch r {
	case kindColumn:
		d.Kind = inventory.Kind(text)
	case lifetimeColumn:
		d.Lifetime = inventory.Lifetime(text)
		if !slices.Contains([]inventory.Lifetime{inventory.LifetimeUnknown, inventory.Ephemeral, inventory.Persistent}, d.Lifetime) {
			return fmt.Errorf("is neither %s nor %s", inventory.Ephemeral, inventory.Persistent)
		}
	case purposeColumn:
		d.Purpose = inventory.Purpose(text)
		purposes := []inventory.Purpose{inventory.Training, inventory.Evaluation, inventory.Experimentation, inventory.Inference, inventory.Data}
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

// stepMeter finds the sampling step: the median time between neighbouring samples
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
