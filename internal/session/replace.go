package session

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/intent"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Replacement is the launch of one machine for a node whose machine is gone. The launch is an intent with
// a token of its own; until its outcome is known, nothing else is launched or given up.
type Replacement struct {
	Node  int
	Pool  Pool
	Since time.Time
	// LeaseUntil is the lease that the machine is launched with.
	LeaseUntil time.Time
	Step       intent.Step
}

// Restart is a restart of all nodes from one snapshot, because the machine of one was lost.
type Restart struct {
	Node int
	// Machine is the lost machine, At the time since which it is missing.
	Machine string
	At      time.Time
	// Step is the step that all nodes go on from, and Until the time of the work that is saved; nil and zero
	// if none is known.
	Step  *int64    `json:",omitempty"`
	Until time.Time `json:",omitzero"`
	// CommandAt is the time at which the command runs again; zero while it does not.
	CommandAt time.Time `json:",omitzero"`
}

// Round returns the number of restarts: reports about commands of an earlier round no longer count.
func (s *Session) Round() int64 { return int64(len(s.Restarts)) }

// HostNumber returns the number under which the host of a node writes its documents: that of the node for
// the first machine, and one that no other machine had for its replacements. A lost machine that comes
// back writes into documents that no one reads.
func (s *Session) HostNumber(node int) int {
	for _, m := range s.Machines {
		if m.Node == node {
			return hostNumber(node, len(s.Machines), m.Round)
		}
	}
	return node
}

func hostNumber(node, nodes int, round int64) int { return node + max(1, nodes)*int(round) }

// NodeOf returns the node of the host with a number.
func (s *Session) NodeOf(number int) int {
	if number < 0 || len(s.Machines) == 0 {
		return number
	}
	return number % len(s.Machines)
}

// machineRounds returns the rounds that the machines were launched for in node order; nil if all were
// launched together.
func (s *Session) machineRounds() []int64 {
	if s.Round() == 0 {
		return nil
	}
	rounds := make([]int64, len(s.Machines))
	for _, m := range s.Machines {
		if m.Node < len(rounds) {
			rounds[m.Node] = m.Round
		}
	}
	if r := s.Replacement; r != nil {
		rounds[r.Node] = s.Round()
	}
	return rounds
}

// replacementTime bounds a replacement: after it the whole session ends, and its job goes on elsewhere.
const replacementTime = 10 * time.Minute

// replaceLost begins the replacement of a lost machine. It returns false if the session ends instead.
func (d *decider) replaceLost(missing []Machine) bool {
	s := d.record()
	if len(missing) != 1 || s.Replacement != nil || len(s.Machines) < 2 || s.State != Ready ||
		len(s.Restarts) >= s.MaxReplacements || !d.HostsRead ||
		!d.Now.Before(s.LeaseUntil) {
		return false
	}
	lost := missing[0]
	for node, h := range d.Hosts {
		ending := h.Phase == HostEnding || h.Phase == HostSaving || h.Phase == HostFailed
		if node != lost.Node && ending && h.NoticeAt.IsZero() {
			return false
		}
	}
	gone := cmp.Or(s.MissingSince, d.Now)
	r := Restart{Node: lost.Node, Machine: lost.ID, At: gone}
	step, fits := d.commonStep()
	if !fits {
		return false
	}
	r.Step, r.Until = step, d.savedUntil(step)
	s.Restarts = append(slices.Clone(s.Restarts), r)
	s.Machines = slices.Clone(s.Machines)
	for i := range s.Machines {
		if s.Machines[i].ID == lost.ID {
			s.Machines[i].EndedAt = gone
		}
	}
	s.Replacement = &Replacement{Node: lost.Node, Since: d.Now}
	s.MissingSince, s.Why = time.Time{}, fmt.Sprintf("node %d is gone, and is replaced", lost.Node)
	s.OrderSerial++
	from := "the beginning"
	if r.Step != nil {
		from = fmt.Sprintf("step %d", *r.Step)
	}
	d.addEvent("node-lost", "machine %s of node %d is gone; it is replaced, and all nodes go on from %s", lost.ID,
		lost.Node, from)
	d.writeRecord()
	return true
}

// commonStep returns the highest step of which every node keeps a snapshot, of those that save declared steps.
// It returns nil if there is none, and false if nodes save steps and none is common.
func (d *decider) commonStep() (step *int64, ok bool) {
	var common []int64
	saving := false
	for _, h := range d.Hosts {
		if len(h.SavedSteps) == 0 {
			continue
		}
		if !saving {
			common, saving = slices.Clone(h.SavedSteps), true
			continue
		}
		common = slices.DeleteFunc(common, func(n int64) bool { return !slices.Contains(h.SavedSteps, n) })
	}
	if len(common) == 0 {
		return nil, !saving
	}
	highest := slices.Max(common)
	return &highest, true
}

