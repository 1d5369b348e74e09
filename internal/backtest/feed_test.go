package backtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// fact is one row of a trace in plain terms; times are microseconds.
type fact struct {
	resource, gpu string
	at, known     int64
	values        map[usage.Signal]float64
}

// facts are a trace kept the naive way: every row in a slice.
type facts []fact

// measurement is one value of a meter.
type measurement struct {
	gpu    string
	signal usage.Signal
	at     int64
	value  float64
}

func (f facts) csv() string {
	var b strings.Builder
	b.WriteString("resource,gpu,time,received")
	for _, s := range signals {
		b.WriteString("," + s.String())
	}
	for _, r := range f {
		fmt.Fprintf(&b, "\n%s,%s,%d.%06d,", r.resource, r.gpu, r.at/1e6, r.at%1e6)
		if r.known != r.at {
			fmt.Fprintf(&b, "%d.%06d", r.known/1e6, r.known%1e6)
		}
		for _, s := range signals {
			b.WriteByte(',')
			if v, ok := r.values[s]; ok {
				fmt.Fprintf(&b, "%v", v)
			}
		}
	}
	return b.String() + "\n"
}

func (f facts) account(t testingTB) *Account {
	t.Helper()
	a, err := ReadAccount(context.Background(), strings.NewReader(f.csv()), accountParams())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func accountParams() AccountParams {
	return AccountParams{
		Format: usage.Format{Name: "trace.csv", Step: time.Minute}, Tags: inventory.DefaultTagMapping(),
	}
}

func (f facts) of(resource string) facts {
	return slices.DeleteFunc(slices.Clone(f), func(r fact) bool { return r.resource != resource })
}

// carriers returns the GPU in whose rows each signal of the machine is read: where it
// was known first.
func (f facts) carriers() map[usage.Signal]string {
	out := map[usage.Signal]string{}
	for _, s := range signals {
		best, found := fact{}, false
		for _, r := range f {
			if _, ok := r.values[s]; ok &&
				(!found || r.known < best.known || r.known == best.known && r.gpu < best.gpu) {
				best, found = r, true
			}
		}
		out[s] = best.gpu
	}
	return out
}

// measured returns the samples of a resource known at a time, of times in [from, to).
func (f facts) measured(resource string, from, to, known int64) []measurement {
	f = f.of(resource)
	carriers := f.carriers()
	type key struct {
		gpu    string
		signal usage.Signal
		at     int64
	}
	got := map[key]float64{}
	for _, r := range f {
		if r.known > known || r.at < from || r.at >= to {
			continue
		}
		for s, v := range r.values {
			k := key{r.gpu, s, r.at}
			if !s.PerGPU() {
				if carriers[s] != r.gpu {
					continue
				}
				k.gpu = ""
			}
			if was, ok := got[k]; !ok || v > was {
				got[k] = v
			}
		}
	}
	var out []measurement
	for k, v := range got {
		out = append(out, measurement{k.gpu, k.signal, k.at, v})
	}
	return sorted(out)
}

func sorted(m []measurement) []measurement {
	slices.SortFunc(m, func(a, b measurement) int {
		return cmp.Or(cmp.Compare(a.gpu, b.gpu), cmp.Compare(a.signal, b.signal), cmp.Compare(a.at, b.at))
	})
	return m
}

// released follows a release row by row.
func (f facts) released(resource string, at int64, stalled bool) Released {
	const step = minute
	f = f.of(resource)
	carriers := f.carriers()
	byGPU := map[string]map[int64]map[usage.Signal]float64{}
	for _, r := range f {
		if byGPU[r.gpu] == nil {
			byGPU[r.gpu] = map[int64]map[usage.Signal]float64{}
		}
		row := byGPU[r.gpu][r.at]
		if row == nil {
			row = map[usage.Signal]float64{}
			byGPU[r.gpu][r.at] = row
		}
		for s, v := range r.values {
			if was, ok := row[s]; (!ok || v > was) && (s.PerGPU() || carriers[s] == r.gpu) {
				row[s] = v
			}
		}
	}
	decides := usage.ComputeSignals()
	host := true
	for _, r := range f {
		for _, s := range usage.ComputeSignals() {
			if _, ok := r.values[s]; ok && r.at <= at {
				host = false
			}
		}
	}
	if host {
		decides = append(slices.Clone(decides), usage.HostWorkSignals()...)
	}
	work, missing, covered := int64(math.MaxInt64), int64(math.MaxInt64), int64(-1)
	var first string
	for _, gpu := range slices.Sorted(maps.Keys(byGPU)) {
		rows := byGPU[gpu]
		newest, any := int64(0), false
		counters := map[usage.Signal]float64{}
		done := false
		for _, t := range slices.Sorted(maps.Keys(rows)) {
			row := rows[t]
			says, works, rises := false, false, false
			for s, v := range row {
				if slices.Contains(decides, s) {
					says = true
					works = works || v >= (usage.Activity{}).Floor(s, time.Minute)
				}
				if s.Counter() {
					was, ok := counters[s]
					rises = rises || ok && v > was
					counters[s] = v
				}
			}
			if t > at {
				if any && t-newest-step >= step/2 {
					missing, done = min(missing, max(at, newest+step)), true
					break
				}
				if stalled && rises || !stalled && works {
					work, done = min(work, t), true
					break
				}
			}
			if says {
				newest, any = t, true
			}
		}
		if any && !done {
			missing = min(missing, max(at, newest+step))
		}
		if covered < 0 {
			for t, row := range rows {
				for s := range row {
					if t <= at && slices.Contains(decides, s) {
						first, covered = gpu, 0
					}
				}
			}
		}
	}
	out := Released{End: instant(at + 1)}
	switch {
	case covered < 0:
		return out
	case work < math.MaxInt64 && work <= missing:
		out = Released{End: instant(work), ByWork: true}
	case missing < math.MaxInt64:
		out.End = instant(max(missing, at+1))
	}
	newest := int64(0)
	for t, row := range byGPU[first] {
		says := slices.ContainsFunc(decides, func(s usage.Signal) bool { _, ok := row[s]; return ok })
		switch {
		case !says:
		case t <= at:
			newest = max(newest, t)
		case t < out.End.UnixMicro():
			covered += step
		}
	}
	out.Sampled = span(covered + max(0, newest+step-at))
	return out
}

// traces draws traces with gaps, jitter, several GPUs, repeated rows and late ones.
func traces() *rapid.Generator[facts] {
	return rapid.Custom(func(t *rapid.T) facts {
		var out facts
		for i := range rapid.IntRange(1, 3).Draw(t, "resources") {
			name := fmt.Sprintf("r%d", i)
			rich, late, ragged := rapid.Bool().Draw(t, "rich"), rapid.Bool().Draw(t,
				"late"), rapid.Bool().Draw(t, "ragged")
			gpus := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"", "0", "1", "0:3"}), 1, 3,
				rapid.ID[string]).Draw(t,
				"gpus")
			for _, gpu := range gpus {
				begin := rapid.Int64Range(0, 20).Draw(t, "begin")
				for n := range rapid.Int64Range(1, 40).Draw(t, "rows") {
					if rapid.IntRange(0, 14).Draw(t, "gap") == 0 {
						begin += rapid.Int64Range(1, 5).Draw(t, "missing")
					}
					r := fact{resource: name, gpu: gpu, at: (begin + n) * minute, values: map[usage.Signal]float64{}}
					if ragged {
						r.at += rapid.Int64Range(-10, 10).Draw(t, "jitter") * 1e6
					}
					r.at = max(0, r.at)
					r.known = r.at
					if late && rapid.IntRange(0, 3).Draw(t, "is late") == 0 {
						r.known += rapid.SampledFrom([]int64{1, 30, 60, 90, 600, 1800}).Draw(t, "by") * 1e6
					}
					value := func(s usage.Signal, values ...float64) {
						r.values[s] = rapid.SampledFrom(values).Draw(t, s.String())
					}
					if !rich || rapid.IntRange(0, 5).Draw(t, "utilization") > 0 {
						value(usage.GPUUtil, 0, 0, 0, 0, 0, 0.3, 1.0/3, 1, 37.125, 100)
					}
					if rich && rapid.Bool().Draw(t, "host") {
						value(usage.CPUUtil, 0, 2, 2, 90)
						value(usage.NetBytes, 0, 1e3, 1e3, 1e12)
					}
					if rich && rapid.IntRange(0, 3).Draw(t, "memory") > 0 {
						value(usage.MemUsed, 0, 80e9, 80e9, 79_999_999_999)
					}
					if rich && rapid.IntRange(0, 3).Draw(t, "steps") == 0 {
						r.values[usage.Step] = float64(n / 8 * 100)
						value(usage.Checkpoints, 0, 1, 1, 1.7e9)
					}
					out = append(out, r)
					if rapid.IntRange(0, 9).Draw(t, "again") == 0 {
						again := r
						again.values = maps.Clone(r.values)
						for s := range again.values {
							again.values[s] = rapid.SampledFrom([]float64{0, 1, 50, again.values[s]}).Draw(t, "other")
						}
						if late {
							again.known += rapid.SampledFrom([]int64{0, 45, 900}).Draw(t, "again late") * 1e6
						}
						out = append(out, again)
					}
				}
			}
		}
		return rapid.Permutation(out).Draw(t, "order")
	})
}

