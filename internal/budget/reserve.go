package budget

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Line is one window of one budget that a reservation has to fit in.
type Line struct {
	Budget string
	Match
	Window Window
	// Limit is the most that may be charged and held in the window, PerHour the most an
	// hour; a zero PerHour is not looked at.
	Limit, PerHour money.Amount
	CountUnknown   bool
}

// Reservation is a hold with everything that it has to fit in.
type Reservation struct {
	Hold   Hold
	Lines  []Line
	Quotas []Quota
	Now    time.Time
	// Event is recorded with the hold.
	Event Event
}

// Read is a question to the ledger.
type Read struct {
	Match Match
	Window
}

// Locks are the names of the rows to lock, in the order in which everybody locks them.
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

// Span is the time from which every hold matters.
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

// Reads are what Check needs to know of the ledger, in addition to the holds that overlap Span:
// of each line its window, the last whole hour, and the time before the window in which
// a hold that reaches into it began (an empty one where none did).
func (r Reservation) Reads(holds []Hold) []Read {
	var out []Read
	for _, l := range r.Lines {
		out = append(out, Read{l.Match, l.Window}, Read{l.Match, lastHour(r.Now)},
			Read{l.Match, l.before(append(holds[:len(holds):len(holds)], r.Hold))})
	}
	return out
}

// before is the time before the line's window in which holds that count began, in whole
// days.
func (l Line) before(holds []Hold) Window {
	w := Window{l.Window.From, l.Window.From}
	for _, h := range holds {
		if h.State != Released && h.From.Before(w.From) && l.Covers(h.Owner, h.Purpose) {
			w.From = h.From.UTC().Truncate(day)
		}
	}
	return w
}

// account is what the ledger says about a line, in the order of Reads.
type account struct{ window, hour, before Spend }

// readsOfALine is how many Reads a line has.
const readsOfALine = 3

func accountOf(spent []Spend, line int) account {
	s := spent[readsOfALine*line:]
	return account{s[0], s[1], s[2]}
}

// lastHour is the last hour that is over, of which charges are rolled up.
func lastHour(now time.Time) Window {
	to := now.UTC().Truncate(time.Hour)
	return Window{to.Add(-time.Hour), to}
}

// Overdrawn is why a reservation is refused: what would be more than allowed. It is an
// answer, not a failure.
type Overdrawn struct {
	// Budget or Quota is the id of what is exceeded; the other is empty.
	Budget, Quota string
	// Window is the budget's; PerHour says that it is the dollars of an hour that are
	// exceeded, not those of the window.
	Window  Window
	PerHour bool
	// Limit is what is allowed, Used what is charged (what is not known of it in Unknown,
	// where that counts), Held what others hold, Asked what this one would add.
	Limit, Used, Unknown, Held, Asked money.Amount
	// Unobserved is the part of Held of runs that are over and that the ledger has not
	// seen.
	Unobserved money.Amount
	// Of names the capacity that a quota is of ("H100", "machines"), with its numbers.
	Of                           string
	MostOf, InUse, AskedCapacity int
}

// Error gives the numbers.
func (o *Overdrawn) Error() string {
	if o.Quota != "" {
		return fmt.Sprintf("quota %s: %d %s asked for, %d of %d are reserved", o.Quota, o.AskedCapacity, o.Of, o.InUse, o.MostOf)
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
		o.Asked.Exact(), unit, max(0, o.Limit-o.Used-o.Unknown-o.Held).Exact(), o.Limit.Exact(), o.Used.Exact(), unknown,
		o.Held.Exact(), missed)
}

// Check decides from what a store read in its transaction: the holds that overlap Span
// and what was spent in each of Reads. It returns an *Overdrawn for the first budget, and
// then the first quota, that would be exceeded. It changes nothing.
func (r Reservation) Check(holds []Hold, spent []Spend) error {
	if len(spent) != readsOfALine*len(r.Lines) {
		return fmt.Errorf("check hold %s: %d answers of the ledger to %d questions", r.Hold.ID, len(spent),
			readsOfALine*len(r.Lines))
	}
	others := r.others(holds)
	for i, l := range r.Lines {
		if err := r.checkWindow(l, others, accountOf(spent, i)); err != nil {
			return err
		}
		if err := r.checkHour(l, others, accountOf(spent, i).hour); err != nil {
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

func (r Reservation) others(holds []Hold) []Hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h Hold) bool { return h.ID == r.Hold.ID })
}

func (r Reservation) checkWindow(l Line, others []Hold, s account) error {
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
	return o.verdict()
}

