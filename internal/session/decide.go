package session

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// Timing bounds what a session may wait for. Zero fields take those of [DefaultTiming].
type Timing struct {
	// Gate is how long a record may stand that was left before the gate answered, and Answer
	// how long one waits whose approval no one gives.
	Gate, Answer time.Duration
	// Launch is how long machines are asked for, Start how long they may take to become ready.
	Launch, Start time.Duration
	// Avoid is how long a pool is left aside that had no machine.
	Avoid time.Duration
	// Shown is how long after a launch the provider may not show a machine yet.
	Shown time.Duration
	// Apart is the time between the two empty look-ups that say that machines are gone.
	Apart time.Duration
	// Again is after what time an accepted end is asked for again.
	Again time.Duration
	// Stray is how long a machine without a record is warned of before it is ended.
	Stray time.Duration
	// Charge is how often the ledger is told of what runs.
	Charge time.Duration
	// Poll is how often it is looked whether machines became ready or went.
	Poll time.Duration
	// Grace is how long a host goes on after its warning, Save how long its last snapshot may
	// take.
	Grace, Save time.Duration
	// End is the most that grace period, save and last snapshot may take together; by default
	// Grace, Save and [EndMargin]. After it the machines are released, whatever is unfinished.
	End time.Duration
	// KeepsFiles says that the files of machines stay after the end, so that no machine is kept
	// for them. Where it is false, End counts from the end of the lease.
	KeepsFiles bool
}

// EndMargin is how much longer than its parts an end may take unless another limit is set.
const EndMargin = 3 * time.Minute

// DefaultTiming is the timing of providers that show things late.
func DefaultTiming() Timing {
	return Timing{
		Gate: 15 * time.Minute, Answer: 24 * time.Hour, Launch: 15 * time.Minute, Start: 30 * time.Minute,
		Avoid: 10 * time.Minute, Shown: 2 * time.Minute,
		Apart: 5 * time.Second, Again: 2 * time.Minute, Stray: 30 * time.Minute, Charge: 10 * time.Minute,
		Poll: 2 * time.Second, Grace: 2 * time.Minute, Save: 10 * time.Minute}
}

// Fill takes the defaults where nothing is given.
func (t Timing) Fill() Timing {
	d := DefaultTiming()
	t.Gate, t.Answer, t.Launch, t.Start = cmp.Or(t.Gate, d.Gate), cmp.Or(t.Answer, d.Answer), cmp.Or(t.Launch,
		d.Launch), cmp.Or(t.Start, d.Start)
	t.Avoid, t.Shown, t.Apart, t.Again = cmp.Or(t.Avoid, d.Avoid), cmp.Or(t.Shown, d.Shown), cmp.Or(t.Apart,
		d.Apart), cmp.Or(t.Again, d.Again)
	t.Poll = cmp.Or(t.Poll, d.Poll)
	t.Stray, t.Charge, t.Grace, t.Save = cmp.Or(t.Stray, d.Stray), cmp.Or(t.Charge, d.Charge), cmp.Or(t.Grace,
		d.Grace), cmp.Or(t.Save, d.Save)
	t.End = cmp.Or(t.End, t.Grace+t.Save+EndMargin)
	t.Save = min(t.Save, t.End)
	return t
}

// View is all that a decision about one session rests on.
type View struct {
	Now     time.Time
	Session Session
	// Found are its machines as the provider shows them; meaningless unless Looked.
	Found  []Found
	Looked bool
	// Hosts is what its hosts said last; meaningless unless Heard.
	Hosts map[int]Status
	Heard bool
	// Wrong says what hosts wrote that cannot be; it is not in Hosts.
	Wrong []string
	// Untold says that the order could not be written in this pass.
	Untold bool
	// Order is the order that is there.
	Order Order
	// Pools are where it can be launched, the best first, where that was asked for, for so
	// many Nodes, and Aside the pools that had no machine, of all sessions.
	Pools []Pool
	Nodes int
	Aside []Try
	// Gated says that this process can ask the gate.
	Gated bool
	// Strays is how many machines without a record are due to be ended at once.
	Strays int
}

