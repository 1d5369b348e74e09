package duty

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

var update = flag.Bool("update", false, "write the golden files")

// recordedFixture is a fixture as a recorded trace, which replays are tested with.
type recordedFixture struct {
	Name       string
	At         time.Time
	Step       time.Duration
	Thresholds Thresholds
	State      State
	// Duration is for how long the state has lasted; 0 is not stated.
	Lasting time.Duration
	// Blurred says that one series stands for an unknown GPU of several. A trace knows
	// only series that stand for all of them.
	Blurred bool
	Trace   string // recorded usage as CSV
}

// recorded writes the samples of a fixture as recorded usage.
func (f nowFixture) recorded() recordedFixture {
	out := recordedFixture{Name: f.name, At: now, Step: f.m.w.Step, Thresholds: f.t, State: f.want, Lasting: f.lasting}
	type row struct {
		at  int64
		gpu string
	}
	rows := map[row]map[usage.Signal]float64{}
	signals := map[usage.Signal]bool{}
	for _, s := range f.m.samples {
		key := row{s.p.Time.UnixMilli(), s.gpu}
		if rows[key] == nil {
			rows[key] = map[usage.Signal]float64{}
		}
		rows[key][s.signal], signals[s.signal] = s.p.Max, true
		out.Blurred = out.Blurred || s.gpu == "" && s.signal.PerGPU() && !f.m.w.Aggregated && f.gpus > 1
	}
	var columns []usage.Signal
	for s := range signals {
		columns = append(columns, s)
	}
	slices.Sort(columns)
	gpus, kind, launched := strconv.Itoa(f.gpus), "", ""
	if f.gpus < 0 {
		gpus, kind = "", "no-such-type"
	}
	if !f.m.w.Launched.IsZero() {
		launched = f.m.w.Launched.Format(time.RFC3339)
	}
	var lines []string
	for key, values := range rows {
		line := fmt.Sprintf("m0,%s,%s,%s,%s,%s", strconv.FormatFloat(float64(key.at)/1000, 'f', -1,
			64), key.gpu, gpus, kind,
			launched)
		for _, s := range columns {
			line += ","
			if v, ok := values[s]; ok {
				line += strconv.FormatFloat(v, 'f', -1, 64)
			}
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	var b strings.Builder
	b.WriteString("resource,time,gpu,gpus,type,launched")
	for _, s := range columns {
		b.WriteString("," + s.String())
	}
	out.Trace = b.String() + "\n" + strings.Join(lines, "\n") + "\n"
	return out
}

// TestFixtureTracesAreCurrent keeps the fixtures as traces, so that replays are held to them.
func TestFixtureTracesAreCurrent(t *testing.T) {
	var all []recordedFixture
	for _, f := range nowFixtures() {
		if f.m != nil && len(f.m.samples) > 0 {
			all = append(all, f.recorded())
		}
	}
	for _, f := range stalledFixtures() {
		f.gpus = 2
		all = append(all, f.recorded())
	}
	want, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/fixtures.json.gz"
	if *update {
		var packed bytes.Buffer
		w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if _, err := w.Write(want); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, packed.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what the fixtures are (%v); -update writes it", file, err)
	}
}
