package duty

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/usage"
)

// liveMachine is a machine with arbitrary habits, minute by minute, of which samples can be
// left out.
type liveMachine struct {
	gpus, minutes int
	launched      time.Time
	series        map[meterKey][]float64 // negative is missing
}

type meterKey struct {
	gpu    string
	signal usage.Signal
}

func drawLive(t *rapid.T) liveMachine {
	l := liveMachine{
		gpus: rapid.IntRange(0, 3).Draw(t, "gpus"), minutes: rapid.IntRange(1, 90).Draw(t, "minutes"),
		series: map[meterKey][]float64{},
	}
	if rapid.IntRange(0, 9).Draw(t, "young") == 0 {
		l.launched = now.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "age")) * time.Minute)
	}
	habit := func(gpu string, s usage.Signal, often bool, values ...float64) {
		if !often && rapid.Bool().Draw(t, s.String()+" is not measured") {
			return
		}
		list := make([]float64, l.minutes)
		value := rapid.SampledFrom(values).Draw(t, s.String())
		change := rapid.IntRange(0, l.minutes).Draw(t, s.String()+" changes at")
		for i := range list {
			if i == change {
				value = rapid.SampledFrom(values).Draw(t, s.String()+" then")
			}
			list[i] = value
		}
		l.series[meterKey{gpu, s}] = list
	}
	for i := range l.gpus {
		name := fmt.Sprint(i)
		habit(name, usage.GPUUtil, true, 0, 0, 0.4, 50, 100)
		habit(name, usage.SMActive, false, 0, 0, 0.5)
		habit(name, usage.MemUsed, false, 0, 0, 60*gib)
		habit(name, usage.MemTotal, true, 80*gib)
		habit(name, usage.Processes, false, 0, 0, 1)
	}
	habit("", usage.CPUUtil, false, 1, 1, 8, 60)
	habit("", usage.NetBytes, false, 1e4, 1e4, 60*4e5, 60*40e6)
	habit("", usage.DiskBytes, false, 1e4, 1e4, 60*4e6, 60*40e6)
	habit("", usage.Sessions, false, 0, 0, 1)
	habit("", usage.Kernels, false, 0, 0, 1)
	habit("", usage.Step, false, 0, 5)
	return l
}

// lose takes samples away at random, those of one signal or the newest ones.
func (l liveMachine) lose(t *rapid.T) liveMachine {
	out := l
	out.series = map[meterKey][]float64{}
	how := rapid.SampledFrom([]string{"some", "the newest", "a signal"}).Draw(t, "lost")
	share := rapid.SampledFrom([]int{1, 5, 30}).Draw(t, "percent")
	for _, key := range l.keys() {
		list := slices.Clone(l.series[key])
		newest := rapid.IntRange(0, 4).Draw(t, "newest")
		one := how == "a signal" && rapid.IntRange(0, 4).Draw(t, "this one") == 0
		for i := range list {
			if (how == "some" && rapid.IntRange(0, 99).Draw(t, "p") < share) ||
				(how == "the newest" && i >= len(list)-newest) || one {
				list[i] = -1
			}
		}
		out.series[key] = list
	}
	return out
}

func (l liveMachine) keys() []meterKey {
	keys := make([]meterKey, 0, len(l.series))
	for k := range l.series {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b meterKey) int {
		return slices.Compare([]string{a.gpu, a.signal.String()}, []string{b.gpu, b.signal.String()})
	})
	return keys
}

func (l liveMachine) machine() *machine {
	m := minutes(l.minutes)
	m.w.Launched = l.launched
	for _, k := range l.keys() {
		m.series(k.gpu, k.signal, func(i int) float64 { return l.series[k][i] })
	}
	return m
}

// trailing returns for how many minutes up to its newest sample a signal has been under a line
// without a missing sample, and how many are missing after it; ok is false if it was never
// measured.
func (l liveMachine) trailing(k meterKey, line float64) (quiet, missing int, ok bool) {
	list := l.series[k]
	i := len(list) - 1
	for ; i >= 0 && list[i] < 0; i-- {
		missing++
	}
	if i < 0 {
		return 0, missing, false
	}
	for ; i >= 0 && list[i] >= 0 && list[i] < line; i-- {
		quiet++
	}
	return quiet, missing, true
}

