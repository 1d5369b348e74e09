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

func (d *decider) decideEnding() {
	s := &d.Session
	// An unacknowledged launch may have succeeded: retry with its idempotency token until the
	// provider reports the outcome.
	launch := s.LaunchStep.State()
	if launch == intent.Intended {
		d.decision.Step, d.decision.RetryAfter = StepLaunch, d.timeouts.PollInterval
		return
	}
	if s.Replacement != nil && d.followReplacement() || d.countFormer() {
		return
	}
	if len(s.Machines) == 0 && len(d.FoundMachines) == 0 && (launch == intent.Refused || launch == intent.Planned) &&
		!s.Orphan {
		d.cleanUp()
		return
	}
	if !s.GoneSince.IsZero() {
		d.confirmGone()
		return
	}
	if !d.MachinesListed {
		d.wait(5 * time.Second)
		return
	}
	if s.EndStep.Key == "" {
		if !d.overdue() && (d.HostsRead && d.noteHosts() || !d.OrderFailed && d.sendOrder() || !d.readyToRelease()) {
			return
		}
		n := d.record()
		d.takeNewestSnapshot()
		d.takeOutcome()
		n.EndStep = intent.Step{Name: "end", Key: "end-" + s.ID}
		if n.UnsavedWork = d.unsavedWork(); n.UnsavedWork != "" {
			d.addEvent("lost", "%s", n.UnsavedWork)
		}
		d.writeRecord()
		return
	}
	switch state := s.EndStep.State(); {
	case state == intent.Confirmed && len(d.found()) == 0:
		d.record().GoneSince = d.Now
		d.writeRecord()
	case state == intent.Confirmed, state == intent.Accepted &&
		d.Now.Sub(s.EndStep.AcceptedAt) > d.timeouts.TerminateRetry:
		n := d.record() // the provider still lists machines: request the end again
		n.EndStep = intent.Step{Name: "end", Key: n.EndStep.Key}
		d.writeRecord()
	default:
		d.decision.Step, d.decision.RetryAfter = StepRelease, d.timeouts.PollInterval
	}
}

// ReleaseBy returns the time at which the machines of an ending session are released even if work
// is unsaved; zero if unknown.
func ReleaseBy(s *Session, t Timeouts) time.Time {
	start := s.EndingAt
	if start.IsZero() || s.Orphan || s.UserLaunched {
		return time.Time{}
	}
	t = t.WithDefaults()
	if !t.KeepsFiles && s.LeaseUntil.After(start) {
		start = s.LeaseUntil
	}
	return start.Add(t.End)
}

// overdue reports whether the time for the last snapshot is over. It depends on nothing that a host
// reports.
func (d *decider) overdue() bool {
	by := ReleaseBy(&d.Session, d.timeouts)
	return !by.IsZero() && !d.Now.Before(by)
}

// unsavedWork describes the work that is not confirmed as saved at release; it is empty if all is
// saved or discarded.
func (d *decider) unsavedWork() string {
	s := &d.Session
	if s.Discard || s.UserLaunched || s.Orphan {
		return ""
	}
	var lost []string
	for _, m := range d.allMachines(d.found()) {
		h, ok := d.Hosts[m.Node]
		ok = ok && d.HostsRead
		switch {
		case ok && h.Phase == HostEnding && h.UnsavedReason == "", s.ReadyAt.IsZero() &&
			(!ok || h.Phase == HostFailed):
		case ok && h.Phase == HostEnding && s.Job != "": // what a killed command left half-written is no work
		case ok && h.UnsavedReason != "":
			lost = append(lost, fmt.Sprintf("node %d: %s", m.Node, h.UnsavedReason))
		default:
			lost = append(lost, fmt.Sprintf("node %d did not confirm its last snapshot", m.Node))
		}
	}
	if len(lost) == 0 {
		return ""
	}
	newest := "no snapshot of its work is confirmed"
	if n := d.record().Snapshot; n.Manifest != "" {
		newest = "the newest confirmed snapshot is of " + n.At.UTC().Format(time.RFC3339)
	}
	return strings.Join(lost, "; ") + "; " + newest
}

