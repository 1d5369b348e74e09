package scaling

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plan"
)

// inputWeight is the cost of a token in, in tokens out: a prompt is read many tokens at a time.
const inputWeight = 0.1

// ArrivalsFile is a file of requests in time order. It has one of the columns of time.
var ArrivalsFile = plan.Layout{
	Optional: []plan.Column{
		{Name: "time", Doc: "arrival of a request, RFC 3339"},
		{Name: "seconds", Doc: "arrival in seconds from 0"},
		{Name: "t_s", Doc: "arrival in seconds from 0"},
		{Name: "t_ms", Doc: "arrival in milliseconds from 0"},
		{Name: "work", Doc: "work of the request, in requests of the size that the profile was measured with"},
		{Name: "input_tokens", Doc: "tokens in; each counts as a tenth of a token out"},
		{Name: "output_tokens", Doc: "tokens out"},
	},
	Others: true,
}

// Recording is recorded requests.
type Recording struct {
	// Times are seconds from the first one.
	Times []float64
	// Work is the work of each; nil if all are alike.
	Work []float64
	// ByTokens is set if Work was read from tokens: 1 is the mean of the file, MeanTokens tokens out.
	ByTokens   bool
	MeanTokens float64
}

// RelativeTo returns the work in requests of as many tokens out.
func (r *Recording) RelativeTo(tokens float64) []float64 {
	out := make([]float64, len(r.Work))
	for i, w := range r.Work {
		out[i] = w * r.MeanTokens / tokens
	}
	return out
}

// ReadArrivals reads CSV with a row for each request, in time order. columns names columns of the
// file that are called otherwise. Mistakes are a [*plan.FileError] with line and column.
func ReadArrivals(columns map[string]string) func(name string, r io.Reader) (*Recording, error) {
	return func(name string, r io.Reader) (*Recording, error) {
		layout := ArrivalsFile
		layout.Map = columns
		a := &arrivals{}
		if err := plan.ReadCSV(name, r, layout, a.add); err != nil {
			return nil, err
		}
		if len(a.Times) < 2 {
			return nil, &plan.FileError{File: name, Reason: "a replay needs two arrivals or more"}
		}
		first := a.Times[0]
		for i := range a.Times {
			a.Times[i] -= first
		}
		if a.ByTokens {
			a.relative()
		}
		return &a.Recording, nil
	}
}

// arrivals is a file that is being read.
type arrivals struct {
	Recording
	column string // of time
	start  time.Time
}

func (a *arrivals) add(row plan.Row) error {
	if len(a.Times) == maxArrivals {
		return fmt.Errorf("more than %d arrivals", maxArrivals)
	}
	at, err := a.at(row)
	if err != nil {
		return err
	}
	if n := len(a.Times); n > 0 && at < a.Times[n-1] {
		return row.Error(a.column, "%s is before the row above: sort the arrivals by time", a.column)
	}
	a.Times = append(a.Times, at)
	work, tokens, given := 0.0, false, false
	if row.Text("work") != "" {
		given = true
		if work, err = row.Float("work", 1e-6, 1e6); err != nil {
			return err
		}
	}
	if row.Text("input_tokens")+row.Text("output_tokens") != "" {
		if given {
			return row.Error("work", "both work and tokens say the size of the request: keep one")
		}
		given, tokens = true, true
		for column, weight := range map[string]float64{"input_tokens": inputWeight, "output_tokens": 1} {
			if row.Text(column) == "" {
				continue
			}
			v, err := row.Float(column, 0, 1e9)
			if err != nil {
				return err
			}
			work += weight * v
		}
		work = max(work, inputWeight)
	}
	switch first := len(a.Times) == 1; {
	case first:
		a.ByTokens = tokens
	case given != (a.Work != nil) || tokens != a.ByTokens:
		return errors.New("either all or none of the requests have a size")
	}
	if given {
		a.Work = append(a.Work, work)
	}
	return nil
}

// at reads the time of a request in seconds.
func (a *arrivals) at(row plan.Row) (float64, error) {
	column := ""
	for _, c := range []string{"time", "seconds", "t_s", "t_ms"} {
		switch {
		case row.Text(c) == "":
		case column != "":
			return 0, row.Error(c, "both %s and %s give the time of the request: keep one", column, c)
		default:
			column = c
		}
	}
	switch {
	case column == "":
		return 0, row.Error(a.column, "the time of the request is missing: add a column time (RFC 3339), seconds or "+
			"t_ms, or name it with --map")
	case a.column != "" && a.column != column:
		return 0, row.Error(column, "earlier rows have the time in %s", a.column)
	}
	a.column = column
	if column != "time" {
		v, err := row.Float(column, 0, 9e12)
		if column == "t_ms" {
			v /= 1000
		}
		return v, err
	}
	t, err := time.Parse(time.RFC3339Nano, row.Text("time"))
	if err != nil {
		return 0, row.Error("time", "time %q is not RFC 3339, such as 2006-01-02T15:04:05.999Z", row.Text("time"))
	}
	if a.start.IsZero() {
		a.start = t
	}
	return t.Sub(a.start).Seconds(), nil
}

// relative divides the work by its mean.
func (a *arrivals) relative() {
	sum := 0.0
	for _, w := range a.Work {
		sum += w
	}
	mean := sum / float64(len(a.Work))
	a.MeanTokens = mean
	for i := range a.Work {
		a.Work[i] /= mean
	}
}

// ParseColumns reads names of columns: "t_s=seconds_since_start,input_tokens=context".
func ParseColumns(text string) (map[string]string, error) {
	out := map[string]string{}
	if strings.TrimSpace(text) == "" {
		return out, nil
	}
	for pair := range strings.SplitSeq(text, ",") {
		ours, theirs, ok := strings.Cut(pair, "=")
		ours, theirs = strings.TrimSpace(ours), strings.TrimSpace(theirs)
		if !ok || ours == "" || theirs == "" || out[ours] != "" {
			return nil, fmt.Errorf("%q: write each column once, as in input_tokens=context_tokens", text)
		}
		out[ours] = theirs
	}
	return out, nil
}

// ParseTokens reads the tokens in and out of the requests that a profile was measured with, "256,128",
// and returns their work in tokens out.
func ParseTokens(text string) (float64, error) {
	var in, out float64
	if n, err := fmt.Sscanf(strings.TrimSpace(text), "%f,%f", &in, &out); n != 2 || err != nil ||
		!(in >= 0 && in <= 1e9 && out >= 0 && out <= 1e9 && in+out > 0) {
		return 0, fmt.Errorf("%q is not tokens in and out, such as 256,128", text)
	}
	return inputWeight*in + out, nil
}