// Act is what is missing.
type Act string

// The acts. Each is carried out, and then everything is looked at again.
const (
	Wait    Act = "wait"   // nothing now
	Admit   Act = "admit"  // ask the gate
	Change  Act = "change" // write the record that Next is
	Starts  Act = "launch" // the launch goes a pass on
	Tell    Act = "order"  // write the order that Order is
	Release Act = "end"    // the end goes a pass on
	Clean   Act = "clean"  // remove what the machines left, settle the hold, charge, and then write Next
	Charge  Act = "charge" // tell the ledger of what runs, and then write Next
)

// Next is what is missing of a session, and when to look again if nothing happens.
type Next struct {
	Act Act
	// Session is the record to write, with Events to keep with it.
	Session Session
	Events  []Event
	Order   Order
	After   time.Duration
}

// MaxStrays is how many machines without a record may be due at once for any of them to be
// ended: more of them are a sign that the records are wrong, and not the machines.
const MaxStrays = 5

// Decide returns what is missing of a session. It is a pure function: all that is known is in
// the view and in the record.
func Decide(v View, t Timing) Next {
	d := &deciding{View: v, t: t, next: Next{Act: Wait, Session: v.Session, After: time.Minute}}
	if v.Session.ByHand && v.Session.State != Ending {
		d.byHand()
		return d.next
	}
	switch v.Session.State {
	case Requested:
		d.requested()
	case Launching:
		d.launching()
	case Starting, Ready:
		d.running()
	case Ending:
		d.ending()
	}
	return d.next
}

type deciding struct {
	View
	t    Timing
	next Next
}

// s is the record that is to be written.
func (d *deciding) s() *Session { return &d.next.Session }

// say adds an event of the keeper.
func (d *deciding) say(kind, format string, a ...any) {
	d.next.Events = append(d.next.Events, Event{At: d.Now, Node: Keepers, Kind: kind, Text: fmt.Sprintf(format, a...)})
}

// change asks for the record to be written.
func (d *deciding) change() { d.next.Act = Change }

// wait asks to be called again after so long.
func (d *deciding) wait(after time.Duration) {
	d.next = Next{Act: Wait, Session: d.Session, After: max(after, 0)}
}

// end turns the session to its end.
func (d *deciding) end(by, format string, a ...any) {
	s := d.s()
	endSession(s, d.Now, by, fmt.Sprintf(format, a...))
	d.say("ending", "%s", s.Why)
	d.change()
}

// endSession turns a session to its end.
func endSession(s *Session, now time.Time, by, why string) {
	s.State, s.EndingAt, s.EndBy, s.EndWhy, s.Why = Ending, now, by, why, why
	s.Serial++
}

func (d *deciding) requested() {
	age := d.Now.Sub(d.Session.RequestedAt)
	switch {
	case d.Session.Approval != "" && age > d.t.Answer:
		d.end(keeper, "no one approved request %s within %s", d.Session.Approval, d.t.Answer)
	case d.Gated:
		d.next.Act = Admit
	case d.Session.Approval == "" && age > d.t.Gate:
		d.end(keeper, "it was given up before the gate decided")
	default:
		d.wait(30 * time.Second)
	}
}

// keeper is who does what no one asked for.
const keeper = "keeper"

func (d *deciding) launching() {
	s := &d.Session
	switch state := s.Launch.State(); {
	case state == intent.Planned && s.Launch.Key == "":
		d.choose()
	case state == intent.Confirmed && len(s.Machines) > 0:
		n := d.s()
		n.State, n.Why = Starting, ""
		d.say("launched", "%d × %s", len(s.Machines), s.Pool)
		d.change()
	case state == intent.GivenUp, state == intent.Confirmed:
		d.end(keeper, "its machines ended while they were launched")
	case state == intent.Refused:
		d.refused()
	case d.Now.Sub(s.RequestedAt) > d.t.Launch:
		d.end(keeper, "the provider did not say within %s whether its machines were launched: %s", d.t.Launch,
			cmp.Or(s.Launch.Error, "no answer"))
	default:
		d.next.Act, d.next.After = Starts, d.t.Poll
	}
}