// collected expands delivered samples.
func collected(h Heard) []measurement {
	var out []measurement
	for i := range h.Count {
		out = append(out, measurement{h.GPU, h.Signal, h.Start.UnixMicro() + int64(i)*minute, h.Value})
	}
	return out
}

// TestAccountKeepsEverything checks that an account returns every sample, as it was known at any
// time.
func TestAccountKeepsEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := traces().Draw(t, "trace")
		a := f.account(t)
		for range 5 {
			from := rapid.Int64Range(0, 70).Draw(t, "from") * minute
			to := from + rapid.Int64Range(0, 70).Draw(t, "length")*minute
			known := to + rapid.Int64Range(-5, 40).Draw(t, "known")*minute
			for i := range a.Len() {
				var got []measurement
				newest := map[measurement]int64{}
				a.Points(i, instant(from), instant(to), instant(known), func(h Heard) {
					meter := measurement{gpu: h.GPU, signal: h.Signal}
					for _, m := range collected(h) {
						if was, ok := newest[meter]; ok && m.at <= was {
							t.Fatalf("%v comes after one of %d", m, was)
						}
						newest[meter] = m.at
						got = append(got, m)
					}
				})
				want := f.measured(a.resources[i].name, from, to, known)
				if !slices.Equal(sorted(got), want) {
					t.Fatalf("%s from %d to %d known at %d: got\n%v\nwant\n%v",
						a.resources[i].name, from/minute, to/minute,
						known/minute, got, want)
				}
			}
		}
	})
}

