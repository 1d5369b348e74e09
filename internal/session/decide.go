package session

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
)

// Timeouts bounds the waiting times of a session. Zero fields take the values of [DefaultTimeouts].
type Timeouts struct {
	// Gate bounds the time until the gate decides, Approval the time that a request waits for an
	// approver.
	Gate, Approval time.Duration
	// Launch bounds the time until machines are launched, Start the time until they are ready.
	Launch, Start time.Duration
	// PoolBackoff is the time that a pool without capacity is not tried again.
	PoolBackoff time.Duration
	// VisibilityDelay is the longest that the provider may hide a launched machine.
	VisibilityDelay time.Duration
	// LookupInterval is the time between the two empty lookups that prove machines gone.
	LookupInterval time.Duration
	// TerminateRetry is the time after which an accepted end is requested again.
	TerminateRetry time.Duration
	// OrphanGrace is the time between the warning about an orphan and its end.
	OrphanGrace time.Duration
	// ChargeInterval is the time between charges to the ledger.
	ChargeInterval time.Duration
	// PollInterval is the time between lookups while machines start or end.
	PollInterval time.Duration
	// Grace is the time between a host's warning and its end, Save the longest that its last
	// snapshot may take.
	Grace, Save time.Duration
	// End bounds warning, saving and release together; it defaults to Grace, Save and [EndMargin].
	// After it the machines are released even if work is unsaved.
	End time.Duration
	// KeepsFiles reports that files outlive their machine, so that no machine waits for them.
	// Otherwise End counts from the end of the lease.
	KeepsFiles bool
}

// EndMargin is the default slack of End beyond Grace and Save.
const EndMargin = 3 * time.Minute

// DefaultTimeouts returns timeouts for providers with eventually consistent listings.
func DefaultTimeouts() Timeouts {
	return Timeouts{
		Gate:            15 * time.Minute,
		Approval:        24 * time.Hour,
		Launch:          15 * time.Minute,
		Start:           30 * time.Minute,
		PoolBackoff:     10 * time.Minute,
		VisibilityDelay: 2 * time.Minute,
		LookupInterval:  5 * time.Second,
		TerminateRetry:  2 * time.Minute,
		OrphanGrace:     30 * time.Minute,
		ChargeInterval:  10 * time.Minute,
		PollInterval:    2 * time.Second,
		Grace:           2 * time.Minute,
		Save:            10 * time.Minute,
	}
}

// WithDefaults replaces zero fields by their defaults.
func (t Timeouts) WithDefaults() Timeouts {
	d := DefaultTimeouts()
	t.Gate, t.Approval = cmp.Or(t.Gate, d.Gate), cmp.Or(t.Approval, d.Approval)
	t.Launch, t.Start = cmp.Or(t.Launch, d.Launch), cmp.Or(t.Start, d.Start)
	t.PoolBackoff = cmp.Or(t.PoolBackoff, d.PoolBackoff)
	t.VisibilityDelay = cmp.Or(t.VisibilityDelay, d.VisibilityDelay)
	t.LookupInterval = cmp.Or(t.LookupInterval, d.LookupInterval)
	t.TerminateRetry = cmp.Or(t.TerminateRetry, d.TerminateRetry)
	t.PollInterval, t.ChargeInterval = cmp.Or(t.PollInterval, d.PollInterval), cmp.Or(
		t.ChargeInterval, d.ChargeInterval)
	t.OrphanGrace = cmp.Or(t.OrphanGrace, d.OrphanGrace)
	t.Grace, t.Save = cmp.Or(t.Grace, d.Grace), cmp.Or(t.Save, d.Save)
	t.End = cmp.Or(t.End, t.Grace+t.Save+EndMargin)
	t.Save = min(t.Save, t.End)
	return t
}

// Observation is the input of Decide: one session and its latest known state.
type Observation struct {
	Now     time.Time
	Session Session
	// FoundMachines are the session's machines as the provider lists them, valid if MachinesListed.
	FoundMachines  []FoundMachine
	MachinesListed bool
	// Hosts holds the last statuses by node, valid if HostsRead.
	Hosts     map[int]Status
	HostsRead bool
	// RejectedFields describes the invalid parts of host documents, which Hosts omits.
	RejectedFields []string
	// OrderFailed reports that writing the order failed in this pass.
	OrderFailed bool
	// Order is the current order document.
	Order Order
	// Pools are the pools that can launch Nodes machines, best first, read only while launching (PoolsRead).
	// CapacityFailures are the recent launch failures of all sessions.
	Pools            []Pool
	PoolsRead        bool
	Nodes            int
	CapacityFailures []CapacityFailure
	// HasGate reports that this process can call the gate.
	HasGate bool
	// DueOrphans counts the machines without a record that are due to end now.
	DueOrphans int
}

