package duty

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// TestProgressSurvivesRestart checks that a process that restores the record of up to an hour ago,
// and reads the samples of the look-back again, has the record of one that read everything, and
// that both have the last new highest step of the run.
func TestProgressSurvivesRestart(t *testing.T) {
	start := time.Date(2026, 11, 2, 9, 0, 0, 0, time.UTC)
	source := usage.SourceInfo{Source: "test", Step: time.Minute}
	machine := Machine{GPUs: inventory.Known(1), Launched: start}
	rapid.Check(t, func(t *rapid.T) {
		type sample struct{ util, step float64 }
		var samples []sample
		for len(samples) < 20*60 {
			n := rapid.IntRange(5, 180).Draw(t, "minutes")
			s := sample{rapid.SampledFrom([]float64{95, 95, 95, 0}).Draw(t, "utilization"),
				float64(rapid.IntRange(0, 6).Draw(t, "step"))}
			for range n {
				samples = append(samples, s)
			}
		}
		restart := rapid.IntRange(13*60, len(samples)-1).Draw(t, "restart")
		kept := restart - rapid.IntRange(0, 59).Draw(t, "age of the record")
		feed := func(k *Tracker, i int) {
			at := start.Add(time.Duration(i) * time.Minute)
			k.AddRun(source, "", usage.Step, at, 1, samples[i].step)
			k.AddRun(source, "0", usage.GPUUtil, at, 1, samples[i].util)
			k.AddRun(source, "0", usage.MemUsed, at, 1, samples[i].util*1e8)
			k.AddRun(source, "0", usage.MemTotal, at, 1, 24e9)
		}
		judge := func(k *Tracker, i int) {
			now := start.Add(time.Duration(i) * time.Minute)
			k.UpdateProgress(now, k.Verdict(now, machine), machine)
		}
		whole := NewTracker(Thresholds{}, usage.Activity{}, 0)
		var record Progress
		for i := range restart + 1 {
			feed(whole, i)
			judge(whole, i)
			if i == kept {
				record = whole.Progress()
			}
		}
		if record.From.IsZero() || !whole.Progress().From.Equal(record.From) {
			t.Skip("the machine rested meanwhile, and no record of another run is kept")
		}
		again := NewTracker(Thresholds{}, usage.Activity{}, 0)
		again.RestoreProgress(record)
		for i := restart - 12*60; i <= restart; i++ {
			feed(again, i)
		}
		judge(again, restart)
		if got, want := again.Progress(), whole.Progress(); got != want {
			t.Fatalf("a restarted process has %+v, want %+v", got, want)
		}
		// Naively: the last time at which a step was higher than all since the run began.
		highest, since := -1.0, time.Time{}
		for i := range restart + 1 {
			at := start.Add(time.Duration(i) * time.Minute)
			if at.Before(record.From) {
				continue
			}
			if samples[i].step > highest {
				highest, since = samples[i].step, at
			}
		}
		if got := whole.Progress(); got.Step < highest || got.Since.After(since) && got.Since.After(record.From) {
			t.Fatalf("the record is %+v; the highest step since %s is %g, of %s", got, record.From, highest, since)
		}
	})
}
