package budget

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Line is a budget window that a reservation has to fit in.
type Line struct {
	Budget string
	Match
	Window Window
	// Limit is the maximum of charged and held amounts in the window, PerHour the hourly limit; a
	// zero PerHour sets none.
	Limit, PerHour money.Amount
	CountUnknown   bool
}

// Reservation is a hold with all lines and quotas that it has to fit in.
type Reservation struct {
	Hold   Hold
	Lines  []Line
	Quotas []Quota
	Now    time.Time
	// Event is recorded with the hold.
	Event Event
}

// Read is a query to the ledger.
type Read struct {
	Match Match
	Window
}

// Locks returns the names of the rows to lock, in a fixed order.
func (r Reservation) Locks() []string {
	var names []string
	for _, l := range r.Lines {
		names = append(names, "budget/"+l.Budget)
	}
	for _, q := range r.Quotas {
		names = append(names, "quota/"+q.ID)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Span returns the time range whose holds matter.
func (r Reservation) Span() Window {
	hour := lastHour(r.Now)
	span := Window{hour.From, r.Hold.ExpiresAt}
	if !span.To.After(r.Now) {
		span.To = r.Now.Add(time.Nanosecond)
	}
	for _, l := range r.Lines {
		if l.Window.From.Before(span.From) {
			span.From = l.Window.From
		}
		if l.Window.To.After(span.To) {
			span.To = l.Window.To
		}
	}
	return span
}

// Reads returns the ledger queries that Check needs besides the holds that overlap Span. For each
// line these are its window, the last full hour, and the time before the window since the start of
// a hold that reaches into it (an empty range if there is none).
func (r Reservation) Reads(holds []Hold) []Read {
	var out []Read
	for _, l := range r.Lines {
		out = append(out, Read{l.Match, l.Window}, Read{l.Match, lastHour(r.Now)},
			Read{l.Match, l.timeBefore(append(holds[:len(holds):len(holds)], r.Hold))})
	}
	return out
}

// timeBefore returns the whole days before the line's window in which holds that count began.
func (l Line) timeBefore(holds []Hold) Window {
	w := Window{l.Window.From, l.Window.From}
	for _, h := range holds {
		if h.State != Released && h.From.Before(w.From) && l.Covers(h.Owner, h.Purpose) {
			w.From = h.From.UTC().Truncate(day)
		}
	}
	return w
}

// lineSpend holds the results of a line's queries, in the order of Reads.
type lineSpend struct{ window, hour, before Spend }

// readsPerLine is the number of queries per line.
const readsPerLine = 3

func spendOfLine(spent []Spend, line int) lineSpend {
	s := spent[readsPerLine*line:]
	return lineSpend{s[0], s[1], s[2]}
}

// lastHour returns the last full hour, whose charges are complete.
func lastHour(now time.Time) Window {
	to := now.UTC().Truncate(time.Hour)
	return Window{to.Add(-time.Hour), to}
}

// Overdrawn explains why a reservation is refused.
type Overdrawn struct {
	// Budget or Quota is the id of the exceeded one; the other is empty.
	Budget, Quota string
	// Window is the budget's window. PerHour reports that the hourly limit is exceeded.
	Window  Window
	PerHour bool
	// Limit is the allowed amount, Used the charged one (Unknown its unpriced part, if counted),
	// Held the amount of other holds, Asked that of this one.
	Limit, Used, Unknown, Held, Asked money.Amount
	// Unobserved is the part of Held whose runs are over but not seen by the ledger.
	Unobserved money.Amount
	// Of names the capacity of the quota ("H100", "machines"), with its numbers.
	Of                           string
	MostOf, InUse, AskedCapacity int
}

// Error returns a message with the numbers.
func (o *Overdrawn) Error() string {
	if o.Quota != "" {
		return fmt.Sprintf("quota %s: %d %s asked for, %d of %d are reserved", o.Quota, o.AskedCapacity,
			o.Of, o.InUse, o.MostOf)
	}
	unit, unknown := "", ""
	if o.PerHour {
		unit = " an hour"
	}
	if o.Unknown > 0 {
		unknown = fmt.Sprintf(", at most %s unpriced", o.Unknown.Exact())
	}
	missed := ""
	if o.Unobserved > 0 {
		missed = fmt.Sprintf(", of that %s by runs that are over and were never charged: settle their holds, or scan",
			o.Unobserved.Exact())
	}
	return fmt.Sprintf("budget %s: %s%s asked for, %s of %s is left (%s spent%s, %s held%s)", o.Budget,
		o.Asked.Exact(), unit, max(0, o.Limit-o.Used-o.Unknown-o.Held).Exact(), o.Limit.Exact(),
		o.Used.Exact(), unknown,
		o.Held.Exact(), missed)
}

// Check decides from the holds that overlap Span and the results of Reads, which a store read in
// its transaction. It returns *Overdrawn for the first exceeded budget, else quota.
func (r Reservation) Check(holds []Hold, spent []Spend) error {
	if len(spent) != readsPerLine*len(r.Lines) {
		return fmt.Errorf("check hold %s: %d answers of the ledger to %d questions", r.Hold.ID, len(spent),
			readsPerLine*len(r.Lines))
	}
	others := r.otherHolds(holds)
	for i, l := range r.Lines {
		if err := r.checkWindow(l, others, spendOfLine(spent, i)); err != nil {
			return err
		}
		if err := r.checkHour(l, others, spendOfLine(spent, i).hour); err != nil {
			return err
		}
	}
	for _, q := range r.Quotas {
		if err := r.checkQuota(q, others); err != nil {
			return err
		}
	}
	return nil
}

func (r Reservation) otherHolds(holds []Hold) []Hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h Hold) bool { return h.ID == r.Hold.ID })
}