// Step is the next action that Decide asks for.
type Step string

// The steps. After each step the session is observed again.
const (
	StepWait        Step = "wait"    // do nothing now
	StepAdmit       Step = "admit"   // call the gate
	StepWriteRecord Step = "change"  // write Decision.Session
	StepLaunch      Step = "launch"  // advance the launch
	StepSendOrder   Step = "order"   // write Decision.Order
	StepReplace     Step = "replace" // advance the launch of a replacement
	StepEndStrays   Step = "strays"  // end machines that the session no longer has, then write Decision.Session
	StepRelease     Step = "end"     // advance the release of the machines
	StepCleanUp     Step = "clean"   // delete leftovers, charge, settle the hold, then write Decision.Session
	StepCharge      Step = "charge"  // charge the ledger, then write Decision.Session
)

// Decision is the next step of a session and the time to decide again if nothing happens.
type Decision struct {
	Step Step
	// Session is the record to write together with Events.
	Session    Session
	Events     []Event
	Order      Order
	RetryAfter time.Duration
}

// MaxDueOrphans is the most orphans that may end at once: more of them suggest that the records are
// wrong, and none is ended.
const MaxDueOrphans = 5

// Decide returns the next step of a session. It is a pure function of the observation and the
// timeouts.
func Decide(v Observation, t Timeouts) Decision {
	d := &decider{
		Observation: v, timeouts: t, decision: Decision{Step: StepWait, Session: v.Session, RetryAfter: time.Minute},
	}
	if v.Session.UserLaunched && v.Session.State != Ending {
		d.decideUserLaunched()
		return d.decision
	}
	switch v.Session.State {
	case Requested:
		d.decideRequested()
	case Launching:
		d.decideLaunching()
	case Starting, Ready:
		d.decideRunning()
	case Ending:
		d.decideEnding()
	}
	return d.decision
}

type decider struct {
	Observation
	timeouts Timeouts
	decision Decision
	// ending reports that the decision is to end the session.
	ending bool
}

// record returns the record to write.
func (d *decider) record() *Session { return &d.decision.Session }

// addEvent adds an event of the keeper.
func (d *decider) addEvent(kind, format string, a ...any) {
	d.decision.Events = append(d.decision.Events, Event{
		At: d.Now, Node: KeeperNode, Kind: kind, Text: fmt.Sprintf(format, a...),
	})
}

// writeRecord requests that the record be written.
func (d *decider) writeRecord() { d.decision.Step = StepWriteRecord }

// wait requests another decision after a time and discards changes to the record.
func (d *decider) wait(after time.Duration) {
	d.decision = Decision{Step: StepWait, Session: d.Session, RetryAfter: max(after, 0)}
}

// beginEnding moves the session to Ending.
func (d *decider) beginEnding(by, format string, a ...any) {
	s := d.record()
	d.ending = true
	d.takeOutcome() // before the machine and its documents go
	setEnding(s, d.Now, by, fmt.Sprintf(format, a...))
	d.addEvent("ending", "%s", s.Why)
	d.writeRecord()
}

// setEnding moves a session to Ending.
func setEnding(s *Session, now time.Time, by, why string) {
	s.State, s.EndingAt, s.EndedBy, s.EndReason, s.Why = Ending, now, by, why, why
	s.Unplaced = false
	s.OrderSerial++
}

func (d *decider) decideRequested() {
	age := d.Now.Sub(d.Session.RequestedAt)
	switch {
	case d.Session.ApprovalID != "" && age > d.timeouts.Approval:
		d.beginEnding(KeeperActor, "no one approved request %s within %s", d.Session.ApprovalID, d.timeouts.Approval)
	case d.HasGate:
		d.decision.Step = StepAdmit
	case d.Session.ApprovalID == "" && age > d.timeouts.Gate:
		d.beginEnding(KeeperActor, "it was given up before the gate decided")
	default:
		d.wait(30 * time.Second)
	}
}

// Actors of steps that no person requested: the keeper, a host, and the keeper of a job.
const (
	KeeperActor = "keeper"
	HostActor   = "host"
	JobActor    = "job"
)