// Refusals as they are kept in the launch's step.
const (
	classCapacity    = "capacity"
	classQuota       = "quota"
	classUnsupported = "unsupported"
	classMismatch    = "mismatch"
	classNoRole      = "no-role"
)

// refused follows a launch that the provider refused: only where there is no machine, another
// pool is tried.
func (d *deciding) refused() {
	s := d.s()
	why := s.Launch.Error
	if s.Launch.Refused != classCapacity {
		d.end(keeper, "%s: %s", s.Pool, why)
		return
	}
	s.Tries = append(s.Tries, Try{Pool: s.Pool, Why: why, At: d.Now, Until: d.Now.Add(d.t.Avoid)})
	d.say("no-capacity", "%s: %s", s.Pool, why)
	s.Pool, s.Launch, s.Machines, s.LaunchedAt = Pool{}, intent.Step{}, nil, time.Time{}
	d.change()
}

// choose takes the best pool that is not left aside.
func (d *deciding) choose() {
	if len(d.Pools) == 0 {
		d.end(keeper, "no place to launch it from is known")
		return
	}
	aside := func(p Pool) bool {
		return slices.ContainsFunc(d.Session.Tries, func(t Try) bool { return t.Pool.Same(p) }) ||
			slices.ContainsFunc(d.Aside, func(t Try) bool { return t.Pool.Same(p) && d.Now.Before(t.Until) })
	}
	over := 0
	for _, p := range d.Pools {
		if aside(p) {
			continue
		}
		if d.overCeiling(p) {
			over++
			continue
		}
		s := d.s()
		s.Launches++
		s.Pool, s.Launch = p, intent.Step{Name: "launch", Key: token(s)}
		d.say("launching", "%s", p)
		d.change()
		return
	}
	var tried []string
	for _, t := range d.Session.Tries {
		tried = append(tried, t.Pool.String())
	}
	rest := ""
	if over > 0 {
		rest = fmt.Sprintf(
			"; %d of %d pools cost more than the gate let pass (%s an hour): name a machine type to ask for one", over,
			len(d.Pools), d.Session.Ceiling.Dollars())
	}
	switch {
	case len(tried) > 0:
		d.end(keeper, "no capacity in %s%s", strings.Join(tried, ", "), rest)
	case over == len(d.Pools):
		d.end(keeper, "no place is as cheap as what the gate let pass%s", rest)
	default:
		d.end(keeper, "no capacity: %d pools had none for other sessions within %s%s", len(d.Pools)-over, d.t.Avoid, rest)
	}
}

// overCeiling says whether machines of a pool would cost more than the gate let pass. What has no
// price is.
func (d *deciding) overCeiling(p Pool) bool {
	if d.Session.Ceiling <= 0 {
		return false
	}
	all := rate(p, max(1, d.Nodes))
	if all == nil {
		return true
	}
	hourly, err := all.Times(1)
	return err != nil || hourly > d.Session.Ceiling
}

func (d *deciding) running() {
	s := &d.Session
	alive := d.alive()
	switch {
	case d.Looked && len(alive) < len(s.Machines) && d.Now.Sub(s.LaunchedAt) >= d.t.Shown:
		if d.missing() {
			d.vanished(alive)
		}
		return
	case d.Looked && !s.Missing.IsZero() && len(alive) >= len(s.Machines):
		d.s().Missing = time.Time{}
		d.change()
		return
	}
	if d.Heard && d.hosts() {
		return
	}
	if s.State == Starting && d.Now.Sub(s.LaunchedAt) > d.t.Start {
		d.end(keeper, "it was not ready within %s", d.t.Start)
		return
	}
	if s.State == Ready && d.Now.After(s.LeaseUntil.Add(d.t.Grace)) {
		d.end(keeper, "its lease ended at %s", s.LeaseUntil.UTC().Format(time.RFC3339))
		return
	}
	if d.tell() || d.due() || d.Heard && d.note() {
		return
	}
	d.wait(d.soon())
}

