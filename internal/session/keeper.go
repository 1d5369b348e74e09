package session

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/intent"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/spec"
)

// Admission is the gate's decision about a session.
type Admission struct {
	Verdict gate.Verdict
	// HoldID is the reservation; ApprovalID the pending or used approval request.
	HoldID, ApprovalID string
	Reasons            []string
	// HourlyLimit is the highest hourly cost that the decision allows; 0 if the price is unknown.
	HourlyLimit money.Amount
}

// Gate decides whether a session may start.
type Gate interface {
	// Admit decides. It is idempotent: a second call returns the existing hold.
	Admit(ctx context.Context, s *Session) (Admission, error)
}

// Holds manages the budget reservations of sessions.
type Holds interface {
	// Close closes every hold of a session: it settles them at the actual cost if machines ran, and
	// releases them otherwise. Closed holds are no error.
	Close(ctx context.Context, s *Session, actual money.Amount, ran bool) error
}

// Ledger charges for the machines of sessions.
type Ledger interface {
	// Charge records that the machines of a session ran until a time, and, if ended is set, that
	// they are gone since then.
	Charge(ctx context.Context, s *Session, at time.Time, ended bool) error
}

// Keeper takes the missing steps of sessions. It holds no state between passes, and any number of
// keepers may share a database: every write is conditional on the version read, and every provider
// call carries a token.
type Keeper struct {
	Store Store
	// Launchers maps provider names; sessions of other providers are left alone.
	Launchers map[string]Launcher
	Control   Control
	// Gate decides about new sessions; nil leaves that to another process.
	Gate   Gate
	Holds  Holds
	Ledger Ledger
	// UserLauncher finds and stops machines that people launched and put under a lease; nil leaves
	// them to another process.
	UserLauncher Launcher
	// NotifyOwner notifies the owner of orphans; an error means that no channel accepted the
	// message. Nil disables notifications.
	NotifyOwner func(ctx context.Context, s *Session) (accepted string, err error)
	// NotifyLease notifies the owner of a session that its lease ends soon. Nil disables it.
	NotifyLease func(ctx context.Context, s *Session) (accepted string, err error)
	// AccountAttempt records the cost of an attempt whose machines are gone, also those that were seen again
	// after its end. Nil leaves it to another process.
	AccountAttempt func(ctx context.Context, s *Session) error
	// KeepOutput keeps a part of the output of a command where the end of its machines does not remove it.
	// Nil leaves it where its host wrote it.
	KeepOutput func(ctx context.Context, s *Session, node int, n int64) error
	// Installation is the name that tags the machines.
	Installation string
	// Reachable reports whether this process can reach a session's provider: local machines are
	// reachable only from their own host. Nil means all.
	Reachable func(s *Session) bool
	Now       func() time.Time
	// Timeouts holds the timeouts by provider.
	Timeouts map[string]Timeouts
	Log      *slog.Logger
	// Specs are the specifications of open sessions and jobs; nil parses them at each use.
	Specs *spec.Cache
}

// maxStepsPerPass bounds the steps of one pass over a session.
const maxStepsPerPass = 64

// Keep takes steps for a session until it has to wait, and returns the time until the next pass.
func (k *Keeper) Keep(ctx context.Context, id string) (after time.Duration, err error) {
	orderFailed := false
	for range maxStepsPerPass {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		s, err := k.Store.Session(ctx, id)
		if err != nil {
			return 0, err
		}
		if s.State.IsFinal() || k.launcher(&s) == nil || k.Reachable != nil && !k.Reachable(&s) {
			k.Specs.Forget(s.ID)
			return time.Hour, nil
		}
		if wrote, err := k.notifyOwner(ctx, &s); wrote || err != nil {
			if errors.Is(err, ErrConflict) {
				continue
			}
			if err != nil {
				return 0, err
			}
			continue
		}
		v, err := k.observe(ctx, &s)
		if err != nil {
			return 0, err
		}
		v.OrderFailed = orderFailed
		n := Decide(v, k.timeouts(&s))
		if n.Step == StepWait {
			return n.RetryAfter, nil
		}
		waits, err := k.execute(ctx, &s, v, n)
		switch {
		case errors.Is(err, ErrConflict), errors.Is(err, intent.ErrConflict):
			continue // another keeper wrote first: read again
		case err != nil && n.Step == StepSendOrder && s.Discard && ctx.Err() == nil:
			// Discarding needs no acknowledgment from the hosts.
			k.Log.WarnContext(ctx, "could not inform the hosts of a session that it is given up",
				"session", s.Name, "error",
				err)
			orderFailed = true
		case err != nil:
			return 0, fmt.Errorf("session %s: %w", s.Name, err)
		case waits:
			return n.RetryAfter, nil
		}
	}
	return 0, nil
}

