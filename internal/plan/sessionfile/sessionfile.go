// Package sessionfile writes the session file that would start a machine again which someone
// keeps: its type, or a smaller one that fits what was measured, its disk, image and owner,
// and an idle time and a lease that fit how it was used. Comments in the file say why, with
// the dollars. It is a pure function of what is known.
package sessionfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/spec"
)

// Machine is the known state of the machine.
type Machine struct {
	// ID is the provider's id, Name the usual name; ID is empty if only a trace has the machine.
	// Seen is the source: "the scan of 2026-11-22".
	ID, Name, Seen string
	// Type is its machine type, Region where it is; empty: not known. Assumed says that the
	// region is no one's word.
	Type, Region string
	Assumed      bool
	// Image is the machine image; empty if unknown.
	Image string
	// DiskGiB is the size of its root disk; 0: not known.
	DiskGiB int64
	Spot    bool
	Owner   inventory.Owner
	Purpose inventory.Purpose
	// Hourly is the list price of an hour of it; unknown where it has none.
	Hourly inventory.Fact[money.Amount]
	// Doing is its duty when last seen ("idle for 6d"); empty if unknown.
	Doing string
}

// Habit is how the machine was used, as a trace has it.
type Habit struct {
	// Trace is the file, From and To the time that it covers.
	Trace    string
	From, To time.Time
	// Wait is the time at rest after which an end would have saved most in hindsight, and
	// Idle what the file says: Wait within bounds that people can work with.
	Wait, Idle time.Duration
	// MachineHours ran and IdleHours of them did nothing; SessionHours would have run as
	// sessions with that idle time, started Launches times, and RestartHours are what the
	// starts take.
	MachineHours, IdleHours, SessionHours, RestartHours float64
	Launches                                            int64
	// CostUSD is the cost of the machine hours and SessionUSD that of the sessions; unknown without
	// a price.
	CostUSD, SessionUSD money.Dollars
}

// Bounds of an idle time that is proposed: shorter ones end while people read, and longer
// ones save little.
const (
	LeastIdle = 10 * time.Minute
	MostIdle  = 2 * time.Hour
	idleStep  = 5 * time.Minute
)

// Idle is the idle time to propose for a wait that was best in hindsight.
func Idle(wait time.Duration) time.Duration {
	rounded := (wait + idleStep - 1) / idleStep * idleStep
	return min(max(rounded, LeastIdle), MostIdle)
}

// Options are the defaults of the file.
type Options struct {
	// Name is that of the session; empty takes the machine's.
	Name string
	// Lease and Idle are the defaults, MaxLease the longest lease; 0 for none.
	Lease, Idle, MaxLease time.Duration
}

// File is a session file.
type File struct {
	// Spec is the content of the file.
	Spec *spec.Spec
	// Text is the file.
	Text []byte
}

// unfit are the characters that no name of a session has.
var unfit = lazyregexp.New(`[^A-Za-z0-9._-]+`)

// Name makes a name of a session of what a machine is called.
func Name(texts ...string) string {
	for _, t := range texts {
		if n := strings.Trim(unfit.ReplaceAllString(t, "-"), "-._"); n != "" {
			return n[:min(len(n), 100)]
		}
	}
	return "machine"
}