// lookAfter is how often it is looked whether a machine is there that a person started.
const lookAfter = 5 * time.Minute

// byHand looks after machines that a person started: whether they are there, and whether their
// lease is over. The ladder ends them, with its warnings.
func (d *deciding) byHand() {
	s := &d.Session
	over := ""
	if s.State == Ready && !d.Now.Before(s.LeaseUntil) {
		over = "its lease ended at " + s.LeaseUntil.UTC().Format(time.RFC3339) +
			"; a policy that selects expired leases stops it"
	}
	switch {
	case s.State != Ready: // whoever adopts it goes on
	case d.Looked && len(d.alive()) < len(s.Machines):
		if d.missing() {
			d.end(keeper, "its machine was stopped, ended or given back")
		}
		return
	case d.Looked && !s.Missing.IsZero():
		d.s().Missing = time.Time{}
		d.change()
		return
	case s.Why != over:
		d.s().Why = over
		if over != "" {
			d.say("lease", "%s", over)
		}
		d.change()
		return
	}
	d.wait(lookAfter)
}

// soon is when to look again at what runs.
func (d *deciding) soon() time.Duration {
	if d.Session.State == Starting {
		return d.t.Poll
	}
	return 5 * d.t.Poll
}

// vanished is for machines that are gone though no one ended them.
func (d *deciding) vanished(alive []Found) {
	for node, h := range d.Hosts {
		if d.Heard && (h.Phase == HostEnding || h.Phase == HostSaving || h.Phase == HostWarned) {
			d.end("host", "%s", cmp.Or(h.Why, fmt.Sprintf("node %d ended it", node)))
			return
		}
	}
	d.end(keeper, "%d of its %d machines are gone, and it did not end them", len(d.Session.Machines)-len(alive),
		len(d.Session.Machines))
}

// hosts follows what the hosts say. It says whether something is to be done about it.
func (d *deciding) hosts() bool {
	s := &d.Session
	ready := 0
	for node := range s.Machines {
		h, ok := d.Hosts[node]
		if !ok {
			continue
		}
		switch h.Phase {
		case HostFailed:
			d.end("host", "the set-up of node %d failed: %s", node, cmp.Or(h.Why, "it does not say why"))
			return true
		case HostEnding, HostSaving:
			d.end("host", "%s", cmp.Or(h.Why, fmt.Sprintf("node %d ended it", node)))
			return true
		case HostReady, HostWarned:
			ready++
		}
	}
	if s.State == Starting && ready == len(s.Machines) {
		n := d.s()
		n.State, n.ReadyAt, n.Why = Ready, d.Now, ""
		d.say("ready", "after %s", d.Now.Sub(s.RequestedAt).Round(100*time.Millisecond))
		d.newest()
		n.Connections = d.connected()
		d.change()
	}
	return d.next.Act == Change
}

// Within noteWindow, maxNotes changes of a record keep what hosts say; wrongInterval is the least
// time between two notes of what they wrote wrong.
const (
	noteWindow    = time.Minute
	maxNotes      = 20
	wrongInterval = 10 * time.Minute
)

// note keeps what hosts say of themselves in the record. It comes after all that ends a session,
// and is counted, because a host may say something else at each look.
func (d *deciding) note() bool {
	s, changed := d.s(), d.newest()
	if now := d.connected(); s.State != Ending && !slices.Equal(now, s.Connections) {
		s.Connections, changed = now, true
	}
	if wrong := strings.Join(d.Wrong, "; "); wrong != "" && wrong != s.Wrong &&
		(s.WrongAt.IsZero() || d.Now.Sub(s.WrongAt) >= wrongInterval) {
		s.Wrong, s.WrongAt, changed = wrong, d.Now, true
		d.say("wrong", "ignored what hosts wrote that cannot be: %s", wrong)
	}
	return changed && d.counted()
}