// TestIdleMatchesSamples compares what Now calls idle, held or starved with every sample: every GPU
// was measured, its newest sample is fresh and shows no work, the state has lasted no longer than
// any of them has rested without a gap, and for idle all that was measured of the host rests as
// long.
func TestIdleMatchesSamples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLive(t)
		if rapid.Bool().Draw(t, "with losses") {
			l = l.lose(t)
		}
		m := l.machine()
		v := m.verdict(t, l.gpus, now, Thresholds{})
		consistent(t, v, m.w)
		if v.State != Idle && v.State != Held && v.State != Starved {
			return
		}
		least := l.minutes
		must := func(k meterKey, line float64) {
			quiet, missing, ok := l.trailing(k, line)
			if !ok {
				return
			}
			if missing >= 3 || quiet == 0 { // the newest sample is a step older than what is missing after it
				t.Fatalf("%s (%s) while %v was quiet for %d minutes and is missing for %d", v.State,
					v.Why, k, quiet, missing)
			}
			least = min(least, quiet)
		}
		for i := range l.gpus {
			gpu := fmt.Sprint(i)
			_, _, util := l.trailing(meterKey{gpu, usage.GPUUtil}, 1)
			_, _, sm := l.trailing(meterKey{gpu, usage.SMActive}, 0.01)
			if !util && !sm {
				t.Fatalf("%s (%s) without measurements of GPU %s", v.State, v.Why, gpu)
			}
			if _, missing, _ := l.trailing(meterKey{gpu, usage.GPUUtil}, 1); missing < 3 {
				must(meterKey{gpu, usage.GPUUtil}, 1)
			}
			if v.State == Idle {
				must(meterKey{gpu, usage.MemUsed}, 4*gib)
				must(meterKey{gpu, usage.Processes}, 1)
			}
		}
		if v.State != Starved {
			must(meterKey{"", usage.NetBytes}, 60*1e6)
			must(meterKey{"", usage.DiskBytes}, 60*1e7)
		}
		if v.State == Idle {
			must(meterKey{"", usage.NetBytes}, 60*1e5)
			must(meterKey{"", usage.DiskBytes}, 60*1e6)
			must(meterKey{"", usage.CPUUtil}, 5)
			must(meterKey{"", usage.Sessions}, 1)
			must(meterKey{"", usage.Kernels}, 1)
		}
		if v.Duration > time.Duration(least)*time.Minute {
			t.Fatalf("%s lasts %s, no longer than %d minutes are seen", v.State, v.Duration, least)
		}
	})
}

// TestVerdictHoldsUntilItExpires: without newer samples the state stays until it
// expires and lasts min(then, Until) - Since; after that it is none of rest.
func TestVerdictHoldsUntilItExpires(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLive(t)
		if rapid.Bool().Draw(t, "with losses") {
			l = l.lose(t)
		}
		m := l.machine()
		v := m.verdict(t, l.gpus, now, Thresholds{})
		if v.State == Unknown {
			return
		}
		then := now.Add(time.Duration(rapid.Int64Range(0, int64(v.Expires.Sub(now))).Draw(t, "after")))
		again := m.verdict(t, l.gpus, then, Thresholds{})
		lasting := time.Duration(0)
		if !v.Since.IsZero() {
			lasting = max(0, min(then.Sub(v.Since), v.Until.Sub(v.Since)))
		}
		// Progress that pauses becomes a stall without any newer sample, and what made a
		// meter suspect in the time of warming up may become too old.
		changes := (v.State == Busy && again.State == Stalled) || (v.State == Warming && again.State == Busy)
		if !changes && (again.State != v.State || again.Duration != lasting) {
			t.Fatalf("%s (%s) until %s; %s later it is %s (%s) for %s, want %s", v.State, v.Why,
				v.Expires, then.Sub(now),
				again.State, again.Why, again.Duration, lasting)
		}
		after := m.verdict(t, l.gpus, v.Expires.Add(1), Thresholds{})
		if _, second := l.series[meterKey{"0", usage.SMActive}]; v.State == Warming || second || l.gpus > 1 {
			return // rest is vouched for by another meter from then on
		}
		if after.State == Idle || (v.State == Idle && after.State != Unknown) {
			t.Fatalf("%s (%s) expired and became %s (%s)", v.State, v.Why, after.State, after.Why)
		}
	})
}