// New writes the file of a machine. Size is what right-sizing says of it and habit how it was used;
// nil: not measured. It returns an error where the type of the machine is unknown, or where what is
// known makes no session file.
func New(m Machine, size *rightsize.Resource, habit *Habit, o Options) (*File, error) {
	called := cmp.Or(m.Name, m.ID)
	if m.Type == "" {
		return nil, fmt.Errorf("the machine type of %s is not known: give --type", called)
	}
	w := &writer{}
	w.comment(
		"yaml-language-server: $schema=https://raw.githubusercontent.com/curfew-dev/curfew/main/schemas/session.v1.json")
	w.comment("A session instead of %s: %s%s, as %s has it.", called, m.Type, in(m.Region), m.Seen)
	if err := w.price(m); err != nil {
		return nil, err
	}
	if m.Doing != "" {
		w.comment("It was %s then.", m.Doing)
	}
	w.habit(habit)
	w.line("apiVersion: %s", spec.SessionVersion)
	w.line("name: %s", text(cmp.Or(o.Name, Name(m.Name, m.ID))))
	if m.Purpose != inventory.PurposeUnknown {
		w.line("purpose: %s", text(string(m.Purpose)))
	}
	w.owner(m.Owner)
	w.line("resources: {instance_type: %s}", text(w.resources(m, size)))
	if m.Spot {
		w.line("capacity: spot")
	}
	if m.Assumed {
		w.comment("Where it is was not said; prices are those of this region.")
	}
	if m.Region != "" {
		w.line("regions: [%s]", text(m.Region))
	}
	if m.DiskGiB > 0 {
		w.line("disk: %dGiB", m.DiskGiB)
	}
	if m.Image != "" {
		w.comment("The image that it was started from. What was installed since is not in it: put that under setup.")
		w.line("image: %s", text(m.Image))
	}
	w.times(habit, o)
	w.comment("This folder is saved while the session runs and before it ends, and is there again at the next start.")
	w.line("work: {dir: ~/work}")
	f := &File{Text: w.b.Bytes()}
	var err error
	if f.Spec, err = spec.Parse("the session file", f.Text); err != nil {
		return nil, fmt.Errorf("write a session file for %s: %w", called, err)
	}
	return f, nil
}

func in(region string) string {
	if region == "" {
		return ""
	}
	return " in " + region
}

// writer writes the lines of a file.
type writer struct{ b bytes.Buffer }

func (w *writer) line(format string, a ...any) { fmt.Fprintf(&w.b, format+"\n", a...) }

// comment writes a comment. What is from outside stays within its line.
func (w *writer) comment(format string, a ...any) {
	w.b.WriteString("# " + plain.Line(fmt.Sprintf(format, a...)) + "\n")
}

// bare are texts that YAML takes for nothing else.
var bare = lazyregexp.New(`^[A-Za-z][A-Za-z0-9._-]*[A-Za-z0-9]$`)

// words are bare texts that YAML takes for something else.
var words = lazyregexp.New(`(?i)^(true|false|yes|no|on|off|null|nan|inf)$`)

// text is a text as YAML writes it.
func text(s string) string {
	if bare.MatchString(s) && !words.MatchString(s) {
		return s
	}
	quoted, _ := json.Marshal(s) // a text is always written
	return string(quoted)
}

func (w *writer) price(m Machine) error {
	hourly, ok := m.Hourly.Get()
	if !ok {
		w.comment("Its price is not known.")
		return nil
	}
	monthly, err := hourly.Monthly()
	if err != nil {
		return err
	}
	w.comment("Kept on, it costs %s an hour at list price, %s a month.", hourly.Dollars(), monthly.Dollars())
	return nil
}

func hours(h float64) string {
	return plain.Duration(time.Duration(h * float64(time.Hour)).Round(time.Minute))
}

func (w *writer) habit(h *Habit) {
	if h == nil {
		return
	}
	w.comment("%s covers %s of it, from %s to %s. It did nothing for %s.", h.Trace, hours(h.MachineHours),
		plain.Date(h.From.UTC()), plain.Date(h.To.UTC()), hours(h.IdleHours))
	cost := ""
	if h.CostUSD.Known() && h.SessionUSD.Known() {
		cost = fmt.Sprintf(": %s instead of %s", h.SessionUSD, h.CostUSD)
	}
	w.comment("As sessions it would have run for %s in %s, %s of starts included%s.",
		hours(h.SessionHours+h.RestartHours), plain.Count(h.Launches, "session"), hours(h.RestartHours), cost)
}

func (w *writer) owner(o inventory.Owner) {
	var parts []string
	for _, p := range []struct{ key, value string }{
		{"team", o.Team}, {"project", o.Project}, {"user", o.User}, {"environment", o.Environment},
		{"cost_center", o.CostCenter},
	} {
		if v := strings.TrimSpace(p.value); v != "" {
			parts = append(parts, p.key+": "+text(v))
		}
	}
	if len(parts) == 0 {
		w.comment("No tag names its owner. Budgets go by it:")
		w.comment("owner: {team: …, user: …}")
		return
	}
	w.line("owner: {%s}", strings.Join(parts, ", "))
}