// savedUntil returns the time of the work in the snapshots of a step; zero if it is not the newest of any node.
func (d *decider) savedUntil(step *int64) (until time.Time) {
	for _, h := range d.Hosts {
		if n := h.Snapshot; step != nil && n.Step != nil && *n.Step == *step {
			until = cmp.Or(n.Until, n.At).UTC()
		}
	}
	return until
}

// takeCommonStep records the common step of the nodes. It returns true if it is a new one.
func (d *decider) takeCommonStep() (changed bool) {
	s := d.record()
	step, _ := d.commonStep()
	if s.Job == "" || len(s.Machines) < 2 || len(d.Hosts) < len(s.Machines) || step == nil ||
		s.CommonStep != nil && *s.CommonStep == *step {
		return false
	}
	s.CommonStep = step
	return true
}

// followReplacement advances a replacement. It returns true while there is something to do or to wait for.
func (d *decider) followReplacement() bool {
	s := d.record()
	r := s.Replacement
	if r == nil {
		return false
	}
	why := ""
	switch state := r.Step.State(); {
	case state == intent.Refused:
		why = cmp.Or(r.Step.Error, "it was refused")
	case state == intent.GivenUp:
		why = "it ended while it was launched"
	case state == intent.Planned && (s.State == Ending || d.Now.Sub(r.Since) > replacementTime):
		why = "there was no time for it"
	case state == intent.Planned && r.Step.Key == "":
		why = d.placeReplacement()
	default:
		d.decision.Step, d.decision.RetryAfter = StepReplace, d.timeouts.PollInterval
		return true
	}
	if why == "" {
		return true
	}
	s.Replacement = nil
	if s.State == Ending {
		d.writeRecord()
		return true
	}
	d.addEvent("no-replacement", "node %d: %s", r.Node, why)
	d.beginEnding(KeeperActor, "node %d is gone, and its place has no other machine: %s", r.Node, why)
	return true
}

// placeReplacement plans the launch in the place of the other nodes. It returns why that cannot be.
func (d *decider) placeReplacement() (why string) {
	s := d.record()
	if !d.PoolsRead {
		d.wait(d.timeouts.PollInterval)
		return ""
	}
	i := slices.IndexFunc(d.Pools, s.Pool.SamePlace)
	if i < 0 {
		return s.Pool.String() + " is not offered"
	}
	pool := d.Pools[i]
	pool.Image = s.Pool.Image
	if why := d.beyondBounds(pool); why != "" {
		return why
	}
	next := *s.Replacement
	s.LaunchAttempts++
	next.Pool, next.LeaseUntil = pool, s.LeaseUntil
	next.Step = intent.Step{Name: "launch", Key: replacementToken(s, next.Node)}
	s.Replacement = &next
	d.addEvent("launching", "%s for node %d", pool, next.Node)
	d.writeRecord()
	return ""
}

// beyondBounds explains how a machine of a pool would exceed the hourly price that the gate allowed, or
// the dollars of the attempt before its lease ends; empty if it does not.
func (d *decider) beyondBounds(p Pool) string {
	s := d.record()
	if s.HourlyCeiling <= 0 && s.CostLimit <= 0 {
		return ""
	}
	if p.Rate == nil {
		return p.String() + " has no price"
	}
	hourly := *p.Rate + s.hourlyRate()
	if all, err := hourly.Times(1); s.HourlyCeiling > 0 && (err != nil || all > s.HourlyCeiling) {
		return fmt.Sprintf("with %s an hour costs more than the gate let pass (%s)", p, s.HourlyCeiling.Dollars())
	}
	if s.CostLimit <= 0 {
		return ""
	}
	spent, priced, err := s.Cost(d.Now)
	left, costErr := hourly.For(int64(max(0, s.LeaseUntil.Sub(d.Now))/time.Second), 3600)
	second, secondErr := hourly.For(1, 3600) // costs are rounded to seconds
	if err != nil || costErr != nil || secondErr != nil || !priced || spent+left > s.CostLimit+second {
		return fmt.Sprintf("with %s its dollars (%s) do not last until its lease ends", p, s.CostLimit.Dollars())
	}
	return ""
}

// paidUntil returns the end of the lease of a session whose machines were not all launched together: at most
// LeaseLimit, and no later than the rest of its dollars lasts. It is zero if that is unknown.
func (s *Session) paidUntil(now time.Time) time.Time {
	if s.CostLimit <= 0 {
		return s.LeaseLimit
	}
	spent, priced, err := s.Cost(now)
	if err != nil || !priced {
		return time.Time{}
	}
	end := now.Add(paidTime(max(0, s.CostLimit-spent), s.hourlyRate())).UTC()
	if end.After(s.LeaseLimit) {
		return s.LeaseLimit
	}
	return end
}

