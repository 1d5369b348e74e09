package scaling

import (
	"compress/gzip"
	"encoding/csv"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/plan/capacity"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
	"github.com/curfew-dev/curfew/test/data"
)

// columns reads columns of a trace of ../shared/data; the test is skipped without it.
func columns(t *testing.T, name string, want ...string) [][]string {
	t.Helper()
	f, err := os.Open(data.Path(t, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(z).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out [][]string
	for _, row := range rows[1:] {
		var fields []string
		for _, w := range want {
			i := slices.Index(rows[0], w)
			if i < 0 {
				t.Fatalf("%s has no column %s", name, w)
			}
			fields = append(fields, row[i])
		}
		out = append(out, fields)
	}
	return out
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// mistral is the server of the published sweep: Mistral-7B on one RTX 4090, 256 tokens in and 128
// out, T(c) = 1.74 s + 0.048 s c (mushfiqrahman.dev, 2026).
func mistral(objective time.Duration) fleet.Server {
	return fleet.Server{
		Law: fleet.Concurrency, Limit: 48, Objective: objective,
		Profile: capacity.Profile{PerItem: 48 * time.Millisecond, Base: 1740 * time.Millisecond},
	}
}

// tokens returns the work of a request in requests of 256 tokens in and 128 out. A token in is
// taken to cost a tenth of a token out.
func tokens(in, out float64) float64 { return max(0.01, (in/10+out)/(25.6+128)) }

func tokenTrace(t *testing.T, name, at, in, out string, unit float64) Params {
	p := Params{Config: fleet.Config{Bounds: fleet.Bounds{Min: 1, Max: 40}, Server: mistral(4 * time.Second)}}
	for _, row := range columns(t, name, at, in, out) {
		p.Arrivals = append(p.Arrivals, number(t, row[0])*unit)
		p.Work = append(p.Work, tokens(number(t, row[1]), number(t, row[2])))
	}
	return p
}

func imageTrace(t *testing.T) Params {
	p := Params{Config: fleet.Config{Bounds: fleet.Bounds{Max: 10, Zero: true}}}
	var first time.Time
	var took []float64
	for _, row := range columns(t, "alibaba-gentd26/image_requests.csv.gz", "gmt_create", "exec_time_seconds") {
		at, err := time.Parse(time.DateTime, row[0])
		if err != nil {
			t.Fatal(err)
		}
		if row[1] == "" {
			continue
		}
		if first.IsZero() {
			first = at
		}
		p.Arrivals = append(p.Arrivals, at.Sub(first).Seconds())
		took = append(took, max(0.1, number(t, row[1])))
	}
	sum := 0.0
	for _, s := range took {
		sum += s
	}
	mean := sum / float64(len(took))
	for _, s := range took {
		p.Work = append(p.Work, s/mean)
	}
	p.Config.Server = fleet.Server{
		Law: fleet.Batch, Limit: 1, Objective: 3 * time.Minute,
		Profile: capacity.Profile{Base: time.Duration(mean * float64(time.Second))},
	}
	return p
}