func (r Reservation) checkWindow(l Line, others []Hold, s lineSpend) error {
	at, err := r.standing(l, others, s)
	if err != nil {
		return err
	}
	o := &Overdrawn{
		Budget: l.Budget, Window: l.Window, Limit: l.Limit, Used: at.Used, Held: at.Held, Unobserved: at.Unobserved,
		Asked: at.Asked,
	}
	if l.CountUnknown {
		o.Unknown = at.Unknown
	}
	return o.refusal()
}

// Standing is the state of a line before a reservation, and what that adds.
type Standing struct {
	Line
	// Used is the charged amount, Unknown the upper bound of unpriced charges, Held what other
	// holds reserve beyond their own charges.
	Used, Unknown, Held money.Amount
	// Unobserved is the part of Held whose runs are over but not seen by the ledger.
	Unobserved money.Amount
	// Unbounded is the resource time without even an upper bound of its cost.
	Unbounded time.Duration
	// Asked is the amount that the reservation adds.
	Asked money.Amount
}

// Committed returns what is spent and held, plus the unknown amount if it counts, without the
// reservation.
func (s Standing) Committed() (money.Amount, error) {
	if s.CountUnknown {
		return money.Sum(s.Used, s.Held, s.Unknown)
	}
	return s.Used.Add(s.Held)
}

func (r Reservation) standing(l Line, others []Hold, s lineSpend) (Standing, error) {
	held, unobserved, err := sumReserved(l.reserved(others, s, r.Now))
	asked, _ := l.remaining(r.Hold, s, r.Now)
	return Standing{
		Line: l, Used: s.window.Used, Unknown: s.window.Unknown, Unbounded: s.window.Unbounded, Held: held,
		Unobserved: unobserved, Asked: asked,
	}, err
}

// checkHour checks the hourly limit in the window in which the hold begins.
func (r Reservation) checkHour(l Line, others []Hold, s Spend) error {
	if l.PerHour == 0 || !l.Window.contains(r.Now) {
		return nil
	}
	burn, held, err := l.hourlyRate(append(others[:len(others):len(others)], r.Hold), s, r.Now)
	if err != nil {
		return err
	}
	asked := r.Hold.Hourly
	return (&Overdrawn{
		Budget: l.Budget, Window: l.Window, PerHour: true, Limit: l.PerHour, Used: burn,
		Held: held - asked, Asked: asked,
	}).refusal()
}