// counted asks for the record to be written because of what hosts say, unless they say something
// else too often. Then nothing of it is kept now.
func (d *deciding) counted() bool {
	s := d.s()
	if age := d.Now.Sub(s.NotedAt); age >= noteWindow || age < 0 {
		s.Noted, s.NotedAt = 0, d.Now
	}
	if s.Noted >= maxNotes {
		d.wait(d.t.Poll)
		return false
	}
	s.Noted++
	d.change()
	return true
}

// silent is after what time what a host said last is not how it is now: hosts say how they are
// every 30 seconds.
const silent = 2 * time.Minute

// connected are the connections to machines by what hosts say that are not silent, by node.
func (d *deciding) connected() (out []Connected) {
	for node := range d.Session.Machines {
		h, ok := d.Hosts[node]
		if !ok || d.Now.Sub(h.At) > silent {
			continue
		}
		for _, c := range h.Connections {
			c.Since = c.Since.UTC().Truncate(time.Second)
			out = append(out, Connected{Node: node, Connection: c})
		}
	}
	return out
}

// newest takes the newest snapshot that a host confirmed into the record. It says whether
// there is a newer one.
func (d *deciding) newest() (newer bool) {
	for _, h := range d.Hosts {
		if n := h.Snapshot; n.Manifest != "" && n.At.After(d.s().Snapshot.At) {
			d.s().Snapshot, newer = n, true
			d.s().Snapshot.At = n.At.UTC()
		}
	}
	return newer
}

// wanted is the order that follows from the record and from what the hosts say of themselves.
func (d *deciding) wanted() Order {
	s := &d.Session
	o := Order{
		Schema: OrderSchema, Session: s.ID, Epoch: s.Epoch, Serial: s.Serial, At: d.Now, Lease: s.LeaseUntil.UTC(),
		Idle: Duration(s.Idle), Save: s.Save,
	}
	if s.State == Ending {
		o.End = &End{Why: s.EndWhy, By: s.EndBy, At: s.EndingAt.UTC(), Discard: s.Discard}
	}
	for node := range s.Machines {
		h, ok := d.Hosts[node]
		if !ok || h.Address == "" {
			o.Peers = nil
			return o
		}
		o.Peers = append(o.Peers, h.Address)
	}
	return o
}

// tell gives the order that the record asks for where another one is there. An order has a
// serial of its own for each content, so that hosts obey the newest.
func (d *deciding) tell() bool {
	if !d.Heard || d.Session.Control == "" {
		return false
	}
	want := d.wanted()
	have := d.Order
	if have.Session == want.Session && have.Epoch == want.Epoch && sameOrder(have, want) && have.Serial >= want.Serial {
		return false
	}
	if len(want.Peers) == 0 && have.Session == want.Session && have.Epoch == want.Epoch {
		want.Peers = have.Peers
		if sameOrder(have, want) && have.Serial >= want.Serial {
			return false
		}
	}
	if have.Epoch == want.Epoch && have.Serial >= want.Serial {
		n := d.s()
		n.Serial = have.Serial + 1
		d.change()
		return true
	}
	d.next.Act, d.next.Order = Tell, want
	return true
}

// sameOrder says whether two orders ask for the same.
func sameOrder(a, b Order) bool {
	if (a.End == nil) != (b.End == nil) || a.End != nil && (a.End.Discard != b.End.Discard || a.End.Why != b.End.Why) {
		return false
	}
	return a.Lease.Equal(b.Lease) && a.Idle == b.Idle && a.Save == b.Save && slices.Equal(a.Peers, b.Peers)
}

