package backtest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/backtest/learn"
	"github.com/curfew-dev/curfew/internal/money"
)

func replayed(t testingTB, text string, p Params) Report {
	t.Helper()
	r, err := Run(context.Background(), strings.NewReader(text), p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r Report) result(t testing.TB, name string) Result {
	t.Helper()
	i := slices.IndexFunc(r.Results, func(r Result) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("there is no result %s", name)
	}
	return r.Results[i]
}

// figures are the results of a rule, in minutes.
type figures struct {
	released, net      float64
	restarts, cutShort int64
}

func (r Result) figures() figures {
	minutes := func(h float64) float64 { return math.Round(h*60*1000) / 1000 }
	return figures{minutes(r.ReleasedHours), minutes(r.NetSavedHours), r.Restarts, r.Interrupted}
}

func TestBaselines(t *testing.T) {
	tests := []struct {
		name    string
		trace   []string
		restart time.Duration
		want    map[string]figures
	}{
		{"work ends the stretch: a restart", []string{"#..........#"}, 3 * time.Minute, map[string]figures{
			"fixed-1m": {9, 6, 1, 0}, "fixed-5m": {5, 2, 1, 0}, "fixed-15m": {}, "best-fixed": {10, 7, 1, 0},
			"oracle": {10, 7, 1, 0},
		}},
		{"the trace ends the stretch: none", []string{"#.........."}, 3 * time.Minute, map[string]figures{
			"fixed-1m": {9, 9, 0, 0}, "fixed-5m": {5, 5, 0, 0}, "best-fixed": {10, 10, 0, 0}, "oracle": {10, 10, 0, 0},
		}},
		{"a missing sample ends the stretch: none", []string{"..... .....#"}, 3 * time.Minute, map[string]figures{
			"fixed-1m": {8, 5, 1, 0}, "fixed-5m": {}, "best-fixed": {10, 7, 1, 0}, "oracle": {10, 7, 1, 0},
		}},
		{"a stretch as long as the wait is held", []string{".....#"}, time.Minute, map[string]figures{
			"fixed-5m": {}, "fixed-1m": {4, 3, 1, 0},
		}},
		{"work within the restart cost cuts short", []string{"#...#......#"}, 4 * time.Minute, map[string]figures{
			"fixed-1m": {7, -1, 2, 1}, "oracle": {6, 2, 1, 0}, "best-fixed": {9, 1, 2, 1},
		}},
		{"never busy", []string{"....", "...."}, time.Hour, map[string]figures{
			"oracle": {8, 8, 0, 0}, "best-fixed": {8, 8, 0, 0}, "fixed-1m": {6, 6, 0, 0},
		}},
		{"never idle", []string{"####"}, time.Hour, map[string]figures{
			"oracle": {}, "best-fixed": {}, "learned": {}, "fixed-1m": {}, "deadman-12h": {},
		}},
		{
			"the dead man's switch ends work too", []string{strings.Repeat("#", 725)},
			3 * time.Minute, map[string]figures{
				"deadman-12h": {0, -3, 1, 1},
			}},
		{"the dead man's switch runs again after work is back",
			[]string{
				strings.Repeat("#", 700) + strings.Repeat(".", 30) + strings.Repeat("#", 700) +
					strings.Repeat(".", 30),
			},
			3 * time.Minute, map[string]figures{"deadman-12h": {20, 17, 1, 0}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := replayed(t, csvOf(rowsOf(test.trace...)), params(test.restart))
			for name, want := range test.want {
				if got := r.result(t, name).figures(); got != want {
					t.Errorf("%s does %+v, want %+v", name, got, want)
				}
			}
		})
	}
}

func TestReport(t *testing.T) {
	p := params(3 * time.Minute)
	price := 60 * money.USD
	p.Price = &price
	r := replayed(t, csvOf(rowsOf("#..........# .")), p)
	got := r.result(t, "fixed-5m")
	two, five := 2./9, 300.
	want := Result{
		Name: "fixed-5m", ResourceHours: 13. / 60, IdleHours: 11. / 60, ReleasedHours: 5. / 60, Restarts: 1,
		RestartHours: 3. / 60, NetSavedHours: 2. / 60, NetSavedShare: 2. / 13, UnknownHours: 1. / 60,
		CostUSD: money.Known(13 * money.USD), SavedUSD: money.Known(2 * money.USD), WaitSeconds: &five,
	}
	if oracle := r.result(t, "oracle"); oracle.figures() != (figures{11, 8, 1, 0}) {
		t.Errorf("the oracle does %+v", oracle.figures())
	}
	two = 2. / 8
	want.OfForesight = &two
	if diff := cmp.Diff(want, got, sameDollars); diff != "" {
		t.Errorf("fixed-5m (-want +got):\n%s", diff)
	}
	names := []string{
		"fixed-1m", "fixed-5m", "fixed-15m", "fixed-60m", "deadman-12h", "best-fixed", "learned", "oracle",
	}
	var have []string
	for _, res := range r.Results {
		have = append(have, res.Name)
	}
	if !slices.Equal(have, names) {
		t.Errorf("results are %v, want %v", have, names)
	}
	if r.Trace.Samples != 13 || r.Trace.Resources != 1 || r.Trace.IdlePeriods != 2 ||
		r.Trace.PriceUSD != money.Known(60*money.USD) {
		t.Errorf("the trace is %+v", r.Trace)
	}
	if r.Waits[0].NetSavedHours != 8./60 || len(r.Learned) == 0 {
		t.Errorf("waits are %+v, learned is %+v", r.Waits, r.Learned)
	}
}

// TestUnpriced checks that without a price there is no cost, not a cost of zero.
func TestUnpriced(t *testing.T) {
	r := replayed(t, csvOf(rowsOf("#...#")), params(time.Hour))
	out, err := json.Marshal(r.result(t, "oracle"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"cost_usd":null`, `"saved_usd":null`, `"of_oracle":null`, `"net_saved_share":0`, `"cut_short":0`,
	} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("%s lacks %s", out, want)
		}
	}
}

// TestOrderOfRows replays one trace by resource, by time, compressed and shuffled.
func TestOrderOfRows(t *testing.T) {
	var rows []row
	for i, p := range day(12, 400, 7) {
		for _, r := range rowsOf(p) {
			r.resource, r.gpu = fmt.Sprintf("m%02d", i/2), fmt.Sprint(i%2)
			rows = append(rows, r)
		}
	}
	want := replayed(t, csvOf(rows), params(5*time.Minute))
	byTime := slices.Clone(rows)
	slices.SortStableFunc(byTime, func(a, b row) int { return int(a.at - b.at) })
	shuffled := slices.Clone(rows)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(rows), func(i, j int) {
		shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
	})
	reversed := slices.Clone(rows)
	slices.Reverse(reversed)
	for name, other := range map[string][]row{"by time": byTime, "shuffled": shuffled, "reversed": reversed} {
		got := replayed(t, csvOf(other), params(5*time.Minute))
		got.Trace.MedianStepSeconds = want.Trace.MedianStepSeconds // of neighboring rows
		if diff := cmp.Diff(want, got, sameDollars); diff != "" {
			t.Errorf("%s (-by resource +%s):\n%s", name, name, diff)
		}
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	fmt.Fprint(w, csvOf(rows))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, replayed(t, packed.String(), params(5*time.Minute)), sameDollars); diff != "" {
		t.Errorf("compressed (-plain +gzip):\n%s", diff)
	}
}

func TestWhatIsIdle(t *testing.T) {
	const trace = "resource,time,gpu_util\na,0,0\na,60,0.5\na,120,3\na,180,\na,240,0\n"
	tests := []struct {
		name          string
		below         float64
		idle, unknown float64 // minutes
	}{
		{"only nothing at all", 0, 2, 1},
		{"under one percent", 1, 3, 1},
		{"not at the line", 3, 3, 1},
		{"under the line", 3.1, 4, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := params(time.Minute)
			p.IdleBelow = test.below
			got := replayed(t, trace, p).result(t, "oracle")
			if got.IdleHours*60 != test.idle || math.Abs(got.UnknownHours*60-test.unknown) > 1e-9 {
				t.Errorf("idle %v min, unknown %v min; want %v and %v", got.IdleHours*60,
					got.UnknownHours*60, test.idle,
					test.unknown)
			}
		})
	}
}

// TestJitter checks that half a step late is a sample missing, and less is not.
func TestJitter(t *testing.T) {
	for late, want := range map[string]int64{"89.9": 1, "90": 2, "58": 1} {
		text := "resource,time,gpu_util\na,0,0\na,60,0\na,120,0\na,180,0\na," +
			fmt.Sprintf("%g", 180+mustFloat(late)) +
			",0\n"
		if got := replayed(t, text, params(time.Minute)).Trace.IdlePeriods; got != want {
			t.Errorf("a sample %s s after the one before: %d stretches, want %d", late, got, want)
		}
	}
	// Clocks that drift by a second a minute lose nothing.
	var b strings.Builder
	b.WriteString("resource,time,gpu_util\n")
	for i := range 500 {
		fmt.Fprintf(&b, "a,%d,0\n", i*61)
	}
	r := replayed(t, b.String(), params(time.Minute))
	if got := r.result(t, "oracle"); r.Trace.IdlePeriods != 1 || got.ReleasedHours != 500./60 ||
		math.Abs(got.UnknownHours*3600-499) > 61 {
		t.Errorf("a drifting clock: %d stretches, %v min released, %v s unknown",
			r.Trace.IdlePeriods, got.ReleasedHours*60,
			got.UnknownHours*3600)
	}
}

func mustFloat(s string) float64 {
	var f float64
	if _, err := fmt.Sscan(s, &f); err != nil {
		panic(err)
	}
	return f
}

func TestRunErrors(t *testing.T) {
	trace := csvOf(rowsOf("#..#"))
	with := func(change func(*Params)) Params {
		p := params(time.Minute)
		change(&p)
		return p
	}
	negative := -money.USD
	tests := []struct {
		name, trace string
		p           Params
		want        string
	}{
		{
			"no step", trace, with(func(p *Params) { p.Format.Step = 0 }),
			"replay trace.csv: a step of 0s between samples",
		},
		{
			"a step of two samples", trace, with(func(p *Params) { p.Format.Step = 2 * time.Minute }),
			"samples are 1m0s apart",
		},
		{"a negative restart cost", trace, with(func(p *Params) { p.RestartCost = -1 }), "a restart cost of -1ns"},
		{"idle below what cannot be", trace, with(func(p *Params) { p.IdleBelow = 101 }), "idle below 101%"},
		{"idle below no number", trace, with(func(p *Params) { p.IdleBelow = math.NaN() }), "idle below NaN%"},
		{
			"a negative price", trace, with(func(p *Params) { p.Price = &negative }),
			"a price of -1.00 an hour is negative",
		},
		{"nothing measured", "resource,time,power_w\na,0,7\n", params(0), "no sample of gpu_util"},
		{"no rows", "resource,time,gpu_util\n", params(0), "no sample of gpu_util"},
		{"not a trace", "resource,time,gpu_util\na,0,many\n", params(0), "trace.csv:2:3: gpu_util"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Run(context.Background(), strings.NewReader(test.trace), test.p)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q in it", err, test.want)
			}
		})
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("enough")
	cancel(stop)
	if _, err := Run(ctx, strings.NewReader(trace), params(0)); !errors.Is(err, stop) {
		t.Errorf("canceled: %v", err)
	}
	if _, err := Run(context.Background(), strings.NewReader("resource,time,gpu_util\n"), params(0)); !errors.Is(err,
		ErrNothingMeasured) {
		t.Errorf("an empty trace: %v", err)
	}
}

// TestDeciders replays deciders alongside the baselines.
func TestDeciders(t *testing.T) {
	p := params(2 * time.Minute)
	var fleet learn.Fleet
	p.Deciders = []learn.Named{
		{Name: "mine", New: func(f learn.Fleet) learn.Decider { fleet = f; return patient{90 * time.Second} }},
	}
	p.Baselines = false
	p.Only = func(resource string) bool { return resource != "r001" }
	r := replayed(t, csvOf(rowsOf("#.....#", "......", "#..#")), p)
	if len(r.Results) != 1 || r.Results[0].figures() != (figures{4, 0, 2, 1}) {
		t.Errorf("results are %+v", r.Results)
	}
	if len(fleet.Resources) != 2 || fleet.Resources[1].Name != "r002" || fleet.RestartCost != 2*time.Minute ||
		fleet.Step != time.Minute {
		t.Errorf("the fleet is %+v", fleet)
	}
}