// notifyRetry is the time between attempts to notify the owner of an orphan.
const notifyRetry = 10 * time.Minute

// notifyOwner notifies the owner of orphans once. It returns true if it wrote the record.
func (k *Keeper) notifyOwner(ctx context.Context, s *Session) (wrote bool, err error) {
	now := k.Now().UTC()
	if k.NotifyLease != nil && s.leaseNoticeDue(now) {
		return k.notifyLease(ctx, s, now)
	}
	if !s.Orphan || len(s.Machines) == 0 || k.NotifyOwner == nil || !s.OwnerNotifiedAt.IsZero() ||
		now.Before(s.NotifyOwnerAt) {
		return false, nil
	}
	next := *s
	e := Event{At: now, Node: KeeperNode, Kind: "told"}
	if e.Text, err = k.NotifyOwner(ctx, s); err != nil {
		next.NotifyOwnerAt = now.Add(notifyRetry)
		e.Kind, e.Text = "untold", "its owner was not notified: "+action.Redact(err.Error())
	} else {
		next.OwnerNotifiedAt = now
	}
	_, err = k.writeRecord(ctx, s, next, []Event{e})
	return err == nil, err
}

// leaseNotice is the time before the end of a lease at which its owner is notified; of a short lease
// it is a quarter.
const leaseNotice = 15 * time.Minute

// leaseNoticeDue reports whether the owner is to be notified that the lease ends soon.
func (s *Session) leaseNoticeDue(now time.Time) bool {
	before := min(leaseNotice, s.LeaseUntil.Sub(s.RequestedAt)/4)
	return s.State == Ready && s.Job == "" && !s.UserLaunched && !s.LeaseNotified.Equal(s.LeaseUntil) &&
		!now.Before(s.LeaseUntil.Add(-before)) && now.Before(s.LeaseUntil) && !now.Before(s.NotifyOwnerAt)
}

// leaseNotifyRetry is the time between attempts to notify an owner of the end of a lease.
const leaseNotifyRetry = time.Minute

// notifyLease notifies the owner once for each lease.
func (k *Keeper) notifyLease(ctx context.Context, s *Session, now time.Time) (wrote bool, err error) {
	next := *s
	e := Event{At: now, Node: KeeperNode, Kind: "told"}
	if e.Text, err = k.NotifyLease(ctx, s); err != nil {
		next.NotifyOwnerAt = now.Add(leaseNotifyRetry)
		e.Kind, e.Text = "untold", "its owner was not notified of the end of the lease: "+action.Redact(err.Error())
	} else {
		next.LeaseNotified = s.LeaseUntil
	}
	_, err = k.writeRecord(ctx, s, next, []Event{e})
	return err == nil, err
}

// launcher returns the launcher for a session's machines; nil if this process has none.
func (k *Keeper) launcher(s *Session) Launcher {
	if s.UserLaunched {
		return k.UserLauncher
	}
	return k.Launchers[s.Provider]
}

func (k *Keeper) timeouts(s *Session) Timeouts { return k.Timeouts[s.Provider].WithDefaults() }