// due charges for what runs.
func (d *deciding) due() bool {
	s := &d.Session
	if s.LaunchedAt.IsZero() || d.Now.Sub(cmp.Or(s.Charged, s.LaunchedAt)) < d.t.Charge {
		return false
	}
	d.s().Charged = d.Now
	d.next.Act = Charge
	return true
}

// alive are the machines that the provider shows: those that are on their way out too.
func (d *deciding) alive() []Found { return d.Found }

func (d *deciding) ending() {
	s := &d.Session
	// What was asked for and not answered may have been carried out: the call is repeated
	// with its token until the provider says which.
	launch := s.Launch.State()
	if launch == intent.Intended {
		d.next.Act, d.next.After = Starts, d.t.Poll
		return
	}
	if len(s.Machines) == 0 && len(d.Found) == 0 && (launch == intent.Refused || launch == intent.Planned) && !s.Adopted {
		d.over()
		return
	}
	if !s.Gone.IsZero() {
		d.gone()
		return
	}
	if !d.Looked {
		d.wait(5 * time.Second)
		return
	}
	if s.End.Key == "" {
		if !d.overdue() && (d.Heard && d.note() || !d.Untold && d.tell() || !d.saved()) {
			return
		}
		n := d.s()
		d.newest()
		n.End = intent.Step{Name: "end", Key: "end-" + s.ID}
		if n.Lost = d.lost(); n.Lost != "" {
			d.say("lost", "%s", n.Lost)
		}
		d.change()
		return
	}
	switch state := s.End.State(); {
	case state == intent.Confirmed && len(d.alive()) == 0:
		d.s().Gone = d.Now
		d.change()
	case state == intent.Confirmed, state == intent.Accepted && d.Now.Sub(s.End.AcceptedAt) > d.t.Again:
		n := d.s() // the provider shows machines all the same: it is asked again
		n.End = intent.Step{Name: "end", Key: n.End.Key}
		d.change()
	default:
		d.next.Act, d.next.After = Release, d.t.Poll
	}
}

// ReleaseBy is when the machines of a session that ends are released whatever is unfinished; zero
// where no such time is known.
func ReleaseBy(s *Session, t Timing) time.Time {
	from := s.EndingAt
	if from.IsZero() || s.Adopted || s.ByHand {
		return time.Time{}
	}
	t = t.Fill()
	if !t.KeepsFiles && s.LeaseUntil.After(from) {
		from = s.LeaseUntil
	}
	return from.Add(t.End)
}

// overdue says whether the time for the last snapshot is over. It depends on nothing that a host
// says or does.
func (d *deciding) overdue() bool {
	by := ReleaseBy(&d.Session, d.t)
	return !by.IsZero() && !d.Now.Before(by)
}

// lost says which work was not confirmed as saved when the machines are released; empty where all
// was, or was given up.
func (d *deciding) lost() string {
	s := &d.Session
	if s.Discard || s.ByHand || s.Adopted {
		return ""
	}
	var lost []string
	for _, m := range d.machines(d.alive()) {
		h, ok := d.Hosts[m.Node]
		ok = ok && d.Heard
		switch {
		case ok && h.Phase == HostEnding && h.Unsaved == "", s.ReadyAt.IsZero() && (!ok || h.Phase == HostFailed):
		case ok && h.Unsaved != "":
			lost = append(lost, fmt.Sprintf("node %d: %s", m.Node, h.Unsaved))
		default:
			lost = append(lost, fmt.Sprintf("node %d did not confirm its last snapshot", m.Node))
		}
	}
	if len(lost) == 0 {
		return ""
	}
	newest := "no snapshot of its work is confirmed"
	if n := d.s().Snapshot; n.Manifest != "" {
		newest = "the newest confirmed snapshot is of " + n.At.UTC().Format(time.RFC3339)
	}
	return strings.Join(lost, "; ") + "; " + newest
}