// readyToRelease reports whether the machines may be released: each host has saved, has nothing to
// save or is gone, or the owner discarded the work.
func (d *decider) readyToRelease() bool {
	s := &d.Session
	if s.Orphan {
		switch {
		case d.Now.Before(s.EndNotBefore):
			d.wait(s.EndNotBefore.Sub(d.Now))
			return false
		case d.DueOrphans > MaxDueOrphans:
			d.explainWait(
				"%d machines without a record are due at once, which is a sign that the records are wrong: end them by hand",
				d.DueOrphans)
			return false
		}
		return true // the lease is over, and the host was to save and end by itself
	}
	if s.Discard || s.UserLaunched { // a machine that a person launched keeps its disks
		return true
	}
	if !d.HostsRead {
		d.explainWait("what its hosts saved cannot be read")
		return false
	}
	found := d.found()
	for _, m := range d.allMachines(found) {
		h, ok := d.Hosts[m.Node]
		switch {
		case ok && h.Phase == HostEnding, ok && h.Phase == HostFailed && s.ReadyAt.IsZero():
		case !slices.ContainsFunc(found, func(f FoundMachine) bool { return f.ID == m.ID }):
			if !d.confirmMissing() { // a machine that is gone cannot save any more
				return false
			}
		case !ok && s.ReadyAt.IsZero() && d.Now.Sub(cmp.Or(s.LaunchedAt, s.EndingAt)) > d.timeouts.Start:
			// The host never reported, so no one worked on it.
		case !ok:
			d.explainWait("node %d has not said yet that its work is saved", m.Node)
			return false
		default:
			d.explainWait("node %d is saving its work%s", m.Node, unsavedSuffix(h))
			return false
		}
	}
	return true
}

// confirmMissing reports whether unlisted machines are gone: after VisibilityDelay, by two lookups.
func (d *decider) confirmMissing() bool {
	s := &d.Session
	switch shown := s.LaunchedAt.Add(d.timeouts.VisibilityDelay); {
	case d.Now.Before(shown):
		d.wait(min(shown.Sub(d.Now), d.timeouts.PollInterval))
	case s.MissingSince.IsZero():
		d.record().MissingSince = d.Now
		d.writeRecord()
	case d.Now.Sub(s.MissingSince) < d.timeouts.LookupInterval:
		d.wait(d.timeouts.LookupInterval - d.Now.Sub(s.MissingSince))
	default:
		return true
	}
	return false
}

// allMachines returns the machines of the record and the found ones that it lacks.
func (d *decider) allMachines(found []FoundMachine) []Machine {
	out := slices.Clone(d.Session.Machines)
	for _, f := range found {
		if !slices.ContainsFunc(out, func(m Machine) bool { return m.ID == f.ID }) {
			out = append(out, f.Machine)
		}
	}
	return out
}

func unsavedSuffix(h Status) string {
	if h.UnsavedReason == "" {
		return ""
	}
	return ": " + h.UnsavedReason
}

// explainWait records why the session does not continue.
func (d *decider) explainWait(format string, a ...any) {
	why := d.Session.EndReason + "; " + fmt.Sprintf(format, a...)
	if why == d.Session.Why {
		d.wait(d.timeouts.PollInterval)
		return
	}
	d.record().Why = why
	d.writeNote()
}

// confirmGone requires a second empty lookup before the session is closed.
func (d *decider) confirmGone() {
	switch {
	case !d.MachinesListed:
		d.wait(5 * time.Second)
	case len(d.found()) > 0:
		n := d.record()
		n.GoneSince, n.EndStep = time.Time{}, intent.Step{Name: "end", Key: n.EndStep.Key}
		d.writeRecord()
	case d.Now.Sub(d.Session.GoneSince) < d.timeouts.LookupInterval:
		d.wait(d.timeouts.LookupInterval - d.Now.Sub(d.Session.GoneSince))
	default:
		d.cleanUp()
	}
}

// cleanUp requests the cleanup and closes the record.
func (d *decider) cleanUp() {
	s := d.record()
	s.EndedAt = d.Now
	if !s.GoneSince.IsZero() {
		s.EndedAt = s.GoneSince
	}
	s.State, s.Why = Ended, s.EndReason
	if s.ReadyAt.IsZero() && !s.Orphan {
		s.State = Failed
	}
	for i := range s.Machines {
		s.Machines[i].State = inventory.StateDeleting
	}
	s.markGone(s.EndedAt)
	d.addEvent("ended", "%s", s.Why)
	d.decision.Step = StepCleanUp
}