// hourlyRate returns the price of an hour of the machines that run and have one.
func (s *Session) hourlyRate() (hourly money.Rate) {
	for _, m := range s.EveryMachine() {
		if m.EndedAt.IsZero() && m.Pool.Rate != nil {
			hourly += *m.Pool.Rate
		}
	}
	return hourly
}

// replacementToken returns the idempotency token of a replacement, unique per round.
func replacementToken(s *Session, node int) string {
	of := *s
	of.Epoch += s.Round()
	return launchToken(&of, "node", node)
}

// advanceReplacement advances the launch of a replacement by one step.
func (k *Keeper) advanceReplacement(ctx context.Context, s *Session) (waits bool, err error) {
	subject := &replacementIntent{launchIntent{keeper: k, session: s}}
	run := intent.Run{
		Now: func() time.Time { return k.Now().UTC() }, Idempotent: true, Class: refusalClass, Redact: action.Redact,
	}
	step, outcome, err := run.Do(ctx, subject, s.Replacement.Step)
	if err != nil {
		return false, err
	}
	switch outcome {
	case intent.Lapsed:
		// What may still appear of it is found by its tags, and ended.
		next := *subject.session
		r := *next.Replacement
		r.Step.Refused, r.Step.RefusedAt = "lapsed", k.Now().UTC()
		r.Step.Error = cmp.Or(step.Error, "no trace of it was seen")
		next.Replacement = &r
		_, err = k.writeRecord(ctx, subject.session, next, nil)
		return false, err
	case intent.Unseen, intent.UnderWay, intent.Due:
		return true, nil
	}
	return false, nil
}

// replacementIntent is the launch of a replacement as an intent.Subject.
type replacementIntent struct{ launchIntent }

// Keep implements intent.Subject. The new machine takes the place of the lost one with its outcome.
func (l *replacementIntent) Keep(ctx context.Context, step intent.Step, what intent.Event) error {
	next := *l.session
	r := *next.Replacement
	r.Step = step
	next.Replacement = &r
	now := l.keeper.Now().UTC()
	var events []Event
	if step.Error != "" && step.Error != l.session.Replacement.Step.Error {
		events = append(events, Event{At: now, Node: KeeperNode, Kind: "launch-" + string(what), Text: step.Error})
	}
	if step.State() == intent.Confirmed && len(l.machines) == 1 {
		next.Machines = slices.Clone(next.Machines)
		i := slices.IndexFunc(next.Machines, func(m Machine) bool { return m.Node == r.Node })
		next.Former = append(slices.Clone(next.Former), next.Machines[i])
		next.Machines[i] = l.machines[0]
		next.Replacement, next.Why = nil, ""
		next.OrderSerial++
		events = append(events, Event{
			At: now, Node: KeeperNode, Kind: "launched", Text: fmt.Sprintf("%s for node %d", r.Pool, r.Node),
		})
	}
	made, err := l.keeper.writeRecord(ctx, l.session, next, events)
	if err == nil {
		*l.session = made
	}
	return err
}

// Call implements intent.Subject.
func (l *replacementIntent) Call(ctx context.Context, step intent.Step) (string, error) {
	r := l.session.Replacement
	launch, err := l.keeper.newLaunch(l.session, step.Key)
	if err != nil {
		return "", err
	}
	launch.Pool, launch.Nodes, launch.FirstNode = r.Pool, 1, r.Node
	launch.Host.LeaseUntil, launch.Tags[inventory.TagLease] = r.LeaseUntil, r.LeaseUntil.Format(time.RFC3339)
	launch.Tags[inventory.TagNode] = strconv.Itoa(r.Node)
	launch.Host.Round = l.session.Round()
	launch.Host.RestoreStep = l.session.Restarts[len(l.session.Restarts)-1].Step
	if launch.Host.Command != nil {
		launch.Host.Command.Held = false
	}
	machines, err := l.keeper.Launchers[l.session.Provider].Launch(ctx, launch)
	if err != nil {
		return "", err
	}
	if len(machines) != 1 || machines[0].Node != r.Node {
		return "", fmt.Errorf("the provider answered with other machines than node %d", r.Node)
	}
	l.setReplacement(machines[0])
	return machines[0].ID, nil
}

func (l *replacementIntent) setReplacement(m Machine) {
	m.Pool, m.Round = l.session.Replacement.Pool, l.session.Round()
	m.LaunchedAt = cmp.Or(m.LaunchedAt, l.keeper.Now()).UTC()
	l.machines = []Machine{m}
}