func (d *decider) decideLaunching() {
	s := &d.Session
	switch state := s.LaunchStep.State(); {
	case s.Unplaced:
		d.wait(time.Minute) // nothing runs, and the job's keeper chooses other places
	case state == intent.Planned && s.Job != "" && !d.Now.Before(s.LeaseUntil):
		d.beginEnding(KeeperActor, "its lease ended before a machine was launched")
	case state == intent.Planned && s.LaunchStep.Key == "":
		d.choosePool()
	case state == intent.Confirmed && len(s.Machines) > 0:
		n := d.record()
		n.State, n.Why = Starting, ""
		d.addEvent("launched", "%d × %s", len(s.Machines), s.Pool)
		d.writeRecord()
	case state == intent.GivenUp, state == intent.Confirmed:
		d.beginEnding(KeeperActor, "its machines ended while they were launched")
	case state == intent.Refused:
		d.handleRefusedLaunch()
	case d.Now.Sub(cmp.Or(s.PlacedAt, s.RequestedAt)) > d.timeouts.Launch:
		d.beginEnding(KeeperActor, "the provider did not say within %s whether its machines were launched: %s",
			d.timeouts.Launch,
			cmp.Or(s.LaunchStep.Error, "no answer"))
	default:
		d.decision.Step, d.decision.RetryAfter = StepLaunch, d.timeouts.PollInterval
	}
}

// ClassCapacity and the others are classes of refused launches, stored in the launch step.
const (
	ClassCapacity    = "capacity"
	classQuota       = "quota"
	classUnsupported = "unsupported"
	classMismatch    = "mismatch"
	classNoRole      = "no-role"
)

// handleRefusedLaunch tries another pool if the refused one lacks capacity, and ends the session
// otherwise.
func (d *decider) handleRefusedLaunch() {
	s := d.record()
	why := s.LaunchStep.Error
	if s.LaunchStep.Refused != ClassCapacity {
		d.beginEnding(KeeperActor, "%s: %s", s.Pool, why)
		return
	}
	if !s.FoundWithout(s.Pool) { // a job that waits for days tries it again and again
		d.addEvent("no-capacity", "%s: %s", s.Pool, why)
	}
	s.CapacityFailures = append(s.CapacityFailures, CapacityFailure{
		Pool: s.Pool, Why: why, At: d.Now, Until: d.Now.Add(d.timeouts.PoolBackoff),
	})
	s.Pool, s.LaunchStep, s.Machines, s.LaunchedAt = Pool{}, intent.Step{}, nil, time.Time{}
	d.writeRecord()
}

func (d *decider) decideRunning() {
	s := &d.Session
	missing := d.missing()
	switch {
	case d.MachinesListed && len(missing) > 0:
		if d.confirmMissing() && !d.replaceLost(missing) {
			d.endVanished(missing)
		}
		return
	case d.MachinesListed && !s.MissingSince.IsZero() && d.allFound():
		d.record().MissingSince = time.Time{}
		d.writeRecord()
		return
	}
	if d.followReplacement() || d.countFormer() || d.endStrays() {
		return
	}
	if d.HostsRead && d.followHosts() {
		return
	}
	if s.State == Starting && d.Now.Sub(s.LaunchedAt) > d.timeouts.Start {
		d.beginEnding(KeeperActor, "it was not ready within %s", d.timeouts.Start)
		return
	}
	if (s.State == Ready || s.Held) && d.Now.After(s.LeaseUntil.Add(d.timeouts.Grace)) {
		d.beginEnding(KeeperActor, "its lease ended at %s", s.LeaseUntil.UTC().Format(time.RFC3339))
		return
	}
	if d.sendOrder() || d.chargeIfDue() || d.HostsRead && d.noteHosts() {
		return
	}
	d.wait(d.pollInterval())
}

// userLaunchedPollInterval is the time between lookups of machines that a person launched.
const userLaunchedPollInterval = 5 * time.Minute

// decideUserLaunched tracks whether machines that a person launched still exist and whether their
// lease is over. The safety ladder ends them, with its warnings.
func (d *decider) decideUserLaunched() {
	s := &d.Session
	leaseNote := ""
	if s.State == Ready && !d.Now.Before(s.LeaseUntil) {
		leaseNote = "its lease ended at " + s.LeaseUntil.UTC().Format(time.RFC3339) +
			"; a policy that selects expired leases stops it"
	}
	switch {
	case s.State != Ready: // the adopting command completes the record
	case d.MachinesListed && len(d.found()) < len(s.Machines):
		if d.confirmMissing() {
			d.beginEnding(KeeperActor, "its machine was stopped, ended or given back")
		}
		return
	case d.MachinesListed && !s.MissingSince.IsZero():
		d.record().MissingSince = time.Time{}
		d.writeRecord()
		return
	case s.Why != leaseNote:
		d.record().Why = leaseNote
		if leaseNote != "" {
			d.addEvent("lease", "%s", leaseNote)
		}
		d.writeRecord()
		return
	}
	d.wait(userLaunchedPollInterval)
}

