package capacity

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/plan"
	"github.com/curfew-dev/curfew/test/data"
)

func TestReadArrivals(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		times      []float64
		sizes      []int
	}{
		{"seconds", "seconds\n5\n5\n7.25\n", []float64{0, 0, 2.25}, nil},
		{
			"as published", "t_s,context_tokens,generated_tokens\n0.000,4808,10\n0.052,3180,8\n", []float64{0, 0.052},
			nil,
		},
		{"sizes", "seconds,size\n0,3\n1,1\n", []float64{0, 1}, []int{3, 1}},
		{"time", "time\n2026-01-01T00:00:00Z\n2026-01-01T01:00:01.5+01:00\n", []float64{0, 1.5}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := ReadArrivals("a.csv", strings.NewReader(tc.text))
			if err != nil || !slices.Equal(a.Times, tc.times) || !slices.Equal(a.Sizes, tc.sizes) {
				t.Errorf("got %+v, %v; want %v sized %v", a, err, tc.times, tc.sizes)
			}
		})
	}
}

func TestArrivalsRefused(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"empty", "", "a.csv: empty file"},
		{"no rows", "seconds\n", "a.csv: no arrivals"},
		{
			"no column of time", "when\n1\n",
			"a.csv:2: the time of the request is missing: add a column time (RFC 3339) or seconds, without empty fields",
		},
		{
			"empty field", "size,seconds\n1,1\n1,\n",
			"a.csv:3:3: the time of the request is missing: add a column time (RFC 3339) or seconds, without empty fields",
		},
		{
			"two times", "seconds,time\n1,2026-01-01T00:00:00Z\n",
			"a.csv:2:1: both time and seconds give the time of the request: keep one",
		},
		{"another time", "seconds,t_s\n1,\n,2\n", "a.csv:3:1: seconds is empty, but earlier rows have it"},
		{"no number", "seconds\nsoon\n", `a.csv:2:1: seconds "soon" is not a number`},
		{"not a number", "seconds\nNaN\n", `a.csv:2:1: seconds "NaN" is not a number`},
		{"negative", "seconds\n-1\n", "a.csv:2:1: seconds is -1: expected 0 to 9e+09"},
		{
			"no stamp", "time\n2026-01-01 00:00\n",
			`a.csv:2:1: time "2026-01-01 00:00" is not RFC 3339, such as 2006-01-02T15:04:05.999Z`,
		},
		{
			"centuries", "time\n0001-01-01T00:00:00Z\n2026-01-01T00:00:00Z\n",
			`a.csv:3:1: time "2026-01-01T00:00:00Z" is centuries after the first`,
		},
		{"disorder", "seconds\n2\n1\n", "a.csv:3:1: seconds is before the row above: sort the arrivals by time"},
		{"no item", "seconds,size\n1,0\n", "a.csv:2:3: size is 0: expected 1 to 1000000"},
		{"half an item", "seconds,size\n1,0.5\n", `a.csv:2:3: size "0.5" is not a whole number`},
		{"size missing", "seconds,size\n1,1\n2,\n", `a.csv:3:3: size "" is not a whole number`},
		{"size late", "seconds,size\n1,\n2,1\n", "a.csv:3:3: earlier rows have no size"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ReadArrivals("a.csv", strings.NewReader(tc.text))
			var file *plan.FileError
			if !errors.As(err, &file) || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		text string
		want Profile
		ok   bool
	}{
		{"a=1ms,b=10ms", published, true}, {" b=10ms, a=1ms ", published, true},
		{"b=30ms", Profile{Base: 30 * time.Millisecond}, true},
		{"", Profile{}, false}, {"a=1ms,a=2ms", Profile{}, false}, {"c=1ms", Profile{}, false},
		{"a=1", Profile{}, false},
		{"a=-1ms", Profile{}, false}, {"a=2h", Profile{}, false}, {"a=0s,b=0s", Profile{}, false},
		{"a", Profile{}, false},
	} {
		if got, err := ParseProfile(tc.text); got != tc.want || (err == nil) != tc.ok {
			t.Errorf("profile %q: %+v, %v", tc.text, got, err)
		}
	}
	for _, tc := range []struct {
		text string
		want float64
		ok   bool
	}{
		{"20%", 0.2, true}, {"0.2", 0.2, true}, {"0", 0, true}, {"100%", 0, false},
		{"20", 0, false}, {"-1%", 0, false},
		{"NaN", 0, false}, {"", 0, false},
	} {
		if got, err := ParseHeadroom(tc.text); got != tc.want || (err == nil) != tc.ok {
			t.Errorf("headroom %q: %v, %v", tc.text, got, err)
		}
	}
}

