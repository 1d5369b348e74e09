package learn

const (
	// Folds is into how many parts of equal length a trace is divided for testing: the
	// waits of each are learned from the parts before it.
	Folds = 24
	// enough is the number of idle periods a class, or the fleet, needs before its own history
	// decides; with fewer, chance would.
	enough = 30
)

// Basis says whose history a wait was learned from.
type Basis string

// BreakEven is the wait of one restart cost, for too little history of a class and of
// the fleet.
const (
	OfClass   Basis = "class"
	OfFleet   Basis = "fleet"
	BreakEven Basis = "break-even"
)

// History is the idle periods of some resources: by the fold in which they were known to
// be over, and by the fold in which they began.
type History struct {
	ended [Folds + 1]Periods
	begun [Folds]Periods
}

// Add takes a period that began in a fold and was known to be over in another, which is
// Folds where the trace ended first.
func (h *History) Add(p Period, began, ended int) {
	for _, m := range []*Periods{&h.ended[ended], &h.begun[min(began, Folds-1)]} {
		if *m == nil {
			*m = Periods{}
		}
		(*m)[p]++
	}
}

// Before returns the periods that were over before a fold.
func (h *History) Before(fold int) Periods {
	sum := Periods{}
	for _, m := range h.ended[:fold] {
		for p, n := range m {
			sum[p] += n
		}
	}
	return sum
}

// All returns every period.
func (h *History) All() Periods { return h.Before(Folds + 1) }

// Waits learns how long to wait before a release.
//
// The question is the ski-rental problem: an idle resource is rented for as long as
// it is kept, and releasing it costs a restart if work comes back. Where the past
// says how long idle periods last, the wait with the least mean cost over them is best
// among all waits (Karlin, Manasse, McGeoch and Owicki, Algorithmica 11, 1994). Where
// there are fewer than 30 periods of the class, those of the fleet decide, and where there
// are fewer than 30 of it, the wait is one restart cost, which never costs more than twice
// the necessary (Karlin, Manasse, Rudolph and Sleator, "Competitive snoopy caching",
// Algorithmica 3, 1988). A wait is never shorter than a step: one sample is no idle
// period yet.
type Waits struct {
	Step, Restart int64
	Fleet         *History
}

// BreakEven is the wait of one restart cost.
func (w Waits) BreakEven() int64 { return max(w.Step, w.Restart) }

// Wait returns the wait for resources of a class by the history known when a fold began, and the
// basis of it.
func (w Waits) Wait(class *History, fold int) (wait int64, basis Basis) {
	for _, h := range []struct {
		*History
		basis Basis
	}{{class, OfClass}, {w.Fleet, OfFleet}} {
		past := h.Before(fold)
		var n int64
		for _, times := range past {
			n += times
		}
		if n >= enough {
			wait, _ := past.BestFixed(w.Step, w.Restart)
			return max(w.Step, wait), h.basis
		}
	}
	return w.BreakEven(), BreakEven
}

// Test walks forward through the trace: the periods that begin in a fold are released by the waits
// learned from periods that were over before it.
func (w Waits) Test(class *History) Tally {
	var sum Tally
	for fold, begun := range class.begun {
		if len(begun) > 0 {
			wait, _ := w.Wait(class, fold)
			sum.Add(begun.Fixed(wait, w.Step, w.Restart))
		}
	}
	return sum
}