// observe gathers the input of Decide. What cannot be read stays unknown, and Decide waits for it
// where it matters.
func (k *Keeper) observe(ctx context.Context, s *Session) (Observation, error) {
	v := Observation{Now: k.Now().UTC(), Session: *s, HasGate: k.Gate != nil}
	l := k.launcher(s)
	switch s.State {
	case Requested:
		return v, nil
	case Launching:
		if s.LaunchStep.Key != "" || s.UserLaunched {
			return v, nil
		}
		return v, k.pools(ctx, l, &v)
	}
	var err error
	if r := s.Replacement; r != nil && r.Step.Key == "" && s.State != Ending {
		if err := k.pools(ctx, l, &v); err != nil {
			k.Log.WarnContext(ctx, "the places of a session could not be read", "session", s.Name, "error", err)
		}
	}
	if v.FoundMachines, err = l.Find(ctx, k.Installation, s.ID); err != nil {
		k.Log.WarnContext(ctx, "the machines of a session could not be listed", "session", s.Name, "error", err)
	} else {
		v.MachinesListed = true
		v.FoundMachines = slices.DeleteFunc(v.FoundMachines, func(f FoundMachine) bool { return f.Session != s.ID })
	}
	if s.Orphan {
		open, err := k.Store.Sessions(ctx, Query{OpenOnly: true})
		if err != nil {
			return v, err
		}
		for _, o := range open {
			if o.Orphan && !v.Now.Before(o.EndNotBefore) {
				v.DueOrphans += len(o.Machines)
			}
		}
	}
	if s.ControlPrefix == "" {
		v.HostsRead = true
		return v, nil
	}
	v.Hosts, v.RejectedFields, err = k.Hosts(ctx, s, max(len(s.Machines), highestNode(v.FoundMachines)+1))
	if err == nil {
		v.Order, _, err = k.Control.Order(ctx, s)
	}
	if err != nil {
		k.Log.WarnContext(ctx, "the hosts of a session could not be heard", "session", s.Name, "error", err)
		return v, nil
	}
	v.HostsRead = true
	if err := k.collectEvents(ctx, s, v.Hosts); err != nil {
		k.Log.WarnContext(ctx, "the events of a session could not be kept", "session", s.Name, "error", err)
	}
	return v, nil
}

// Hosts returns the sanitized statuses of a session's hosts and describes what was rejected.
func (k *Keeper) Hosts(ctx context.Context, s *Session, nodes int) (hosts map[int]Status, wrong []string, err error) {
	hosts, broken, err := k.Control.Hosts(ctx, s, nodes)
	if err != nil {
		return nil, nil, err
	}
	wrong = sanitizeHosts(s, hosts, broken, k.Now().UTC())
	for _, m := range s.Machines {
		if !m.EndedAt.IsZero() {
			delete(hosts, m.Node) // the last status of a lost machine says nothing about now
		}
	}
	return hosts, wrong, nil
}

func highestNode(found []FoundMachine) int {
	node := -1
	for _, f := range found {
		node = max(node, f.Node)
	}
	return node
}

// pools reads the pools that can launch the session and the recent capacity failures.
func (k *Keeper) pools(ctx context.Context, l Launcher, v *Observation) error {
	sp, err := k.Specs.Parse(v.Session.ID, v.Session.Name, v.Session.Spec)
	if err != nil {
		return err
	}
	v.Nodes = sp.Resources.Nodes
	v.Pools, err = l.Pools(ctx, sp)
	if err != nil && !errors.Is(err, ErrUnsupported) {
		return fmt.Errorf("look for a place to launch it: %w", err)
	}
	v.PoolsRead = true
	if v.Session.Places != nil {
		return nil // whoever chose them knows what failed for other sessions
	}
	all, err := k.Store.Sessions(ctx, Query{})
	v.Pools = SoundFirst(v.Pools, GPUFaults(all, v.Session.Provider, v.Session.Account, v.Now))
	for _, s := range all {
		if s.Provider == v.Session.Provider && s.Account == v.Session.Account {
			v.CapacityFailures = append(v.CapacityFailures, s.CapacityFailures...)
		}
	}
	return err
}

// collectEvents stores new event files of the hosts, a limited number of each host per pass.
func (k *Keeper) collectEvents(ctx context.Context, s *Session, hosts map[int]Status) error {
	for node, h := range hosts {
		number := s.HostNumber(node)
		kept, err := k.Store.NewestEventFile(ctx, s.ID, number)
		if err != nil {
			return err
		}
		for file := kept + 1; file <= min(h.Events, kept+eventFilesPerPass); file++ {
			events, err := k.Control.Events(ctx, s, number, file)
			if err == nil {
				events = sanitizeEvents(s, number, events, k.Now().UTC())
				err = k.keepOutput(ctx, s, number, events)
			}
			if err == nil {
				err = k.Store.AddEvents(ctx, s.ID, number, file, events)
			}
			if err = cmp.Or(err, ctx.Err()); err != nil {
				return err
			}
		}
	}
	return nil
}