// saved says whether a session's machines may be released: every host has saved its work, or
// has nothing to save, or its owner gave it up, or it is gone.
func (d *deciding) saved() bool {
	s := &d.Session
	if s.Adopted {
		switch {
		case d.Now.Before(s.NotBefore):
			d.wait(s.NotBefore.Sub(d.Now))
			return false
		case d.Strays > MaxStrays:
			d.because(
				"%d machines without a record are due at once, which is a sign that the records are wrong: end them by hand",
				d.Strays)
			return false
		}
		return true // its lease is over, and its host was to save and end by itself
	}
	if s.Discard || s.ByHand { // a machine that a person started keeps its disks
		return true
	}
	if !d.Heard {
		d.because("what its hosts saved cannot be read")
		return false
	}
	alive := d.alive()
	for _, m := range d.machines(alive) {
		h, ok := d.Hosts[m.Node]
		switch {
		case ok && h.Phase == HostEnding, ok && h.Phase == HostFailed && s.ReadyAt.IsZero():
		case !slices.ContainsFunc(alive, func(f Found) bool { return f.ID == m.ID }):
			if !d.missing() { // once it is gone there is nothing to save any more
				return false
			}
		case !ok && s.ReadyAt.IsZero() && d.Now.Sub(cmp.Or(s.LaunchedAt, s.EndingAt)) > d.t.Start:
			// It never said a word: no one worked on it.
		case !ok:
			d.because("node %d has not said yet that its work is saved", m.Node)
			return false
		default:
			d.because("node %d is saving its work%s", m.Node, unsaved(h))
			return false
		}
	}
	return true
}

// missing says whether machines that the provider does not show are gone: not before it
// shows all that were launched, and by two look-ups.
func (d *deciding) missing() bool {
	s := &d.Session
	switch shown := s.LaunchedAt.Add(d.t.Shown); {
	case d.Now.Before(shown):
		d.wait(min(shown.Sub(d.Now), d.t.Poll))
	case s.Missing.IsZero():
		d.s().Missing = d.Now
		d.change()
	case d.Now.Sub(s.Missing) < d.t.Apart:
		d.wait(d.t.Apart - d.Now.Sub(s.Missing))
	default:
		return true
	}
	return false
}

// machines are those of the record, and those that were found and are not in it.
func (d *deciding) machines(alive []Found) []Machine {
	out := slices.Clone(d.Session.Machines)
	for _, f := range alive {
		if !slices.ContainsFunc(out, func(m Machine) bool { return m.ID == f.ID }) {
			out = append(out, f.Machine)
		}
	}
	return out
}

func unsaved(h Status) string {
	if h.Unsaved == "" {
		return ""
	}
	return ": " + h.Unsaved
}

// because keeps why a session does not go on.
func (d *deciding) because(format string, a ...any) {
	why := d.Session.EndWhy + "; " + fmt.Sprintf(format, a...)
	if why == d.Session.Why {
		d.wait(d.t.Poll)
		return
	}
	d.s().Why = why
	d.counted()
}

// gone is a session whose machines were gone at one look-up: a second one has to say so too.
func (d *deciding) gone() {
	switch {
	case !d.Looked:
		d.wait(5 * time.Second)
	case len(d.alive()) > 0:
		n := d.s()
		n.Gone, n.End = time.Time{}, intent.Step{Name: "end", Key: n.End.Key}
		d.change()
	case d.Now.Sub(d.Session.Gone) < d.t.Apart:
		d.wait(d.t.Apart - d.Now.Sub(d.Session.Gone))
	default:
		d.over()
	}
}

// over cleans up and closes the record.
func (d *deciding) over() {
	s := d.s()
	s.EndedAt = d.Now
	if !s.Gone.IsZero() {
		s.EndedAt = s.Gone
	}
	s.State, s.Why = Ended, s.EndWhy
	if s.ReadyAt.IsZero() && !s.Adopted {
		s.State = Failed
	}
	for i := range s.Machines {
		s.Machines[i].State = inventory.StateDeleting
	}
	d.say("ended", "%s", s.Why)
	d.next.Act = Clean
}