// Standing is where a line stands before a reservation, and what that adds.
type Standing struct {
	Line
	// Used is what was charged, Unknown what unpriced charges may come to at most, Held
	// what others hold beyond their own charges.
	Used, Unknown, Held money.Amount
	// Unobserved is the part of Held of runs that are over and that the ledger has not
	// seen.
	Unobserved money.Amount
	// Unbounded is the resource time of which not even the most is known.
	Unbounded time.Duration
	// Asked is what the reservation adds to the window.
	Asked money.Amount
}

// Committed is what is spent and held, and what is unknown where that counts, without
// what is asked for.
func (s Standing) Committed() (money.Amount, error) {
	if s.CountUnknown {
		return money.Sum(s.Used, s.Held, s.Unknown)
	}
	return s.Used.Add(s.Held)
}

func (r Reservation) standing(l Line, others []Hold, s account) (Standing, error) {
	held, unobserved, err := l.held(others, s, r.Now)
	asked, _ := l.left(r.Hold, s, r.Now)
	return Standing{
		Line: l, Used: s.window.Used, Unknown: s.window.Unknown, Unbounded: s.window.Unbounded, Held: held,
		Unobserved: unobserved, Asked: asked,
	}, err
}

// checkHour looks at the dollars of an hour, in the window that the hold begins in.
func (r Reservation) checkHour(l Line, others []Hold, s Spend) error {
	if l.PerHour == 0 || !l.Window.holds(r.Now) {
		return nil
	}
	burn, held, err := l.burn(append(others[:len(others):len(others)], r.Hold), s, r.Now)
	if err != nil {
		return err
	}
	asked := r.Hold.Hourly
	return (&Overdrawn{
		Budget: l.Budget, Window: l.Window, PerHour: true, Limit: l.PerHour, Used: burn, Held: held - asked, Asked: asked,
	}).verdict()
}

func (r Reservation) checkQuota(q Quota, others []Hold) error {
	machines, gpus := 0, map[string]int{}
	for _, h := range others {
		if h.open(r.Now) && q.Covers(h.Owner, h.Purpose) {
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

// IsGPU says whether an accelerator is of a type that a quota names. A type that is named
// without what follows a hyphen ("A100") has all of its variants ("A100-40GB",
// "A100-80GB").
func IsGPU(kind, accelerator string) bool {
	rest, ok := strings.CutPrefix(strings.ToLower(accelerator), strings.ToLower(kind))
	return ok && (rest == "" || rest[0] == '-')
}

// gpus is how many accelerators of a type a hold has.
func (h Hold) gpus(kind string) int {
	sum := 0
	for k, n := range h.GPUs {
		if IsGPU(kind, k) {
			sum += n
		}
	}
	return sum
}

// left is what a hold still reserves of a line's window beyond its own charges, and
// whether only because its run is unobserved.
func (l Line) left(h Hold, s account, now time.Time) (left money.Amount, missed bool) {
	charged, before := s.window.ByHold[h.ID], s.before.ByHold[h.ID]
	observed := h.observed(s.window.Through, charged > 0 || before > 0)
	amount := h.amount(now, observed)
	return max(0, min(h.part(amount, l.Window), amount-before)-charged), h.missed(now, observed)
}

// held is what holds reserve of a line's window beyond their own charges, and the part of
// it of those whose run is unobserved.
func (l Line) held(holds []Hold, s account, now time.Time) (total, unobserved money.Amount, err error) {
	for _, h := range holds {
		if !l.Covers(h.Owner, h.Purpose) {
			continue
		}
		left, missed := l.left(h, s, now)
		if total, err = total.Add(left); err != nil {
			return 0, 0, err
		}
		if missed {
			unobserved += left // at most the total, which fits
		}
	}
	return total, unobserved, nil
}

// burn is what is spent in an hour: by the holds that are open and count against the
// line, as each was estimated, and by everything else, measured over the last whole hour.
// A hold covers no more of what was measured than its own rate.
func (l Line) burn(holds []Hold, hour Spend, now time.Time) (measured, held money.Amount, err error) {
	measured = hour.Used
	for _, h := range holds {
		if h.open(now) && l.Covers(h.Owner, h.Purpose) {
			measured -= min(hour.ByHold[h.ID], h.Hourly)
			if held, err = held.Add(h.Hourly); err != nil {
				return 0, 0, err
			}
		}
	}
	return measured, held, nil
}

// verdict returns the refusal where something is asked for and does not fit.
func (o *Overdrawn) verdict() error {
	total, err := money.Sum(o.Used, o.Unknown, o.Held, o.Asked)
	if err != nil {
		return err
	}
	if o.Asked > 0 && total > o.Limit {
		return o
	}
	return nil
}

func (w Window) holds(at time.Time) bool { return !at.Before(w.From) && at.Before(w.To) }