func (r Reservation) checkQuota(q Quota, others []Hold) error {
	machines, gpus := 0, map[string]int{}
	for _, h := range others {
		if h.holdsCapacity(r.Now) && q.Covers(h.Owner, h.Purpose) {
			machines += h.Machines
			for kind := range q.GPUs {
				gpus[kind] += h.gpus(kind)
			}
		}
	}
	if asked := r.Hold.Machines; q.Machines != nil && asked > 0 && machines+asked > *q.Machines {
		return &Overdrawn{Quota: q.ID, Of: "machines", MostOf: *q.Machines, InUse: machines, AskedCapacity: asked}
	}
	for _, kind := range slices.Sorted(maps.Keys(q.GPUs)) {
		asked := r.Hold.gpus(kind)
		if inUse := gpus[kind]; asked > 0 && inUse+asked > q.GPUs[kind] {
			return &Overdrawn{Quota: q.ID, Of: kind, MostOf: q.GPUs[kind], InUse: inUse, AskedCapacity: asked}
		}
	}
	return nil
}

// IsGPU reports whether an accelerator has a type named by a quota. A type without hyphen ("A100")
// covers all variants ("A100-40GB", "A100-80GB").
func IsGPU(kind, accelerator string) bool {
	rest, ok := strings.CutPrefix(strings.ToLower(accelerator), strings.ToLower(kind))
	return ok && (rest == "" || rest[0] == '-')
}

// gpus returns the number of a hold's accelerators of a type.
func (h Hold) gpus(kind string) int {
	sum := 0
	for k, n := range h.GPUs {
		if IsGPU(kind, k) {
			sum += n
		}
	}
	return sum
}

// remaining returns what a hold reserves of a line's window beyond its own charges, and whether
// only because its run is unobserved.
func (l Line) remaining(h Hold, s lineSpend, now time.Time) (left money.Amount, missed bool) {
	charged, before := s.window.ByHold[h.ID], s.before.ByHold[h.ID]
	observed := h.observed(s.window.Through, charged > 0 || before > 0)
	amount := h.countedAmount(now, observed)
	return max(0, min(h.amountIn(amount, l.Window), amount-before)-charged), h.isUnobserved(now, observed)
}

// reserved returns what each hold reserves of the line beyond its charges.
func (l Line) reserved(holds []Hold, s lineSpend, now time.Time) (out []Reserved) {
	for _, h := range holds {
		if !l.Covers(h.Owner, h.Purpose) {
			continue
		}
		if left, missed := l.remaining(h, s, now); left != 0 || missed {
			out = append(out, Reserved{h, left, missed})
		}
	}
	return out
}

// sumReserved returns the sum of what holds reserve, and the part that is unobserved.
func sumReserved(all []Reserved) (total, unobserved money.Amount, err error) {
	for _, r := range all {
		if total, err = total.Add(r.Amount); err != nil {
			return 0, 0, err
		}
		if r.Unobserved {
			unobserved += r.Amount // at most the total, which fits
		}
	}
	return total, unobserved, nil
}

// hourlyRate returns the current spend per hour: that of live holds as estimated, and everything
// else as measured over the last full hour. A hold covers measured spend only up to its own rate.
func (l Line) hourlyRate(holds []Hold, hour Spend, now time.Time) (measured, held money.Amount, err error) {
	measured = hour.Used
	for _, h := range holds {
		if h.holdsCapacity(now) && l.Covers(h.Owner, h.Purpose) {
			measured -= min(hour.ByHold[h.ID], h.Hourly)
			if held, err = held.Add(h.Hourly); err != nil {
				return 0, 0, err
			}
		}
	}
	return measured, held, nil
}

// refusal returns the error if something is requested and does not fit.
func (o *Overdrawn) refusal() error {
	total, err := money.Sum(o.Used, o.Unknown, o.Held, o.Asked)
	if err != nil {
		return err
	}
	if o.Asked > 0 && total > o.Limit {
		return o
	}
	return nil
}

func (w Window) contains(at time.Time) bool { return !at.Before(w.From) && at.Before(w.To) }