// TestFeedEqualsNaive checks that a feed delivers exactly the samples known by then, with late rows
// applied and releases hidden; that it returns the time when more becomes known; and that a release
// lasts as long as it does row by row.
func TestFeedEqualsNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := traces().Draw(t, "trace")
		a := f.account(t)
		feed := a.Feed(nil)
		from := make([]int64, a.Len())
		heard := make([][]measurement, a.Len())
		now := int64(0)
		for {
			next, more := feed.NextTime()
			due := int64(math.MaxInt64)
			for i, r := range a.resources {
				for _, row := range f.of(r.name) {
					if row.known > now && row.at >= from[i] &&
						(!more || row.known < next.UnixMicro()) && len(row.values) > 0 {
						if !r.plain {
							t.Fatalf("at %d a row of %s at %d, known at %d, is not announced before %s", now,
								r.name, row.at, row.known,
								next)
						}
						due = min(due, row.known)
					}
				}
			}
			if !more {
				break
			}
			if rapid.Bool().Draw(t, "jump") {
				next = next.Add(time.Duration(rapid.IntRange(0, 900).Draw(t, "by")) * time.Second)
			}
			now = next.UnixMicro()
			late := map[int]bool{}
			feed.Advance(next, func(h Heard) {
				heard[h.Resource] = append(heard[h.Resource], collected(h)...)
				late[h.Resource] = late[h.Resource] || h.Late
			})
			for i := range late {
				if late[i] {
					heard[i] = nil
					feed.SamplesSince(i, time.Time{}, func(h Heard) {
						if h.Late {
							t.Fatalf("what is handed over in order is late: %+v", h)
						}
						heard[i] = append(heard[i], collected(h)...)
					})
				}
			}
			for i, r := range a.resources {
				got := slices.DeleteFunc(slices.Clone(heard[i]), func(m measurement) bool { return m.at > now })
				want := f.measured(r.name, max(from[i], 0), math.MaxInt64, now)
				if diff := gocmp.Diff(want, sorted(got), gocmp.AllowUnexported(measurement{})); diff != "" {
					t.Fatalf("%s at %d differs (-want +got):\n%s", r.name, now, diff)
				}
				there := from[i] <= now && slices.ContainsFunc(f, func(o fact) bool {
					return o.resource == r.name && o.known <= now
				})
				if (feed.Resource(i) != nil) != there {
					t.Fatalf("%s is there at %d: %v", r.name, now, !there)
				}
				if there && rapid.IntRange(0, 9).Draw(t, "release") == 0 {
					stalled := rapid.Bool().Draw(t, "stalled")
					want, got := f.released(r.name, now, stalled), feed.Release(i, stalled)
					if got != want || a.Released(i, next, stalled) != want {
						t.Fatalf("a release of %s at %d (stalled: %v) is %v and %v, want %v",
							r.name, now, stalled, got,
							a.Released(i, next, stalled), want)
					}
					from[i], heard[i] = want.End.UnixMicro(), nil
				}
			}
		}
	})
}
