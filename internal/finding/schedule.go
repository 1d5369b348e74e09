package finding

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

const (
	hoursOfWeek = 7 * 24
	// minNightHours is the minimum number of hours, the same ones every day, without work for a daily
	// pattern: a night.
	minNightHours = 6
	// minPatternDays is the minimum number of weekdays with work for a pattern: a machine used on one
	// day is idle, not on a schedule.
	minPatternDays = 3
)

// alwaysOn finds machines that run all week and work in less than half of its hours in a daily
// pattern, such as an evaluation of 8 of 24 hours. The saving counts only hours of the week without
// work in every week of the window; hours without samples count as work.
func alwaysOn(x *Index, s *Subject) *Draft {
	n, known := s.Size.GPUs.Get()
	w := s.Window
	if s.State != inventory.StateRunning || !known || !s.Judged || s.Duty.State != duty.Busy ||
		s.Purpose == inventory.Inference ||
		!Spans(w, 7*day) {
		return nil
	}
	if age, known := x.Age(s); known && age < 7*day {
		return nil
	}
	signals := x.activity(w, n)
	if len(signals) == 0 {
		return nil
	}
	busiest := signals[0].Stats
	for _, a := range signals {
		if !a.witness && share(a.Active, a.Count) > share(busiest.Active, busiest.Count) {
			busiest = a.Stats
		}
	}
	busy := share(busiest.Active, busiest.Count)
	if busy >= x.Thresholds.AlwaysOn {
		return nil
	}
	week := weekOf(w, signals)
	nightly, days := week.off()
	if nightly < minNightHours || days < minPatternDays {
		return nil
	}
	on, hours := week.span()
	off := hoursOfWeek - hours
	d := &Draft{Finding: Finding{
		Confidence: Medium,
		Because:    fmt.Sprintf("works %s of the hours; a schedule stops it %d h a week", plain.Share(busy, 0), off),
		Evidence: []usage.Evidence{
			Sampled("active_share", plain.Decimal(busy, 2), w, busiest),
			Sampled("hours_off_per_week", plain.Decimal(float64(off), 0), w, busiest),
			Sampled("work_between_utc", on.Start+"-"+on.Stop, w, busiest),
		},
		Fix: Fix{Change: change.Change{Verb: change.Schedule, Arguments: change.Arguments{Week: on}}, Undo: UndoFull,
			Note: "runs it " + on.Start + "-" + on.Stop + " UTC on " + strings.Join(on.Days, ", ") +
				"; its disks go on costing"},
	}}
	d.Fix.Note = Sentence(d.Fix.Note, restart(s))
	losesLocalDisks(&d.Fix, s.Size)
	if group := groupOf(s); group != "" {
		d.Fix.Undo = UndoPartial
		d.Fix.Note = Sentence(d.Fix.Note,
			"a member of Auto Scaling group "+group+
				": scheduled only through the group, which ends machines with their disks")
	}
	var note string
	d.Fix.Risk, note = Risk(s.Resource, Low)
	d.Fix.Note = Sentence(note, d.Fix.Note)
	d.ClaimShare(s, ledger.Compute, int64(off), hoursOfWeek, WasteAndSavings)
	return d
}

// activity is a signal of a machine's work.
type activity struct {
	*usage.Stats
	floor float64
	// witness is true if the signal can only disprove idleness: its meter counts every byte as
	// activity, so its share of hours means nothing.
	witness bool
}

// activity returns the signals of a machine's work, each covering the window: of every GPU, or CPU
// and network of a machine without GPUs. It is empty if one of them is missing.
func (x *Index) activity(w *usage.Window, gpus int) []activity {
	var noise usage.Activity
	cpu := w.Machine.Stats(usage.CPUUtil)
	if !x.Covered(w, cpu) || !w.Fresh(cpu, x.Now) {
		return nil
	}
	if gpus == 0 {
		net := w.Machine.Stats(usage.NetBytes)
		if !x.Covered(w, net) || !w.Fresh(net, x.Now) {
			return nil
		}
		return []activity{{Stats: cpu, floor: noise.Floor(usage.CPUUtil, 0)},
			{Stats: net, floor: usage.RestingBytesPerDay * float64(w.StepOf(net)) / float64(day), witness: true}}
	}
	tracks := w.GPUTracks()
	if !speaksForAll(w, gpus) {
		return nil
	}
	out := make([]activity, 0, len(tracks)+1)
	for _, t := range tracks {
		st := t.Stats(usage.GPUUtil)
		if !x.Covered(w, st) || !w.Fresh(st, x.Now) {
			return nil
		}
		out = append(out, activity{Stats: st, floor: noise.Floor(usage.GPUUtil, 0)})
	}
	return append(out, activity{Stats: cpu, floor: noise.Floor(usage.CPUUtil, 0)})
}

// week holds for each hour of a week, from Monday 00:00 UTC, whether there was work.
type week [hoursOfWeek]bool

// weekOf folds a window into a week: an hour has work if any signal was active, or had no sample,
// in a part of the window that overlaps it.
func weekOf(w *usage.Window, signals []activity) *week {
	var out week
	part := w.To.Sub(w.From) / usage.Buckets
	for i := range usage.Buckets {
		working := false
		for _, a := range signals {
			v, ok := a.Bucket(i)
			working = working || !ok || v >= a.floor
		}
		if !working {
			continue
		}
		from := w.From.Add(time.Duration(i) * part)
		for t := from.Truncate(time.Hour); t.Before(from.Add(part)); t = t.Add(time.Hour) {
			out[hourOfWeek(t)] = true
		}
	}
	return &out
}

func hourOfWeek(t time.Time) int {
	t = t.UTC()
	return (int(t.Weekday())+6)%7*24 + t.Hour()
}

// off returns the number of hours of the day without work on any day, and the number of days with
// work.
func (w *week) off() (nightly, days int) {
	for h := range 24 {
		every := true
		for d := range 7 {
			every = every && !w[d*24+h]
		}
		if every {
			nightly++
		}
	}
	for d := range 7 {
		if slices.Contains(w[d*24:d*24+24], true) {
			days++
		}
	}
	return nightly, days
}

// span returns the schedule of the machine: the shortest daily time span that covers all work, on
// the days with work, and the number of its hours a week.
func (w *week) span() (on *change.Week, hours int) {
	var used [24]bool
	for i, u := range w {
		used[i%24] = used[i%24] || u
	}
	// The longest daily pause ends where work begins.
	best, start := 0, 0
	for from := range 24 {
		n := 0
		for n < 24 && !used[(from+n)%24] {
			n++
		}
		if n > best {
			best, start = n, from
		}
	}
	from, long := (start+best)%24, 24-best
	on = &change.Week{Start: fmt.Sprintf("%02d:00", from), Stop: fmt.Sprintf("%02d:00", start)}
	for d, name := range change.Weekdays {
		for h := range long {
			if w[(d*24+from+h)%hoursOfWeek] {
				on.Days = append(on.Days, name)
				hours += long
				break
			}
		}
	}
	return on, hours
}
