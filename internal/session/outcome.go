package session

import (
	"slices"
	"time"
	"unicode/utf8"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/spec"
)

// Class is the reason for the end of a job's command, or of its machines.
type Class string

// The classes that a host reports.
const (
	Succeeded Class = "succeeded"
	// Stopped means that the command ended after the host asked it to.
	Stopped Class = "stopped"
	// Interrupted means that a signal ended the command, without evidence of another class.
	Interrupted  Class = "interrupted"
	OutOfMemory  Class = "out-of-memory"
	GPUMemory    Class = "gpu-out-of-memory"
	DiskFull     Class = "disk-full"
	GPUFault     Class = "gpu-fault"
	Rendezvous   Class = "rendezvous"
	Stalled      Class = "stalled"
	OwnError     Class = "error" // a non-zero exit code
	NoArtifacts  Class = "no-artifacts"
	SetupFailed  Class = "setup-failed"
	LostAtStart  Class = "lost-before-start"
	MachineLost  Class = "machine-lost"
	NoCapacity   Class = "no-capacity"
	LimitReached Class = "limit"
)

// hostClasses are the classes that a host may report about its command.
var hostClasses = []Class{
	Succeeded, Stopped, Interrupted, OutOfMemory, GPUMemory, DiskFull, GPUFault, Rendezvous, Stalled, OwnError,
	NoArtifacts,
}

// Outcome is the end of a job's command on one node.
type Outcome struct {
	Class Class `json:"class"`
	// ExitCode is the command's own; nil if a signal ended it or none was left.
	ExitCode *int   `json:"exit_code,omitempty"`
	Signal   string `json:"signal,omitempty"`
	// Evidence supports the class, for people.
	Evidence string    `json:"evidence,omitempty"`
	At       time.Time `json:"at"`
	Node     int       `json:"node"`
}

// CommandStatus is a host's report about the command of a job.
type CommandStatus struct {
	StartedAt time.Time `json:"started_at,omitzero"`
	// Step is the highest step that the command declared, StepAt when it was first reported.
	Step   *int64    `json:"step,omitempty"`
	StepAt time.Time `json:"step_at,omitzero"`
	// Restored is the snapshot of the start; nil if there was none.
	Restored *Snapshot `json:"restored,omitempty"`
	// Outcome is nil while the command runs.
	Outcome *Outcome `json:"outcome,omitempty"`
}

// sanitize clears what a host cannot mean. It returns false if the report is unusable.
func (c *CommandStatus) sanitize(node int, text func(*string, int), times func(string, *time.Time)) bool {
	times("command", &c.StartedAt)
	times("command", &c.StepAt)
	if c.Step != nil && *c.Step < 0 ||
		c.Restored != nil && (!snapshotKeyPattern.MatchString(c.Restored.Manifest) ||
			c.Restored.Step != nil && *c.Restored.Step < 0) {
		return false
	}
	o := c.Outcome
	if o == nil {
		return true
	}
	o.Node = node
	times("command", &o.At)
	text(&o.Evidence, maxStatusText)
	return slices.Contains(hostClasses, o.Class) && len(o.Signal) <= 32 && utf8.ValidString(o.Signal) &&
		(o.ExitCode == nil || *o.ExitCode >= 0 && *o.ExitCode <= 255)
}

// outcome returns how the command of a job ended by the reports of its hosts; nil while it runs. A
// failure of one node is that of all; a success needs all nodes.
func (d *decider) outcome() *Outcome {
	nodes := max(1, len(d.Session.Machines))
	var succeeded int
	var last, failed *Outcome
	for node := range nodes {
		h, ok := d.Hosts[node]
		if !d.HostsRead || !ok || h.Command == nil || h.Epoch != d.Session.Epoch || h.Command.Outcome == nil ||
			h.Round != d.Session.Round() {
			continue
		}
		o := h.Command.Outcome
		switch {
		case o.Class == Succeeded:
			succeeded++
			last = o
		case failed == nil, failed.Class == Stopped && o.Class != Stopped,
			o.Class != Stopped && o.At.Before(failed.At):
			failed = o
		}
	}
	if failed == nil && succeeded == nodes {
		return last
	}
	return failed
}