// trace reads a recorded service of the Azure LLM inference trace of 2023.
func trace(t testing.TB, name string) *Arrivals {
	t.Helper()
	f, err := os.Open(data.Path(t, "azure-llm-2023/"+name+".csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	a, err := ReadArrivals(name, text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Recorded arrivals against the formula. The conversations come evenly enough for it; the
// code service is bursty, and Poisson arrivals of its rate promise a fraction of its
// latency. With newly drawn gaps the formula holds again: it is the bursts, and not
// the replay, that make the difference.
func TestReplayAgainstFormula(t *testing.T) {
	profile := Profile{10 * time.Millisecond, 200 * time.Millisecond}
	even := func(a *Arrivals) *Arrivals {
		random := rand.New(rand.NewPCG(1, 2))
		out, now := &Arrivals{}, 0.0
		for range a.Times {
			out.Times = append(out.Times, now)
			now += random.ExpFloat64() / a.Rate()
		}
		return out
	}
	for _, tc := range []struct {
		name      string
		a         *Arrivals
		count     int
		low, high float64
	}{
		{"conv", trace(t, "conv"), 12340, 0.95, 1.1},
		{"code", trace(t, "code"), 6521, 5, 50},
		{"code without bursts", even(trace(t, "code")), 6521, 0.95, 1.05},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := Plan(Params{Arrivals: tc.a, Profile: profile, MaxBatch: 8, Replicas: 1})
			if err != nil {
				t.Fatal(err)
			}
			if r.Method != ByReplay || r.Requests != tc.count || r.Poisson.Method != ByChain ||
				r.Poisson.P99Ratio < tc.low ||
				r.Poisson.P99Ratio > tc.high {
				t.Errorf("%s of %d requests: p99 %v ms, Poisson %+v; want %d and %v to %v times that", r.Method,
					r.Requests,
					*r.P99LatencyMS, *r.Poisson, tc.count, tc.low, tc.high)
			}
			t.Logf("p99%.0f ms replayed, %.0f ms by the formula; mean %.0f and %.0f ms", *r.P99LatencyMS,
				r.Poisson.P99LatencyMS, *r.MeanLatencyMS, r.Poisson.MeanLatencyMS)
		})
	}
}

// Planned for by the formula the bursts miss their objective; planned for by the replay
// they keep it.
func TestReplayPlansForBursts(t *testing.T) {
	p := Params{
		Arrivals: trace(t, "code"), Profile: Profile{10 * time.Millisecond, 200 * time.Millisecond}, MaxBatch: 8,
		P99: time.Second,
	}
	replayed, err := Plan(p)
	if err != nil {
		t.Fatal(err)
	}
	p.QPS, p.Arrivals = p.Arrivals.Rate(), nil
	formula, err := Plan(p)
	if err != nil {
		t.Fatal(err)
	}
	if !*replayed.Met || formula.Replicas >= replayed.Replicas {
		t.Errorf("%d replicas by replay, %d by the formula", replayed.Replicas, formula.Replicas)
	}
}

// A rate given changes the time of the arrivals; twice the sizes and half the time an
// item are the same work.
func TestReplayScales(t *testing.T) {
	a := &Arrivals{}
	random := rand.New(rand.NewPCG(3, 4))
	for now := 0.0; len(a.Times) < 2000; now += random.ExpFloat64() {
		a.Times = append(a.Times, now)
	}
	base := Params{Arrivals: a, QPS: 100, Profile: published, Replicas: 1}
	want, err := Plan(base)
	if err != nil {
		t.Fatal(err)
	}
	twice := base
	twice.Arrivals = &Arrivals{Times: make([]float64, len(a.Times)), Sizes: slices.Repeat([]int{2}, len(a.Times))}
	for i, at := range a.Times {
		twice.Arrivals.Times[i] = 7 + 3*at
	}
	twice.Profile.PerItem /= 2
	got, err := Plan(twice)
	if err != nil {
		t.Fatal(err)
	}
	if want.QPS != 100 || !near(*got.P99LatencyMS, *want.P99LatencyMS, 1e-6) ||
		!near(*got.MeanBatch, 2**want.MeanBatch, 1e-6) || !near(got.Load, want.Load, 1e-9) {
		t.Errorf("got a p99 of %v ms, batches of %v, load %v; want %v, twice %v, %v",
			*got.P99LatencyMS, *got.MeanBatch,
			got.Load, *want.P99LatencyMS, *want.MeanBatch, want.Load)
	}
	if got.Poisson == nil || !near(got.Poisson.P99LatencyMS, want.Poisson.P99LatencyMS, 0.05) {
		t.Errorf("Poisson arrivals with sizes: %+v, want about %+v", got.Poisson, want.Poisson)
	}
}

func FuzzReadArrivals(f *testing.F) {
	for _, s := range []string{
		"seconds\n1\n2\n", "t_s,x\n0.1,a\n", "seconds,size\n1,2\n",
		"time\n2026-01-01T00:00:00Z\n", "", "time\n\n", "\"",
		"seconds,seconds\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ReadArrivals("a.csv", strings.NewReader(s))
		if err != nil {
			if file := (*plan.FileError)(nil); !errors.As(err, &file) {
				t.Fatalf("%v is not a *FileError", err)
			}
			return
		}
		if len(a.Times) == 0 || a.Times[0] != 0 || !slices.IsSorted(a.Times) || a.Sizes != nil &&
			len(a.Sizes) != len(a.Times) {
			t.Fatalf("%q passed as %+v", s, a)
		}
		// What was read is read again the same.
		var b strings.Builder
		b.WriteString("seconds,size\n")
		for i, at := range a.Times {
			size := ""
			if a.Sizes != nil {
				size = strconv.Itoa(a.Sizes[i])
			}
			fmt.Fprintf(&b, "%v,%s\n", at, size)
		}
		again, err := ReadArrivals("b.csv", strings.NewReader(b.String()))
		if err != nil || !slices.Equal(again.Times, a.Times) || !slices.Equal(again.Sizes, a.Sizes) {
			t.Fatalf("%q is read as %+v and then as %+v, %v", s, a, again, err)
		}
	})
}