// execute takes one step. It returns true if the session has to wait.
func (k *Keeper) execute(ctx context.Context, s *Session, v Observation, n Decision) (waits bool, err error) {
	switch n.Step {
	case StepAdmit:
		return k.admit(ctx, s)
	case StepWriteRecord:
		_, err = k.writeRecord(ctx, s, n.Session, n.Events)
		return false, err
	case StepLaunch:
		return k.advanceLaunch(ctx, s)
	case StepReplace:
		return k.advanceReplacement(ctx, s)
	case StepEndStrays:
		return false, k.endStrays(ctx, s, v, n)
	case StepSendOrder:
		_, version, err := k.Control.Order(ctx, s)
		if err == nil {
			err = k.Control.WriteOrder(ctx, s, n.Order, version)
		}
		return false, err
	case StepRelease:
		return k.advanceRelease(ctx, s, v)
	case StepCharge:
		if k.Ledger != nil {
			if err := k.Ledger.Charge(ctx, s, n.Session.ChargedUntil, false); err != nil {
				k.Log.WarnContext(ctx, "a session could not be charged", "session", s.Name, "error", err)
			}
		}
		_, err = k.writeRecord(ctx, s, n.Session, nil)
		return false, err
	case StepCleanUp:
		return k.cleanUp(ctx, s, n)
	}
	return true, nil
}

// writeRecord writes a record and its audit entry.
func (k *Keeper) writeRecord(ctx context.Context, old *Session, s Session, events []Event) (Session, error) {
	e := action.Entry{
		At: k.Now().UTC(), Account: s.Provider + "/" + s.Account, Actor: cmp.Or(s.EndedBy, s.RequestedBy),
		What:     action.EventSession,
		Resource: "session/" + s.Name, Item: s.ID, Verb: string(s.State), Because: s.Why}
	if s.EndedBy == "" && old != nil {
		e.Actor = KeeperActor
	}
	for _, event := range events {
		e.Outcome = strings.TrimPrefix(e.Outcome+"; "+strings.TrimSpace(event.Kind+" "+event.Text), "; ")
	}
	return k.Store.Put(ctx, s, events, e)
}

// admit calls the gate and records its decision.
func (k *Keeper) admit(ctx context.Context, s *Session) (waits bool, err error) {
	a, err := k.Gate.Admit(ctx, s)
	if err != nil {
		return false, err
	}
	next := *s
	next.ApprovalID = a.ApprovalID
	event := Event{
		At: k.Now().UTC(), Node: KeeperNode, Kind: "gate",
		Text: string(a.Verdict) + ": " + strings.Join(a.Reasons, "; "),
	}
	switch a.Verdict {
	case gate.Allow:
		next.HoldID, next.State, next.Why, next.HourlyCeiling = a.HoldID, Launching, "", a.HourlyLimit
	case gate.Held:
		next.Why = strings.Join(a.Reasons, "; ")
		if next.ApprovalID == s.ApprovalID && next.Why == s.Why {
			return true, nil
		}
		_, err = k.writeRecord(ctx, s, next, []Event{event})
		return true, err
	default:
		setEnding(&next, k.Now().UTC(), "gate", "denied: "+strings.Join(a.Reasons, "; "))
	}
	_, err = k.writeRecord(ctx, s, next, []Event{event})
	return false, err
}

// refusalClass returns the class of a refused launch, empty for other errors.
func refusalClass(err error) string {
	switch {
	case errors.Is(err, ErrCapacity):
		return ClassCapacity
	case errors.Is(err, ErrQuota):
		return classQuota
	case errors.Is(err, ErrUnsupported):
		return classUnsupported
	case errors.Is(err, ErrMismatch):
		return classMismatch
	case errors.Is(err, ErrNoRole):
		return classNoRole
	}
	return ""
}

