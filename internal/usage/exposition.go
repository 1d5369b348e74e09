package usage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// ReadExposition hands each the samples in a scrape of a metrics endpoint, in the
// text format of Prometheus, one for each machine, GPU and time in it. Rows without
// a time were measured at the given one. Metrics that no signal stands for are passed
// over, as are values that are no measurement ([Normalize]). Where f names a resource,
// every row is its; otherwise rows that name no machine are an error.
//
// What is wrong with the text is a *FileError with the line and column; nothing is
// handed on then.
func ReadExposition(ctx context.Context, r io.Reader, f Format, at time.Time, each func(*Sample) error) error {
	in := &lines{r: bufio.NewReaderSize(r, maxLine), format: f}
	type key struct {
		resource, gpu string
		time          int64
	}
	known := map[key]*Sample{}
	var order []*Sample
	for {
		text, err := in.line()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		p := &expositionLine{text: string(text), labels: map[string]string{}, time: at}
		ok, err := p.parse()
		if err != nil {
			return f.fail(in.number, p.at+1, "%s", err)
		}
		if !ok {
			continue
		}
		reading, ok := Normalize(p.metric, p.labels, p.value)
		if !ok {
			continue
		}
		if f.Resource != "" {
			reading.Resource = f.Resource
		}
		if reading.Resource == "" {
			return f.fail(in.number, 0, "%s has no label that names its machine: name the resource", p.metric)
		}
		k := key{reading.Resource, reading.GPU, p.time.UnixNano()}
		s := known[k]
		if s == nil {
			s = &Sample{Resource: reading.Resource, GPU: reading.GPU, Time: p.time}
			known[k] = s
			order = append(order, s)
		}
		s.Set(reading.Signal, reading.Value)
	}
	for _, s := range order {
		if ctx.Err() != nil {
			return fmt.Errorf("read metrics %s: %w", f.Name, context.Cause(ctx))
		}
		s.derive()
		if err := each(s); err != nil {
			return err
		}
	}
	return nil
}

// expositionLine is one line of the format: metric{label="value",...} value time.
type expositionLine struct {
	text string
	at   int // how far it is read

	metric string
	labels map[string]string
	value  float64
	time   time.Time
}

var (
	errMetric    = errors.New("the name of a metric is expected")
	errLabel     = errors.New(`label="value" is expected`)
	errLabelEnd  = errors.New("a comma or } is expected after a label")
	errLabelText = errors.New("a label's value is not closed")
	errValue     = errors.New("a number is expected after the metric")
	errStamp     = errors.New("the time is no number of milliseconds since 1970")
)

// parse reads the line; ok is false for comments and empty lines.
func (p *expositionLine) parse() (ok bool, err error) {
	if p.skip(); p.at == len(p.text) || p.text[p.at] == '#' {
		return false, nil
	}
	p.metric = p.word()
	if p.skip(); p.next('{') {
		if err := p.readLabels(); err != nil {
			return false, err
		}
	}
	if p.metric == "" {
		return false, errMetric
	}
	p.skip()
	start := p.at
	if p.value, err = strconv.ParseFloat(p.field(), 64); err != nil && !errors.Is(err, strconv.ErrRange) {
		p.at = start
		return false, errValue
	}
	p.skip()
	start = p.at
	switch stamp := p.field(); {
	case stamp == "" || stamp[0] == '#': // OpenMetrics puts an exemplar there
	default:
		ms, err := strconv.ParseFloat(stamp, 64)
		if strings.Contains(stamp, ".") {
			ms *= 1000 // OpenMetrics counts seconds
		}
		if err != nil || !(ms >= 0 && ms < 1000*maxSeconds) {
			p.at = start
			return false, errStamp
		}
		p.time = time.UnixMilli(int64(math.Round(ms))).UTC()
	}
	return true, nil
}

// readLabels reads what follows an opening brace. A quoted string without a value is
// the metric's name.
func (p *expositionLine) readLabels() error {
	for {
		p.skip()
		if p.next('}') {
			return nil
		}
		name := p.word()
		if name == "" {
			if !p.next('"') {
				return errLabel
			}
			var err error
			if name, err = p.quoted(); err != nil {
				return err
			}
			if p.skip(); p.at < len(p.text) && p.text[p.at] != '=' {
				p.metric = name
				name = ""
			}
		}
		if name != "" {
			p.skip()
			if !p.next('=') {
				return errLabel
			}
			if p.skip(); !p.next('"') {
				return errLabel
			}
			value, err := p.quoted()
			if err != nil {
				return err
			}
			p.labels[name] = value
		}
		if p.skip(); !p.next(',') && (p.at == len(p.text) || p.text[p.at] != '}') {
			return errLabelEnd
		}
	}
}

func (p *expositionLine) skip() {
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\t') {
		p.at++
	}
}

func (p *expositionLine) next(c byte) bool {
	if p.at == len(p.text) || p.text[p.at] != c {
		return false
	}
	p.at++
	return true
}

// word reads the name of a metric or label.
func (p *expositionLine) word() string {
	start := p.at
	for ; p.at < len(p.text); p.at++ {
		c := p.text[p.at]
		letter := c == '_' || c == ':' || c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (p.at == start || c < '0' || c > '9') {
			break
		}
	}
	return p.text[start:p.at]
}

// field reads up to the next space.
func (p *expositionLine) field() string {
	start := p.at
	for p.at < len(p.text) && p.text[p.at] != ' ' && p.text[p.at] != '\t' {
		p.at++
	}
	return p.text[start:p.at]
}

// quoted reads up to the closing quote, undoing escapes.
func (p *expositionLine) quoted() (string, error) {
	end := strings.IndexAny(p.text[p.at:], `"\`)
	if end >= 0 && p.text[p.at+end] == '"' {
		value := p.text[p.at : p.at+end]
		p.at += end + 1
		return value, nil
	}
	var b strings.Builder
	for ; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; c {
		case '"':
			p.at++
			return b.String(), nil
		case '\\':
			if p.at++; p.at == len(p.text) {
				return "", errLabelText
			}
			if c = p.text[p.at]; c == 'n' {
				c = '\n'
			}
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return "", errLabelText
}