// TestGapShortensRest checks that a sample that is missing within the time of rest of a machine
// leaves only the time after it, or nothing.
func TestGapShortensRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLive(t)
		v := l.machine().verdict(t, l.gpus, now, Thresholds{})
		if l.gpus == 0 || (v.State != Idle && v.State != Held) || v.Duration < time.Minute {
			return
		}
		back := rapid.IntRange(1, int(v.Duration/time.Minute)).Draw(t, "minutes ago")
		for _, s := range []usage.Signal{usage.GPUUtil, usage.SMActive} {
			if list := l.series[meterKey{"0", s}]; len(list) > 0 {
				list[len(list)-back] = -1
			}
		}
		after := l.machine().verdict(t, l.gpus, now, Thresholds{})
		rests := after.State == Idle || after.State == Held || after.State == Starved
		if rests && (after.Duration >= v.Duration ||
			(back > 1 && after.Duration > time.Duration(back-1)*time.Minute)) {
			t.Fatalf("%s for %s; without the sample %d minutes ago %s for %s", v.State, v.Duration, back, after.State,
				after.Duration)
		}
	})
}

// TestMoreActivityIsNeverIdle: more computation, memory, traffic or people never make a
// machine idle that was not, nor idle for longer.
func TestMoreActivityIsNeverIdle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLive(t)
		if len(l.series) == 0 {
			return
		}
		before := l.machine().verdict(t, l.gpus, now, Thresholds{})
		key := rapid.SampledFrom(l.keys()).Draw(t, "signal")
		if key.signal == usage.MemTotal || key.signal == usage.Step {
			return
		}
		i := rapid.IntRange(0, l.minutes-1).Draw(t, "minute")
		list := l.series[key]
		list[i] = max(list[i], 1) * (1 + rapid.Float64Range(0, 100).Draw(t, "more"))
		after := l.machine().verdict(t, l.gpus, now, Thresholds{})
		if after.State == Idle && (before.State != Idle || after.Duration > before.Duration) {
			t.Fatalf("%s (%s) became idle for %s by more %v", before.State, before.Why, after.Duration, key)
		}
	})
}

func TestEvidenceOfNow(t *testing.T) {
	m := minutes(120).gpu("0", 0.4, 2).gpu("1", 0.2, 3).quiet().flat("1", usage.SMActive,
		0.002).flat("", usage.Kernels,
		0)
	m.series("0", usage.Power, changeAt(60, 90, 60))
	v := m.verdict(t, 2, now, Thresholds{})
	want := map[string]usage.Evidence{
		"gpus_measured":            {Value: "2 of 2", Coverage: usage.NoCoverage},
		"gpu_util_max_pct":         {Value: "0.4", Window: 2 * time.Hour, Coverage: 1},
		"sm_active_max":            {Value: "0.002", Window: 2 * time.Hour, Coverage: 1},
		"power_max_w":              {Value: "90", Window: 2 * time.Hour, Coverage: 1},
		"gpu_mem_used_newest_pct":  {Value: "3.8", Window: time.Minute, Coverage: 1},
		"cpu_util_max_pct":         {Value: "1", Window: 2 * time.Hour, Coverage: 1},
		"net_bytes_per_second_max": {Value: "2000", Window: 2 * time.Hour, Coverage: 1},
		"sessions_max":             {Value: "0", Window: 2 * time.Hour, Coverage: 1},
		"kernels_max":              {Value: "0", Window: 2 * time.Hour, Coverage: 1},
	}
	for _, e := range v.Evidence {
		w, ok := want[e.Signal]
		w.Signal, w.Source = e.Signal, "agent"
		if delete(want, e.Signal); !ok || e != w {
			t.Errorf("evidence is %+v, want %+v", e, w)
		}
	}
	if len(want) > 0 || v.State != Idle {
		t.Errorf("%s (%s), and no evidence of %v", v.State, v.Why, want)
	}
	if len(v.GPUs) != 2 || v.GPUs[1].Name != "1" || v.GPUs[1].State != Idle || v.GPUs[1].Duration != 2*time.Hour ||
		v.GPUs[1].Coverage != 1 {
		t.Errorf("verdicts of its GPUs are %+v", v.GPUs)
	}
	for _, e := range minutes(5).flat("0", usage.GPUUtil, 60).verdict(t, 1, now, Thresholds{}).Evidence {
		if e.Signal == "gpu_util_max_pct" && (e.Value != "60" || e.Window != time.Minute) {
			t.Errorf("evidence of work is %+v, want the newest sample", e)
		}
		if (e.Signal == "cpu_util_max_pct" || e.Signal == "net_bytes_per_second_max") &&
			(e.Value != notMeasured || e.Coverage != 0) {
			t.Errorf("evidence of unmeasured signals is %+v", e)
		}
	}
}

func BenchmarkJudge(b *testing.B) {
	m := days(14).gpus(8, 0.4, 60).host(1, 1)
	b.ReportAllocs()
	for b.Loop() {
		if v := Judge(m.w, 8, now, Thresholds{}); v.State != Held {
			b.Fatal(v.State)
		}
	}
}