func FuzzParseProfile(f *testing.F) {
	for _, s := range []string{"a=1ms,b=10ms", "b=1s", "", "a=1ms,a=1ms", "a=1e9h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParseProfile(s)
		if err == nil && (p.PerItem < 0 || p.Base < 0 || p.PerItem > time.Hour ||
			p.Base > time.Hour || p.Batch(1) <= 0) {
			t.Fatalf("%q passed as %+v", s, p)
		}
		if h, err := ParseHeadroom(s); err == nil && !(h >= 0 && h < 1) {
			t.Fatalf("%q is a headroom of %v", s, h)
		}
	})
}

// Ten times the hour of the recorded conversations.
func BenchmarkReadArrivals(b *testing.B) {
	var text bytes.Buffer
	text.WriteString("t_s,context_tokens,generated_tokens\n")
	for i := range 200_000 {
		fmt.Fprintf(&text, "%.3f,%d,%d\n", float64(i)*0.17, 100+i%4000, i%300)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		if _, err := ReadArrivals("a.csv", bytes.NewReader(text.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPlanReplay(b *testing.B) {
	random := rand.New(rand.NewPCG(5, 6))
	a := &Arrivals{}
	for now := 0.0; len(a.Times) < 200_000; now += random.ExpFloat64() * random.ExpFloat64() / 6 {
		a.Times = append(a.Times, now)
	}
	for b.Loop() {
		if _, err := Plan(Params{
			Arrivals: a, Profile: Profile{10 * time.Millisecond, 200 * time.Millisecond},
			MaxBatch: 8, P99: time.Second,
		}); err != nil {
			b.Fatal(err)
		}
	}
}