// pollInterval returns the time until the next lookup of running machines.
func (d *decider) pollInterval() time.Duration {
	if d.Session.State == Starting {
		return d.timeouts.PollInterval
	}
	return 5 * d.timeouts.PollInterval
}

// missing returns the machines of the record that are not listed any more, and could be.
func (d *decider) missing() (out []Machine) {
	for _, m := range d.Session.Machines {
		since := cmp.Or(m.LaunchedAt, d.Session.LaunchedAt)
		if m.Round == 0 {
			since = d.Session.LaunchedAt
		}
		if m.EndedAt.IsZero() && !d.lists(m.ID) && d.Now.Sub(since) >= d.timeouts.VisibilityDelay {
			out = append(out, m)
		}
	}
	return out
}

// lists reports whether the provider lists a machine.
func (d *decider) lists(id string) bool {
	return slices.ContainsFunc(d.found(), func(f FoundMachine) bool { return f.ID == id })
}

// allFound reports whether the provider lists every machine of the record that is not known as lost.
func (d *decider) allFound() bool {
	return !slices.ContainsFunc(d.Session.Machines, func(m Machine) bool {
		return m.EndedAt.IsZero() && !d.lists(m.ID)
	})
}

// endVanished ends a session whose machines are gone without the keeper's doing.
func (d *decider) endVanished(missing []Machine) {
	for node, h := range d.Hosts {
		if d.HostsRead && (h.Phase == HostEnding || h.Phase == HostSaving || h.Phase == HostWarned) {
			d.beginEnding(HostActor, "%s", cmp.Or(h.Why, fmt.Sprintf("node %d ended it", node)))
			return
		}
	}
	if d.record().NodeLost = len(d.Session.Machines) > 1; !d.record().NodeLost {
		d.beginEnding(KeeperActor, "its machine is gone, and curfew did not end it")
		return
	}
	d.beginEnding(KeeperActor, "%d of its %d machines are gone, and curfew did not end them",
		len(missing), len(d.Session.Machines))
}

// followHosts applies the phases that hosts report. It returns true if the record changes.
func (d *decider) followHosts() bool {
	s := &d.Session
	ready := 0
	for node := range s.Machines {
		h, ok := d.Hosts[node]
		if !ok {
			continue
		}
		switch h.Phase {
		case HostFailed:
			d.beginEnding(HostActor, "the set-up of node %d failed: %s", node, cmp.Or(h.Why, "it does not say why"))
			return true
		case HostEnding, HostSaving:
			if !h.NoticeAt.IsZero() && len(s.Restarts) < s.MaxReplacements && s.State == Ready {
				continue // it is replaced once it is gone
			}
			d.beginEnding(HostActor, "%s", cmp.Or(h.Why, fmt.Sprintf("node %d ended it", node)))
			return true
		case HostReady, HostWarned:
			ready++
		}
	}
	if o := d.outcome(); s.Job != "" && o != nil && o.Class == Succeeded {
		d.beginEnding(JobActor, "its command succeeded")
		return true
	}
	if s.State == Starting && ready == len(s.Machines) {
		n := d.record()
		n.State, n.ReadyAt, n.Why = Ready, d.Now, ""
		d.addEvent("ready", "after %s", d.Now.Sub(s.RequestedAt).Round(100*time.Millisecond))
		d.takeNewestSnapshot()
		n.Connections = d.liveConnections()
		d.writeRecord()
	}
	return d.decision.Step == StepWriteRecord
}

// At most maxNotes writes per noteWindow record what hosts report, and rejected fields are recorded
// once per wrongInterval.
const (
	noteWindow    = time.Minute
	maxNotes      = 20
	wrongInterval = 10 * time.Minute
)

// noteHosts records what hosts report. It runs after everything that can end the session and is
// rate-limited, because a host may report something new at every poll.
func (d *decider) noteHosts() bool {
	s, changed := d.record(), d.takeNewestSnapshot()
	changed = d.takeOutcome() || changed
	changed = d.takeRestart() || changed
	changed = d.takeCommonStep() || changed
	if now := d.liveConnections(); s.State != Ending && !slices.Equal(now, s.Connections) {
		s.Connections, changed = now, true
	}
	if wrong := strings.Join(d.RejectedFields, "; "); wrong != "" && wrong != s.RejectedFields &&
		(s.RejectedAt.IsZero() || d.Now.Sub(s.RejectedAt) >= wrongInterval) {
		s.RejectedFields, s.RejectedAt, changed = wrong, d.Now, true
		d.addEvent("wrong", "ignored what hosts wrote that cannot be: %s", wrong)
	}
	return changed && d.writeNote()
}