// launchToken returns the idempotency token of a launch, unique per attempted pool.
func launchToken(s *Session, more ...any) string {
	// only strings and numbers, which always encode
	text, _ := json.Marshal(append([]any{
		"curfew.launch/v1", s.ID, s.Epoch, s.LaunchAttempts, s.Pool.Type, s.Pool.Region, s.Pool.Zone, s.Pool.Spot,
	}, more...))
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// advanceLaunch advances a session's launch by one step.
func (k *Keeper) advanceLaunch(ctx context.Context, s *Session) (waits bool, err error) {
	subject := &launchIntent{keeper: k, session: s}
	run := intent.Run{Now: func() time.Time {
		return k.Now().UTC()
	}, Idempotent: true, Class: refusalClass, Redact: action.Redact}
	step, outcome, err := run.Do(ctx, subject, s.LaunchStep)
	if err != nil {
		return false, err
	}
	switch outcome {
	case intent.Lapsed:
		next := *subject.session
		if s.State == Ending {
			// A launch that is no longer wanted is not repeated; if its machines appear after all,
			// reconciliation finds them.
			next.LaunchStep.Refused, next.LaunchStep.Error = "lapsed", cmp.Or(step.Error, "no trace of it was seen")
		} else {
			next.LaunchStep = step.Intend(step.Key, k.Now().UTC())
			next.LaunchStep.RepeatedAt = next.LaunchStep.IntentAt
		}
		_, err = k.writeRecord(ctx, subject.session, next, nil)
		return false, err
	case intent.Unseen, intent.UnderWay, intent.Due:
		return true, nil
	}
	return false, nil
}

// launchIntent is the launch of a session as an intent.Subject.
type launchIntent struct {
	keeper  *Keeper
	session *Session
	// machines are the result of the launch call.
	machines []Machine
}

// Keep implements intent.Subject.
func (l *launchIntent) Keep(ctx context.Context, step intent.Step, what intent.Event) error {
	next := *l.session
	next.LaunchStep = step
	if len(l.machines) > 0 {
		next.Machines = l.machines
		next.LaunchedAt = earliestLaunch(l.machines, l.keeper.Now().UTC())
		next.Rate = poolRate(next.Pool, len(l.machines))
	}
	next.Region = cmp.Or(next.Pool.Region, next.Region)
	var events []Event
	told := step.Refused == ClassCapacity && next.FoundWithout(next.Pool)
	if step.Error != "" && step.Error != l.session.LaunchStep.Error && !told {
		events = append(events, Event{
			At: l.keeper.Now().UTC(), Node: KeeperNode, Kind: "launch-" + string(what), Text: step.Error,
		})
	}
	made, err := l.keeper.writeRecord(ctx, l.session, next, events)
	if err == nil {
		*l.session = made
	}
	return err
}

// Call implements intent.Subject.
func (l *launchIntent) Call(ctx context.Context, step intent.Step) (string, error) {
	launch, err := l.keeper.newLaunch(l.session, step.Key)
	if err != nil {
		return "", err
	}
	machines, err := l.keeper.Launchers[l.session.Provider].Launch(ctx, launch)
	if err != nil {
		return "", err
	}
	if len(machines) != launch.Nodes {
		return "", fmt.Errorf("the provider answered with %d machines instead of %d", len(machines), launch.Nodes)
	}
	l.setMachines(machines)
	return strings.Join(l.session.MachineIDs(), ","), nil
}

// setMachines stores the launched machines in node order.
func (l *launchIntent) setMachines(machines []Machine) {
	l.machines = slices.Clone(machines)
	slices.SortFunc(l.machines, func(a, b Machine) int { return a.Node - b.Node })
	for i := range l.machines {
		l.machines[i].Pool = l.session.Pool // with its price
		l.machines[i].LaunchedAt = l.machines[i].LaunchedAt.UTC()
	}
}

// Look implements intent.Subject. The machines returned by the call prove success, and so does a
// listing with all machines of the token.
func (l *launchIntent) Look(ctx context.Context, step intent.Step) (intent.Progress, string, error) {
	if len(l.machines) > 0 || len(l.session.Machines) > 0 {
		return intent.Complete, step.Receipt, nil
	}
	found, err := l.keeper.Launchers[l.session.Provider].Find(ctx, l.keeper.Installation, l.session.ID)
	if err != nil {
		return "", "", err
	}
	var machines []Machine
	for _, f := range found {
		if f.Token != step.Key || f.Session != l.session.ID {
			continue
		}
		if f.LaunchPending {
			return intent.NotDone, "", nil
		}
		machines = append(machines, f.Machine)
	}
	sp, err := l.keeper.Specs.Parse(l.session.ID, l.session.Name, l.session.Spec)
	if err != nil {
		return "", "", err
	}
	switch {
	case len(machines) == 0:
		return intent.NotDone, "", nil
	case len(machines) < sp.Resources.Nodes:
		return intent.InProgress, "", nil
	}
	l.setMachines(machines)
	return intent.Complete, "", nil
}

func earliestLaunch(machines []Machine, now time.Time) time.Time {
	for _, m := range machines {
		if !m.LaunchedAt.IsZero() && m.LaunchedAt.Before(now) {
			now = m.LaunchedAt
		}
	}
	return now
}

// poolRate returns the hourly price of n machines of a pool; nil if unknown.
func poolRate(p Pool, n int) *money.Rate {
	if p.Rate == nil {
		return nil
	}
	all := *p.Rate * money.Rate(n)
	if n > 0 && all/money.Rate(n) != *p.Rate {
		return nil
	}
	return &all
}

// newLaunch builds the call that launches a session's machines.
func (k *Keeper) newLaunch(s *Session, key string) (Launch, error) {
	sp, err := k.Specs.Parse(s.ID, s.Name, s.Spec)
	if err != nil {
		return Launch{}, err
	}
	t := k.timeouts(s)
	// A repeated call must be identical even after the lease was extended; the host learns the new
	// lease from its first order.
	lease := firstLease(s, sp)
	h := HostConfig{
		Schema: HostSchema, Session: s.ID, Name: s.Name, Nodes: sp.Resources.Nodes, Epoch: s.Epoch,
		Control: s.ControlPrefix,
		Work:    s.WorkPrefix, WorkDir: DefaultWorkDir,
		SaveInterval: Duration(DefaultSaveInterval), IdleTimeout: Duration(s.IdleTimeout), LeaseUntil: lease,
		Grace:     Duration(t.Grace),
		SaveLimit: Duration(t.Save), EndTimeout: Duration(t.End),
		Setup: sp.Setup, Env: sp.Env, Secrets: sp.Secrets, Ports: sp.Ports}
	if h.Nodes <= 1 {
		h.NewestSnapshot = s.PreviousSnapshot.Manifest
	} else {
		h.RestoreStep = s.RestoreStep
	}
	if s.Job != "" {
		h.IdleTimeout = 0
		h.Command, h.SaveInterval = attemptCommand(s, sp), checkpointInterval(sp)
	}
	if w := sp.Work; w != nil {
		h.WorkDir, h.SaveInterval = cmp.Or(w.Dir, h.WorkDir), cmp.Or(Duration(w.Every), h.SaveInterval)
	}
	if end := h.EndTimeout; end > 0 {
		if h.EndTimeout = 0; h.EndLimit() != end { // older agents know only the default
			h.EndTimeout = end
		}
	}
	for _, d := range sp.Data {
		h.Data = append(h.Data, d.URI)
	}
	return Launch{
		Token: key, Session: *s, Spec: sp, Pool: s.Pool, Nodes: sp.Resources.Nodes,
		Tags: k.machineTags(s, sp, key), Host: h,
	}, nil
}

// firstLease returns the end of the initial lease.
func firstLease(s *Session, sp *spec.Spec) time.Time {
	if sp.Lease > 0 && s.Job == "" {
		return s.RequestedAt.Add(sp.Lease).UTC()
	}
	return cmp.Or(s.FirstLease, s.LeaseUntil).UTC()
}

// Defaults of sessions whose specification is silent.
const (
	DefaultWorkDir      = "~/work"
	DefaultSaveInterval = 10 * time.Minute
	DefaultIdleTimeout  = 30 * time.Minute
)

// advanceRelease advances the release of a session's machines by one step.
func (k *Keeper) advanceRelease(ctx context.Context, s *Session, v Observation) (waits bool, err error) {
	subject := &releaseIntent{keeper: k, session: s, foundMachines: v.FoundMachines}
	run := intent.Run{Now: func() time.Time { return k.Now().UTC() }, Idempotent: true, Redact: action.Redact}
	step, outcome, err := run.Do(ctx, subject, s.EndStep)
	if err != nil {
		return false, err
	}
	switch outcome {
	case intent.Lapsed:
		next := *subject.session
		next.EndStep = intent.Step{Name: "end", Key: step.Key}
		_, err = k.writeRecord(ctx, subject.session, next, nil)
		return false, err
	case intent.Unseen, intent.UnderWay, intent.Due:
		return true, nil
	}
	return false, nil
}

// releaseIntent is the release of a session's machines as an intent.Subject.
type releaseIntent struct {
	keeper        *Keeper
	session       *Session
	foundMachines []FoundMachine
}

// Keep implements intent.Subject.
func (r *releaseIntent) Keep(ctx context.Context, step intent.Step, what intent.Event) error {
	next := *r.session
	next.EndStep = step
	var events []Event
	if step.Error != "" && step.Error != r.session.EndStep.Error {
		events = append(events, Event{
			At: r.keeper.Now().UTC(), Node: KeeperNode, Kind: "end-" + string(what), Text: step.Error,
		})
	}
	made, err := r.keeper.writeRecord(ctx, r.session, next, events)
	if err == nil {
		*r.session = made
	}
	return err
}

// Call implements intent.Subject.
func (r *releaseIntent) Call(ctx context.Context, _ intent.Step) (string, error) {
	ids := r.session.MachineIDs()
	for _, f := range r.foundMachines {
		if !slices.Contains(ids, f.ID) {
			ids = append(ids, f.ID)
		}
	}
	l := r.keeper.launcher(r.session)
	if files, ok := l.(FilePreserver); ok && r.session.UnsavedWork != "" {
		where, err := files.PreserveFiles(ctx, r.session.ID, ids)
		if err == nil && where != "" && !strings.Contains(r.session.UnsavedWork, where) {
			next := *r.session
			next.UnsavedWork += "; its files are kept in " + where
			if next, err = r.keeper.writeRecord(ctx, r.session, next, []Event{
				{At: r.keeper.Now().UTC(), Node: KeeperNode, Kind: "kept", Text: "files that are not saved: " + where},
			}); err == nil {
				*r.session = next
			}
		}
		if err != nil {
			return "", err
		}
	}
	return strings.Join(ids, ","), l.End(ctx, r.session.ID, ids)
}

// Look implements intent.Subject.
func (r *releaseIntent) Look(ctx context.Context, step intent.Step) (intent.Progress, string, error) {
	found, err := r.keeper.launcher(r.session).Find(ctx, r.keeper.Installation, r.session.ID)
	if err != nil {
		return "", "", err
	}
	switch {
	case step.AcceptedAt.IsZero():
		return intent.NotDone, "", nil // unlisted machines may still exist
	case len(found) > 0:
		return intent.InProgress, "", nil
	}
	return intent.Complete, "", nil
}

// cleanUp deletes what the machines left, charges for them, settles the hold and closes the record.
func (k *Keeper) cleanUp(ctx context.Context, s *Session, n Decision) (waits bool, err error) {
	left, err := k.launcher(s).Leftovers(ctx, k.Installation, s.ID)
	if err != nil {
		return false, fmt.Errorf("remove what it left: %w", err)
	}
	if len(left) > 0 {
		why := s.EndReason + "; not removed yet: " + strings.Join(left, ", ")
		if why == s.Why {
			return true, nil
		}
		next := *s
		next.Why = why
		_, err := k.writeRecord(ctx, s, next, nil)
		return true, err
	}
	done := n.Session
	if len(done.Machines) > 0 && k.Ledger != nil {
		if err := k.Ledger.Charge(ctx, &done, done.EndedAt, true); err != nil {
			return false, err
		}
	}
	if done.Job != "" && k.AccountAttempt != nil {
		if err := k.AccountAttempt(ctx, &done); err != nil {
			return false, err
		}
	}
	actual, _, err := done.Cost(done.EndedAt)
	if err == nil && k.Holds != nil && done.Job == "" { // a job's hold outlives its attempts
		err = k.Holds.Close(ctx, &done, actual, len(done.Machines) > 0)
	}
	if err == nil {
		_, err = k.writeRecord(ctx, s, done, n.Events)
	}
	return false, err
}