// resources chooses the machine type: the cheapest of the same cloud that fits what was
// measured, else the machine's own.
func (w *writer) resources(m Machine, size *rightsize.Resource) string {
	switch {
	case size == nil:
		w.comment("Its own type: its use was not measured. `--trace FILE` proposes one that fits.")
		return m.Type
	case size.Verdict == rightsize.Unknown.String():
		w.comment("Its own type: the measurements are too few to propose another one (%s).",
			cmp.Or(size.Why, "no samples"))
		return m.Type
	}
	w.comment("%s", measured(size))
	var best *rightsize.Fit
	for i := range size.Fits {
		f := &size.Fits[i]
		if f.Cloud == "aws" && (m.Region == "" || f.Region == m.Region) && f.SavingUSD.Known() &&
			len(f.Lacks) == 0 {
			best = f
			break // they are the cheapest first
		}
	}
	if best == nil {
		w.comment("No cheaper type fits that.")
		return m.Type
	}
	saving := best.SavingUSD.Or(0)
	if saving <= 0 {
		w.comment("No cheaper type fits that.")
		return m.Type
	}
	was := ""
	if size.HourlyUSD.Known() {
		was = ", where " + m.Type + " costs " + size.HourlyUSD.String()
	}
	w.comment("%s (%d × %s) fits that at %s an hour%s: %s less a month if it is kept on.", best.Type, best.GPUs,
		best.Accelerator, best.HourlyUSD.Dollars(), was, saving.Dollars())
	for _, a := range best.Against {
		w.comment("Against it: %s.", strings.TrimSuffix(a, "."))
	}
	return best.Type
}

// measured names the measurements that right-sizing uses.
func measured(r *rightsize.Resource) string {
	s := fmt.Sprintf("Measured: %d of %s used", r.GPUsUsedMax, plain.Count(r.GPUs, "GPU"))
	if r.UtilP95 != nil {
		s += fmt.Sprintf(", %s of a GPU at p95", plain.Percent(*r.UtilP95, 0))
	}
	if r.MemoryPeakGiB != nil {
		s += fmt.Sprintf(", at most %s GiB of its memory", plain.Number(*r.MemoryPeakGiB, 1))
	}
	return s + " (" + r.Verdict + ")."
}

// duration is a duration as a file has it: "1h30m".
func duration(d time.Duration) string {
	d = d.Round(time.Minute)
	h, m := int64(d/time.Hour), int64(d%time.Hour/time.Minute)
	switch {
	case h == 0:
		return strconv.FormatInt(m, 10) + "m"
	case m == 0:
		return strconv.FormatInt(h, 10) + "h"
	}
	return fmt.Sprintf("%dh%dm", h, m)
}

// Lease is the lease to propose for sessions of a mean length: twice that, in whole hours.
func Lease(mean, most time.Duration) time.Duration {
	lease := max((2*mean+time.Hour-1)/time.Hour*time.Hour, time.Hour)
	if most > 0 {
		lease = min(lease, most)
	}
	return lease
}

func (w *writer) times(h *Habit, o Options) {
	if h == nil || h.Launches == 0 {
		w.comment("Lease and idle time are the usual ones: how it was used was not recorded.")
		w.line("lease: %s", duration(cmp.Or(o.Lease, spec.DefaultLease)))
		if o.Idle > 0 {
			w.line("idle: %s", duration(o.Idle))
		}
		return
	}
	mean := time.Duration(h.SessionHours / float64(h.Launches) * float64(time.Hour))
	lease, long := Lease(mean, o.MaxLease), "about twice that"
	if lease < 2*mean {
		long = "the longest that is allowed"
	}
	w.comment("Sessions would have run for %s on average; the lease is %s, and `curfew extend` prolongs it.",
		plain.Duration(mean.Round(time.Minute)), long)
	w.line("lease: %s", duration(lease))
	why := fmt.Sprintf("In hindsight an end after %s without work would have saved most",
		plain.Duration(h.Wait.Round(time.Second)))
	if h.Idle != h.Wait {
		why += fmt.Sprintf("; proposed are %s to %s, in steps of %s", duration(LeastIdle), duration(MostIdle),
			duration(idleStep))
	}
	w.comment("%s.", why)
	w.line("idle: %s", duration(h.Idle))
}
