package local

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/usage"
)

// newProvider returns a provider without machines.
func newProvider(t *testing.T) *Provider {
	t.Helper()
	p, err := NewProvider(ProviderOptions{Dir: t.TempDir(), Name: "lab-1"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// addMeasuredMachine adds a machine launched at a time and returns its agent's folder.
func addMeasuredMachine(t *testing.T, p *Provider, id string, at time.Time) string {
	t.Helper()
	dir := filepath.Join(p.Folder(id), "agent")
	if err := errors.Join(os.MkdirAll(dir, 0o700), writeJSON(filepath.Join(p.Folder(id), recordFile),
		record{ID: id, LaunchedAt: at})); err != nil {
		t.Fatal(err)
	}
	return dir
}

// point is a received sample.
type point struct {
	GPU    string
	Signal usage.Signal
	At     time.Time
	Value  float64
}

// points measures one machine.
func points(t *testing.T, p *Provider, id string, iv usage.Interval) (got []point, o usage.SourceInfo,
	out usage.MeasureResult) {
	t.Helper()
	r := &inventory.Resource{ID: id, Cloud: CloudName, Account: p.Account(), Kind: inventory.KindInstance}
	other := &inventory.Resource{ID: id, Cloud: "aws", Account: p.Account(), Kind: inventory.KindInstance}
	out, err := p.Measure(t.Context(), []*inventory.Resource{other, r}, iv,
		func(of *inventory.Resource, opened usage.SourceInfo) usage.Sink {
			if of != r {
				t.Fatalf("it measures %v", of)
			}
			o = opened
			return usage.SinkFunc(func(gpu string, s usage.Signal, x usage.Point) bool {
				if x.Mean != x.Max {
					t.Errorf("mean %v, maximum %v", x.Mean, x.Max)
				}
				got = append(got, point{gpu, s, x.Time, x.Mean})
				return true
			})
		})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b point) int {
		return strings.Compare(a.At.Format(time.RFC3339)+a.GPU+a.Signal.String(),
			b.At.Format(time.RFC3339)+b.GPU+b.Signal.String())
	})
	return got, o, out
}

// TestMeasuresAgentSamples checks that agent samples reach rounds: each step once, within the
// interval, across the rotated file, with the current step length.
func TestMeasuresAgentSamples(t *testing.T) {
	p := newProvider(t)
	at := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	dir := addMeasuredMachine(t, p, "m-1", at)
	write := func(name, tail string, samples ...session.Measurement) {
		var b strings.Builder
		for _, s := range samples {
			line, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(append(line, '\n'))
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(b.String()+tail), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	iv := usage.Interval{From: at.Add(-time.Hour), To: at.Add(time.Hour)}
	if got, _, out := points(t, p, "m-1", iv); len(got)+len(out.BlindSpots) > 0 {
		t.Errorf("before it measured anything: %v, %v", got, out)
	}

	step := session.Duration(10 * time.Second)
	// another step
	write(session.PreviousSamplesFile, "", session.Measurement{
		Start: at.Add(-time.Minute), Step: session.Duration(time.Second), Steps: 60,
		Host: map[string]float64{"cpu_util": 99},
	},
		session.Measurement{Start: at, Step: step, Steps: 2, Host: map[string]float64{"cpu_util": 3, "net_bytes": 0}})
	write(session.SamplesFile, `{"from":"2026-11-2`, session.Measurement{
		Start: at.Add(20 * time.Second), Step: step, Steps: 1, Host: map[string]float64{
			"cpu_util": 80, "no_such_signal": 1,
		},
		GPUs: map[string]map[string]float64{"GPU-a": {"gpu_util": 42}}})
	want := []point{
		{"", usage.CPUUtil, at, 3}, {"", usage.NetBytes, at, 0}, {"", usage.CPUUtil, at.Add(10 * time.Second), 3},
		{"", usage.NetBytes, at.Add(10 * time.Second), 0},
		{"GPU-a", usage.GPUUtil, at.Add(20 * time.Second), 42}, {"", usage.CPUUtil, at.Add(20 * time.Second), 80}}
	slices.SortFunc(want, func(a, b point) int {
		return strings.Compare(a.At.Format(time.RFC3339)+a.GPU+a.Signal.String(),
			b.At.Format(time.RFC3339)+b.GPU+b.Signal.String())
	})
	got, opened, _ := points(t, p, "m-1", iv)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if opened.Step != 10*time.Second || !opened.From.Equal(at) {
		t.Errorf("it is opened as %+v", opened)
	}
	got, opened, _ = points(t, p, "m-1", usage.Interval{From: at.Add(10 * time.Second), To: at.Add(20 * time.Second)})
	if len(got) != 2 || !got[0].At.Equal(at.Add(10*time.Second)) || !opened.From.Equal(at.Add(10*time.Second)) {
		t.Errorf("within an interval: %v, opened as %+v", got, opened)
	}

	// An unreadable file is a blind spot.
	if err := os.Remove(filepath.Join(dir, session.SamplesFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, session.SamplesFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, _, out := points(t, p, "m-1", iv); len(got) > 0 || len(out.BlindSpots) != 1 {
		t.Errorf("a file that cannot be read: %v, %v", got, out)
	}
}

// TestMeasuredIdleMachine checks that a machine without GPUs is idle by its agent's samples, and
// unknown once they stop.
func TestMeasuredIdleMachine(t *testing.T) {
	p := newProvider(t)
	at := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	dir := addMeasuredMachine(t, p, "m-1", at)
	line, err := json.Marshal(session.Measurement{
		Start: at, Step: session.Duration(10 * time.Second), Steps: 180,
		Host: map[string]float64{"cpu_util": 0.5, "net_bytes": 0, "disk_bytes": 0, "sessions": 0},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, session.SamplesFile), append(line, '\n'), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	th := duty.DefaultThresholds()
	k := duty.NewTracker(th, th.Activity(nil), time.Hour)
	got, opened, _ := points(t, p, "m-1", usage.Interval{From: at, To: at.Add(time.Hour)})
	for _, x := range got {
		k.AddRun(opened, x.GPU, x.Signal, x.At, 1, x.Value)
	}
	end := at.Add(30 * time.Minute)
	if v := k.Explain(end, duty.Machine{GPUs: inventory.Known(0)}); v.State != duty.Idle || !v.Since.Equal(at) {
		t.Errorf("it is %s since %s: %s", v.State, v.Since, v.Why)
	}
	if v := k.Explain(end.Add(time.Minute), duty.Machine{GPUs: inventory.Known(0)}); v.State != duty.Unknown {
		t.Errorf("a minute after its last sample it is %s: %s", v.State, v.Why)
	}
}

// TestRejectsHostileMeasurements checks that sample files cannot make a reading endless or cover
// future time.
func TestRejectsHostileMeasurements(t *testing.T) {
	p := newProvider(t)
	at := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	iv := usage.Interval{From: at.Add(-time.Hour), To: at.Add(3 * time.Hour)}
	second := session.Duration(time.Second)
	cpu := map[string]float64{"cpu_util": 1}
	many := strings.Repeat(`{"from":"`+at.Format(time.RFC3339)+`","step":"10ms","steps":65536,"host":{"cpu_util":1}}`+
		"\n", 2000)
	for _, c := range []struct {
		name    string
		samples []session.Measurement
		text    string
		put     func(path string) error
		most    int
		blind   bool
	}{
		{name: "the same time again and again", text: many, most: 65536},
		{
			name: "too many",
			text: strings.ReplaceAll(many, `"steps":65536`, `"steps":1,"x":"`+strings.Repeat("x", 10)+`"`),
			most: 1,
		},
		{
			name:    "the future",
			samples: []session.Measurement{{Start: at.Add(2 * time.Hour), Step: second, Steps: 60, Host: cpu}},
		},
		{
			name:    "before its launch",
			samples: []session.Measurement{{Start: at.Add(-2 * time.Hour), Step: second, Steps: 60, Host: cpu}},
		},
		{name: "steps of nothing", samples: []session.Measurement{{Start: at, Step: 1, Steps: 60, Host: cpu}}},
		{name: "a negative count", samples: []session.Measurement{{Start: at, Step: second, Steps: -5, Host: cpu}}},
		{
			name: "a negative value",
			samples: []session.Measurement{
				{Start: at, Step: second, Steps: 5, Host: map[string]float64{"cpu_util": -1}},
			},
		},
		{name: "a line that never ends", text: strings.Repeat("x", maxSample+1), blind: true},
		{name: "a file without end", put: func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		}, blind: true},
		{name: "a pipe", put: func(path string) error { return unix.Mkfifo(path, 0o600) }, blind: true},
		{name: "a device", put: func(path string) error { return os.Symlink("/dev/zero", path) }, blind: true},
		{name: "a link to a secret", put: func(path string) error {
			return os.Symlink("/etc/passwd", path)
		}, blind: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := "m-" + strings.ReplaceAll(c.name, " ", "-")
			path := filepath.Join(addMeasuredMachine(t, p, id, at), session.SamplesFile)
			var err error
			if c.put != nil {
				err = c.put(path)
			} else {
				text := c.text
				for _, s := range c.samples {
					line, _ := json.Marshal(s)
					text += string(line) + "\n"
				}
				err = os.WriteFile(path, []byte(text), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			got, _, out := points(t, p, id, iv)
			if len(got) > c.most || (len(out.BlindSpots) > 0) != c.blind {
				t.Errorf("%d samples, %v", len(got), out.BlindSpots)
			}
		})
	}
}