// Look implements intent.Subject.
func (l *replacementIntent) Look(ctx context.Context, step intent.Step) (intent.Progress, string, error) {
	if len(l.machines) > 0 {
		return intent.Complete, step.Receipt, nil
	}
	found, err := l.keeper.Launchers[l.session.Provider].Find(ctx, l.keeper.Installation, l.session.ID)
	if err != nil {
		return "", "", err
	}
	for _, f := range found {
		switch {
		case f.Token != step.Key || f.Session != l.session.ID:
		case f.LaunchPending:
			return intent.NotDone, "", nil
		default:
			l.setReplacement(f.Machine)
			return intent.Complete, f.ID, nil
		}
	}
	return intent.NotDone, "", nil
}

// strays returns the listed machines that the session does not have: lost ones that came back, and launches
// whose outcome was given up as unknown.
func (d *decider) strays() (out []FoundMachine) {
	s := &d.Session
	if s.MaxReplacements == 0 || s.Replacement != nil {
		return nil
	}
	for _, f := range d.found() {
		if !slices.ContainsFunc(s.Machines, func(m Machine) bool { return m.ID == f.ID }) {
			out = append(out, f)
		}
	}
	return out
}

// countFormer keeps the ends of machines that are no longer part of the session: one that is listed again ran
// on, and is paid for. It returns true if the record changes.
func (d *decider) countFormer() (changed bool) {
	if !d.MachinesListed {
		return false
	}
	s := d.record()
	former := slices.Clone(s.Former)
	for _, f := range d.strays() {
		if !slices.ContainsFunc(former, func(m Machine) bool { return m.ID == f.ID }) {
			m := f.Machine
			m.Pool.Rate = s.Pool.Rate
			former, changed = append(former, m), true
			d.addEvent("alarm", "machine %s was found, which is none of the session: it is ended", m.ID)
		}
	}
	for i := range former {
		m := &former[i]
		switch listed := d.lists(m.ID); {
		case listed && !m.EndedAt.IsZero():
			m.EndedAt, changed = time.Time{}, true
			d.addEvent("alarm", "machine %s of node %d is back after it was replaced: it is ended", m.ID, m.Node)
		case !listed && m.EndedAt.IsZero():
			m.EndedAt, changed = d.Now, true
		}
	}
	if changed {
		s.Former = former
		d.writeRecord()
	}
	return changed
}

// endStrays decides to end machines that are listed and no longer part of the session.
func (d *decider) endStrays() bool {
	if s := d.record(); !d.MachinesListed || len(d.strays()) == 0 ||
		d.Now.Sub(s.StraysEndedAt) < d.timeouts.TerminateRetry {
		return false
	}
	d.record().StraysEndedAt = d.Now
	d.decision.Step, d.decision.RetryAfter = StepEndStrays, d.timeouts.PollInterval
	return true
}

// endStrays ends the machines that are no longer part of a session. The intent is on record before the
// call, and the provider's listing confirms it.
func (k *Keeper) endStrays(ctx context.Context, s *Session, v Observation, n Decision) error {
	var ids []string
	for _, f := range v.FoundMachines {
		if !slices.ContainsFunc(s.Machines, func(m Machine) bool { return m.ID == f.ID }) {
			ids = append(ids, f.ID)
		}
	}
	made, err := k.writeRecord(ctx, s, n.Session, []Event{{
		At: k.Now().UTC(), Node: KeeperNode, Kind: "ending",
		Text: "machines that were replaced: " + strings.Join(ids, ", "),
	}})
	if err != nil || len(ids) == 0 {
		return err
	}
	return k.launcher(&made).End(ctx, made.ID, ids)
}

// takeRestart records that the command runs again after a restart. It returns true if the record changes.
func (d *decider) takeRestart() bool {
	s := d.record()
	n := len(s.Restarts) - 1
	if n < 0 || !s.Restarts[n].CommandAt.IsZero() {
		return false
	}
	at := time.Time{}
	for node := range s.Machines {
		h, ok := d.Hosts[node]
		if !ok || h.Round != s.Round() || h.Command == nil || h.Command.StartedAt.IsZero() {
			return false
		}
		if began := h.Command.StartedAt.UTC(); began.After(at) {
			at = began
		}
	}
	s.Restarts = slices.Clone(s.Restarts)
	s.Restarts[n].CommandAt = at
	d.addEvent("restarted", "all nodes run again, %s after node %d was lost",
		at.Sub(s.Restarts[n].At).Round(time.Second), s.Restarts[n].Node)
	return true
}

// markGone sets the state of former machines at the end of a session.
func (s *Session) markGone(at time.Time) {
	s.Former = slices.Clone(s.Former)
	for i := range s.Former {
		m := &s.Former[i]
		m.State = inventory.StateDeleting
		if m.EndedAt.IsZero() {
			m.EndedAt = at
		}
	}
}