// writeNote requests a write of reported changes unless the limit is reached, in which case it
// drops them.
func (d *decider) writeNote() bool {
	s := d.record()
	if age := d.Now.Sub(s.NotesSince); age >= noteWindow || age < 0 {
		s.NoteCount, s.NotesSince = 0, d.Now
	}
	if s.NoteCount >= maxNotes {
		d.wait(d.timeouts.PollInterval)
		return false
	}
	s.NoteCount++
	d.writeRecord()
	return true
}

// statusMaxAge is the age at which a status is stale; hosts write one every 30 seconds.
const statusMaxAge = 2 * time.Minute

// liveConnections returns the connections that fresh statuses report, by node.
func (d *decider) liveConnections() (out []NodeConnection) {
	for node := range d.Session.Machines {
		h, ok := d.Hosts[node]
		if !ok || d.Now.Sub(h.At) > statusMaxAge {
			continue
		}
		for _, c := range h.Connections {
			c.Since = c.Since.UTC().Truncate(time.Second)
			out = append(out, NodeConnection{Node: node, Connection: c})
		}
	}
	return out
}

// takeNewestSnapshot records the newest snapshot that a host confirmed. It returns true if there is
// a newer one.
func (d *decider) takeNewestSnapshot() (newer bool) {
	for _, h := range d.Hosts {
		if n := h.Snapshot; n.Manifest != "" && n.At.After(d.record().Snapshot.At) {
			d.record().Snapshot, newer = n, true
			d.record().Snapshot.At = n.At.UTC()
		}
	}
	return newer
}

// desiredOrder returns the order that follows from the record and the hosts' addresses.
func (d *decider) desiredOrder() Order {
	s := &d.Session
	o := Order{
		Schema: OrderSchema, Session: s.ID, Epoch: s.Epoch, Serial: s.OrderSerial, At: d.Now,
		LeaseUntil:  s.LeaseUntil.UTC(),
		IdleTimeout: Duration(s.IdleTimeout), SaveRequest: s.SaveRequest, Held: s.Held && !s.Begun,
		Round: s.Round(), MachineRounds: s.machineRounds(),
	}
	if n := len(s.Restarts); n > 0 {
		o.RestoreStep = s.Restarts[n-1].Step
	}
	if s.State == Ending {
		o.End = &End{Why: s.EndReason, By: s.EndedBy, At: s.EndingAt.UTC(), Discard: s.Discard}
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

// sendOrder requests a write of the desired order if the current one differs. Each content has its
// own serial, so that hosts can obey the newest.
func (d *decider) sendOrder() bool {
	if !d.HostsRead || d.Session.ControlPrefix == "" {
		return false
	}
	desired := d.desiredOrder()
	current := d.Order
	if current.Session == desired.Session && current.Epoch == desired.Epoch && sameOrder(current, desired) &&
		current.Serial >= desired.Serial {
		return false
	}
	if len(desired.Peers) == 0 && current.Session == desired.Session && current.Epoch == desired.Epoch &&
		current.Round == desired.Round {
		desired.Peers = current.Peers
		if sameOrder(current, desired) && current.Serial >= desired.Serial {
			return false
		}
	}
	if current.Epoch == desired.Epoch && current.Serial >= desired.Serial {
		n := d.record()
		n.OrderSerial = current.Serial + 1
		d.writeRecord()
		return true
	}
	d.decision.Step, d.decision.Order = StepSendOrder, desired
	return true
}

// sameOrder reports whether two orders request the same.
func sameOrder(a, b Order) bool {
	if (a.End == nil) != (b.End == nil) || a.End != nil && (a.End.Discard != b.End.Discard || a.End.Why != b.End.Why) {
		return false
	}
	return a.LeaseUntil.Equal(b.LeaseUntil) && a.IdleTimeout == b.IdleTimeout && a.SaveRequest == b.SaveRequest &&
		a.Held == b.Held && a.Round == b.Round && slices.Equal(a.Peers, b.Peers)
}

// chargeIfDue requests a charge for running machines once per ChargeInterval.
func (d *decider) chargeIfDue() bool {
	s := &d.Session
	if s.LaunchedAt.IsZero() || d.Now.Sub(cmp.Or(s.ChargedUntil, s.LaunchedAt)) < d.timeouts.ChargeInterval {
		return false
	}
	d.record().ChargedUntil = d.Now
	d.decision.Step = StepCharge
	return true
}

// found returns the listed machines, including terminating ones.
func (d *decider) found() []FoundMachine { return d.FoundMachines }