// takeOutcome records how the command of a job ended, and its newest step. It returns true if the
// record changes.
func (d *decider) takeOutcome() (changed bool) {
	s := d.record()
	if s.Job == "" || !d.HostsRead {
		return false
	}
	for _, h := range d.Hosts {
		c := h.Command
		if c == nil || h.Epoch != s.Epoch || h.Round != s.Round() {
			continue
		}
		if c.Step != nil && (s.Step == nil || *c.Step > *s.Step) {
			step := *c.Step
			s.Step, changed = &step, true
		}
		if c.Restored != nil && s.Restored.Manifest == "" && h.Node == 0 && h.Round == 0 {
			s.Restored, changed = *c.Restored, true
		}
		if at := c.StartedAt.UTC(); !at.IsZero() && (s.CommandAt.IsZero() || at.Before(s.CommandAt)) {
			s.CommandAt, changed = at, true
		}
	}
	if o := d.outcome(); o != nil && s.Outcome == nil && !d.followsFromLoss(o) {
		done := *o
		done.At = done.At.UTC()
		s.Outcome, changed = &done, true
		d.addEvent("command", "%s", done.Text())
	}
	return changed
}

// FollowsFromLoss reports whether the loss of another node may be the cause of an outcome: a command without
// its peers fails by a time-out, a signal or an error of its own.
func (c Class) FollowsFromLoss() bool { return c == OwnError || c == Interrupted || c == Rendezvous }

// followsFromLoss reports whether an outcome of one of several nodes does not count, or does not count yet:
// hosts keep such a command until it is known whether another node was lost.
func (d *decider) followsFromLoss(o *Outcome) bool {
	s := d.record()
	return len(s.Machines) > 1 && o.Class.FollowsFromLoss() && (s.NodeLost || s.State == Ready && !d.ending)
}

// PeerWait is the time that the command of one of several nodes which failed is kept until it is known
// whether another node was lost: EC2 lists a machine that it takes for about a minute.
const PeerWait = 3 * time.Minute

// Text returns the outcome for people.
func (o Outcome) Text() string {
	text := string(o.Class)
	if o.Evidence != "" {
		text += ": " + o.Evidence
	}
	return text
}

// boundLease sets the lease of an attempt in its pool: until LeaseLimit, and no longer than its
// dollars last from now.
func (s *Session) boundLease(now time.Time, nodes int) {
	if s.Job == "" {
		return
	}
	s.LeaseUntil = s.LeaseLimit
	all := poolRate(s.Pool, nodes)
	if s.CostLimit <= 0 || all == nil {
		return
	}
	if end := now.Add(paidTime(s.CostLimit, *all)).UTC(); end.Before(s.LeaseUntil) {
		s.LeaseUntil = end
	}
}

// paidTime returns how long an amount pays for machines at an hourly rate, in whole seconds and a
// year at most.
func paidTime(amount money.Amount, hourly money.Rate) time.Duration {
	const most = 365 * 24 * 3600
	if hourly <= 0 {
		return most * time.Second
	}
	seconds, err := amount.Mul(3600*1000, int64(hourly)) // nano-dollars by pico-dollars
	if err != nil || seconds > most {
		return most * time.Second
	}
	if cost, err := hourly.For(int64(seconds), 3600); err == nil && cost > amount {
		seconds-- // it was rounded up
	}
	return time.Duration(max(0, seconds)) * time.Second
}

// DefaultCheckpointDir is the folder of snapshots of a job whose file names none.
const DefaultCheckpointDir = "~/checkpoints"

// attemptCommand returns what a host runs for an attempt.
func attemptCommand(s *Session, sp *spec.Spec) *Command {
	c := &Command{
		Run: sp.Run, Job: s.Name, Attempt: s.Attempt, Code: s.Code, CheckpointDir: DefaultCheckpointDir,
		Keep: spec.DefaultKeep, StallLimit: Duration(sp.Stall), KeepOnFailure: Duration(s.KeepOnFailure),
		Held: s.Held,
	}
	if sp.Resources.Nodes > 1 {
		c.PeerWait = Duration(PeerWait)
	}
	if p := sp.Checkpoint; p != nil {
		c.CheckpointDir, c.Done, c.Keep = p.Dir, p.Done, p.Keep
	}
	if a := sp.Artifacts; a != nil {
		c.ArtifactsDir, c.Artifacts = a.Dir, a.To
	}
	return c
}

// checkpointInterval returns the time between the snapshots of a job; 0 leaves it to the host, which
// saves after declarations.
func checkpointInterval(sp *spec.Spec) Duration {
	if sp.Checkpoint == nil {
		return 0
	}
	return Duration(sp.Checkpoint.Every)
}
