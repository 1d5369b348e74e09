package backtest

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
)

// dutyFixture is a machine with its usage at a time, as package duty records it.
type dutyFixture struct {
	Name       string
	At         time.Time
	Step       time.Duration
	Thresholds duty.Thresholds
	State      duty.State
	Lasting    time.Duration
	Blurred    bool
	Trace      string
}

func dutyFixtures(t testing.TB) []dutyFixture {
	t.Helper()
	f, err := os.Open("../duty/testdata/fixtures.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var out []dutyFixture
	if err := json.NewDecoder(r).Decode(&out); err != nil || len(out) < 100 {
		t.Fatal(len(out), err)
	}
	for i := range out {
		header, rows, _ := strings.Cut(out[i].Trace, "\n")
		if !strings.Contains(header, "gpu_util") { // baselines need a machine that has it
			rows = strings.ReplaceAll(rows, "\n", ",\n")
			other := strings.Split(rows[:strings.IndexByte(rows, '\n')], ",")[1]
			out[i].Trace = header + ",gpu_util\n" + rows + "z," + other + strings.Repeat(",",
				strings.Count(header, ",")) +
				"50\n"
		}
	}
	return out
}

// TestDutyFixturesReplayed replays every fixture of verdicts at a cadence and at every
// sample, against processes and looks.
func TestDutyFixturesReplayed(t *testing.T) {
	acts := policies(t, `  - name: p
    when: duty.state in ["idle", "held", "stalled"] && duty.lasting >= duration("10m")
    then: [{warn: {grace: 4m}}, {do: stop}]
`, `  - name: q
    when: duty.state != "busy" && duty.coverage > 0.8
    then: [{do: notify}]
`)
	for _, f := range dutyFixtures(t) {
		t.Run(f.Name, func(t *testing.T) {
			p := params(0)
			p.Format.Step, p.Thresholds, p.Baselines = f.Step, f.Thresholds, false
			for _, pol := range acts.Policies {
				p.Policies = &policy.Set{Policies: []*policy.Policy{pol}}
				p.Every = 0
				h := everyAnswer(t, f.Trace, p, f.At.Add(-time.Hour), f.At.Add(-7*time.Minute),
					f.At.Add(-time.Nanosecond))
				p.Every, p.MaxRoundGap = 7*f.Step, time.Hour
				sameAsProcesses(t, f.Trace, p)
				if pol.Name == "p" || f.Blurred {
					continue
				}
				// A round over the trace finds the expected verdict of the fixture.
				r, err := round.New(lookAt(t, h.account, pol, f.At, nil, p).Setting).Round(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				v := r.Facts[0].Duty
				if v.State != f.State || f.Lasting > 0 && v.Duration != f.Lasting {
					t.Errorf("a look finds it %s for %s (%s), want %s for %s", v.State, v.Duration,
						v.Why, f.State, f.Lasting)
				}
			}
		})
	}
}
