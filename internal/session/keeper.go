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
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/spec"
)

// Admission is the gate's answer about a session.
type Admission struct {
	Verdict gate.Verdict
	// HoldID is what was reserved, ApprovalID the request that waits or was used up.
	HoldID, ApprovalID string
	Reasons            []string
	// Hourly is the most that an hour of it may cost by this answer; 0: its price is not known.
	Hourly money.Amount
}

// Gate decides whether a session may start.
type Gate interface {
	// Admit decides. Asking again for the same session answers with the hold that it has.
	Admit(ctx context.Context, s *Session) (Admission, error)
}

// Holds are what was reserved for sessions.
type Holds interface {
	// Close ends every hold of a session: settled with what it came to where machines ran,
	// released where none did. One that is closed already is no error.
	Close(ctx context.Context, s *Session, actual money.Amount, ran bool) error
}

// Books charge for the machines of sessions.
type Books interface {
	// Charge says that the machines of a session ran until a time, and, where ended is set,
	// that they are gone since then.
	Charge(ctx context.Context, s *Session, at time.Time, ended bool) error
}

// Keeper does what is missing of sessions. It knows nothing between passes: a crash anywhere
// is a restart, and any number of them may work on one state, because every write is
// conditional on the version that was read, and every call of a provider carries a token.
type Keeper struct {
	Store Store
	// Launchers are the providers, by their names. A session of another is left alone.
	Launchers map[string]Launcher
	Control   Control
	// Gate decides about new sessions; nil: another process asks it.
	Gate  Gate
	Holds Holds
	Books Books
	// Hands reach the machines of sessions that were started by hand: they find those that run
	// and are under its lease, and stop them. Nil: another process does.
	Hands Launcher
	// Tell reaches the owner of machines that were found without a record; an error says that no
	// channel took it. Nil: no one is told.
	Tell func(ctx context.Context, s *Session) (accepted string, err error)
	// Installation is the name under which machines are tagged.
	Installation string
	// Mine says whether this process can reach a session's provider: machines of another
	// host's local provider are not its own. Nil: all.
	Mine func(s *Session) bool
	Now  func() time.Time
	// Timing bounds what is waited for, by provider.
	Timing map[string]Timing
	Log    *slog.Logger
}

// maxActs bounds one pass over a session.
const maxActs = 64

// Keep does what is missing of a session, as far as that goes now, and says when to look
// again.
func (k *Keeper) Keep(ctx context.Context, id string) (after time.Duration, err error) {
	untold := false
	for range maxActs {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		s, err := k.Store.Session(ctx, id)
		if err != nil {
			return 0, err
		}
		if s.State.Over() || k.launcher(&s) == nil || k.Mine != nil && !k.Mine(&s) {
			return time.Hour, nil
		}
		if told, err := k.tell(ctx, &s); told || err != nil {
			if errors.Is(err, ErrConflict) {
				continue
			}
			if err != nil {
				return 0, err
			}
			continue
		}
		v, err := k.look(ctx, &s)
		if err != nil {
			return 0, err
		}
		v.Untold = untold
		n := Decide(v, k.timing(&s))
		if n.Act == Wait {
			return n.After, nil
		}
		waits, err := k.act(ctx, &s, v, n)
		switch {
		case errors.Is(err, ErrConflict), errors.Is(err, intent.ErrConflict):
			continue // another keeper was faster: what is there now counts
		case err != nil && n.Act == Tell && s.Discard && ctx.Err() == nil:
			// What is given up needs no word to its hosts.
			k.Log.WarnContext(ctx, "the hosts of a session could not be told that it is given up", "session", s.Name, "error",
				err)
			untold = true
		case err != nil:
			return 0, fmt.Errorf("session %s: %w", s.Name, err)
		case waits:
			return n.After, nil
		}
	}
	return 0, nil
}

// tellAgain is after what time the owner of a machine without a record is tried again.
const tellAgain = 10 * time.Minute

// tell tells the owner of machines that were found without a record, once. It says whether it
// wrote the record.
func (k *Keeper) tell(ctx context.Context, s *Session) (wrote bool, err error) {
	now := k.Now().UTC()
	if !s.Adopted || len(s.Machines) == 0 || k.Tell == nil || !s.ToldAt.IsZero() || now.Before(s.TellAt) {
		return false, nil
	}
	next := *s
	e := Event{At: now, Node: Keepers, Kind: "told"}
	if e.Text, err = k.Tell(ctx, s); err != nil {
		next.TellAt = now.Add(tellAgain)
		e.Kind, e.Text = "untold", "its owner was not told: "+action.Redact(err.Error())
	} else {
		next.ToldAt = now
	}
	_, err = k.put(ctx, s, next, []Event{e})
	return err == nil, err
}

// launcher is what reaches a session's machines; nil: this process does not.
func (k *Keeper) launcher(s *Session) Launcher {
	if s.ByHand {
		return k.Hands
	}
	return k.Launchers[s.Provider]
}

func (k *Keeper) timing(s *Session) Timing { return k.Timing[s.Provider].Fill() }

// look gathers what a decision rests on. What cannot be read is unknown; the decision waits
// for it where it counts.
func (k *Keeper) look(ctx context.Context, s *Session) (View, error) {
	v := View{Now: k.Now().UTC(), Session: *s, Gated: k.Gate != nil}
	l := k.launcher(s)
	switch s.State {
	case Requested:
		return v, nil
	case Launching:
		if s.Launch.Key != "" || s.ByHand {
			return v, nil
		}
		return v, k.pools(ctx, l, &v)
	}
	var err error
	if v.Found, err = l.Find(ctx, k.Installation, s.ID); err != nil {
		k.Log.WarnContext(ctx, "the machines of a session could not be listed", "session", s.Name, "error", err)
	} else {
		v.Looked = true
		v.Found = slices.DeleteFunc(v.Found, func(f Found) bool { return f.Session != s.ID })
	}
	if s.Adopted {
		open, err := k.Store.Sessions(ctx, Query{Open: true})
		if err != nil {
			return v, err
		}
		for _, o := range open {
			if o.Adopted && !v.Now.Before(o.NotBefore) {
				v.Strays += len(o.Machines)
			}
		}
	}
	if s.Control == "" {
		v.Heard = true
		return v, nil
	}
	v.Hosts, v.Wrong, err = k.Hosts(ctx, s, max(len(s.Machines), highest(v.Found)+1))
	if err == nil {
		v.Order, _, err = k.Control.Order(ctx, s)
	}
	if err != nil {
		k.Log.WarnContext(ctx, "the hosts of a session could not be heard", "session", s.Name, "error", err)
		return v, nil
	}
	v.Heard = true
	if err := k.collect(ctx, s, v.Hosts); err != nil {
		k.Log.WarnContext(ctx, "the events of a session could not be kept", "session", s.Name, "error", err)
	}
	return v, nil
}

// Hosts returns what the hosts of a session said last that can be, and names what cannot.
func (k *Keeper) Hosts(ctx context.Context, s *Session, nodes int) (hosts map[int]Status, wrong []string, err error) {
	hosts, broken, err := k.Control.Hosts(ctx, s, nodes)
	if err != nil {
		return nil, nil, err
	}
	wrong = checkHosts(s, hosts, broken, k.Now().UTC())
	return hosts, wrong, nil
}

func highest(found []Found) int {
	node := -1
	for _, f := range found {
		node = max(node, f.Node)
	}
	return node
}

// pools reads where a session can be launched, and which of that had no machine of late.
func (k *Keeper) pools(ctx context.Context, l Launcher, v *View) error {
	sp, err := spec.Parse(v.Session.Name, v.Session.Spec)
	if err != nil {
		return err
	}
	v.Nodes = sp.Resources.Nodes
	v.Pools, err = l.Pools(ctx, sp)
	if err != nil && !errors.Is(err, ErrUnsupported) {
		return fmt.Errorf("look for a place to launch it: %w", err)
	}
	all, err := k.Store.Sessions(ctx, Query{})
	for _, s := range all {
		if s.Provider == v.Session.Provider && s.Account == v.Session.Account {
			v.Aside = append(v.Aside, s.Tries...)
		}
	}
	return err
}

// collect keeps the events that hosts wrote since the last time, so many files of each in one pass.
func (k *Keeper) collect(ctx context.Context, s *Session, hosts map[int]Status) error {
	for node, h := range hosts {
		kept, err := k.Store.Newest(ctx, s.ID, node)
		if err != nil {
			return err
		}
		for file := kept + 1; file <= min(h.Events, kept+eventFilesPerPass); file++ {
			events, err := k.Control.Events(ctx, s, node, file)
			if err == nil {
				err = k.Store.AddEvents(ctx, s.ID, node, file, checkEvents(s, node, events, k.Now().UTC()))
			}
			if err = cmp.Or(err, ctx.Err()); err != nil {
				return err
			}
		}
	}
	return nil
}

// act carries one act out. It says whether there is nothing more to do now.
func (k *Keeper) act(ctx context.Context, s *Session, v View, n Next) (waits bool, err error) {
	switch n.Act {
	case Admit:
		return k.admit(ctx, s)
	case Change:
		_, err = k.put(ctx, s, n.Session, n.Events)
		return false, err
	case Starts:
		return k.start(ctx, s)
	case Tell:
		_, version, err := k.Control.Order(ctx, s)
		if err == nil {
			err = k.Control.Give(ctx, s, n.Order, version)
		}
		return false, err
	case Release:
		return k.release(ctx, s, v)
	case Charge:
		if k.Books != nil {
			if err := k.Books.Charge(ctx, s, n.Session.Charged, false); err != nil {
				k.Log.WarnContext(ctx, "a session could not be charged", "session", s.Name, "error", err)
			}
		}
		_, err = k.put(ctx, s, n.Session, nil)
		return false, err
	case Clean:
		return k.clean(ctx, s, n)
	}
	return true, nil
}

// put writes a record with an entry of the audit log.
func (k *Keeper) put(ctx context.Context, old *Session, s Session, events []Event) (Session, error) {
	e := action.Entry{
		At: k.Now().UTC(), Account: s.Provider + "/" + s.Account, Actor: cmp.Or(s.EndBy, s.By), What: action.EventSession,
		Resource: "session/" + s.Name, Item: s.ID, Verb: string(s.State), Because: s.Why}
	if s.EndBy == "" && old != nil {
		e.Actor = keeper
	}
	for _, event := range events {
		e.Outcome = strings.TrimPrefix(e.Outcome+"; "+strings.TrimSpace(event.Kind+" "+event.Text), "; ")
	}
	return k.Store.Put(ctx, s, events, e)
}

// admit asks the gate.
func (k *Keeper) admit(ctx context.Context, s *Session) (waits bool, err error) {
	a, err := k.Gate.Admit(ctx, s)
	if err != nil {
		return false, err
	}
	next := *s
	next.Approval = a.ApprovalID
	event := Event{
		At: k.Now().UTC(), Node: Keepers, Kind: "gate", Text: string(a.Verdict) + ": " + strings.Join(a.Reasons, "; "),
	}
	switch a.Verdict {
	case gate.Allow:
		next.HoldID, next.State, next.Why, next.Ceiling = a.HoldID, Launching, "", a.Hourly
	case gate.Held:
		next.Why = strings.Join(a.Reasons, "; ")
		if next.Approval == s.Approval && next.Why == s.Why {
			return true, nil
		}
		_, err = k.put(ctx, s, next, []Event{event})
		return true, err
	default:
		endSession(&next, k.Now().UTC(), "gate", "denied: "+strings.Join(a.Reasons, "; "))
	}
	_, err = k.put(ctx, s, next, []Event{event})
	return false, err
}

// classes of refusals of a launch.
func class(err error) string {
	switch {
	case errors.Is(err, ErrCapacity):
		return classCapacity
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

// token is the token of a launch: one for each try of a pool.
func token(s *Session) string {
	// texts and numbers alone
	text, _ := json.Marshal([]any{
		"curfew.launch/v1", s.ID, s.Epoch, s.Launches, s.Pool.Type, s.Pool.Region, s.Pool.Zone, s.Pool.Spot,
	})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// start takes a session's launch a pass on.
func (k *Keeper) start(ctx context.Context, s *Session) (waits bool, err error) {
	on := &launching{k: k, s: s}
	run := intent.Run{Now: func() time.Time {
		return k.Now().UTC()
	}, Idempotent: true, Class: class, Redact: action.Redact}
	step, out, err := run.Do(ctx, on, s.Launch)
	if err != nil {
		return false, err
	}
	switch out {
	case intent.Lapsed:
		next := *on.s
		if s.State == Ending {
			// What is asked for no more is not asked for again; should it show up after all,
			// reconciliation finds it.
			next.Launch.Refused, next.Launch.Error = "lapsed", cmp.Or(step.Error, "no trace of it was seen")
		} else {
			next.Launch = step.Intend(step.Key, k.Now().UTC())
			next.Launch.RepeatedAt = next.Launch.IntentAt
		}
		_, err = k.put(ctx, on.s, next, nil)
		return false, err
	case intent.Unseen, intent.UnderWay, intent.Due:
		return true, nil
	}
	return false, nil
}

// launching is the launch of a session as an intent's subject.
type launching struct {
	k *Keeper
	s *Session
	// made are the machines that the call answered with.
	made []Machine
}

// Keep implements intent.Subject.
func (l *launching) Keep(ctx context.Context, step intent.Step, what intent.Event) error {
	next := *l.s
	next.Launch = step
	if len(l.made) > 0 {
		next.Machines = l.made
		next.LaunchedAt = earliest(l.made, l.k.Now().UTC())
		next.Rate = rate(next.Pool, len(l.made))
	}
	next.Region = cmp.Or(next.Pool.Region, next.Region)
	var events []Event
	if step.Error != "" && step.Error != l.s.Launch.Error {
		events = append(events, Event{At: l.k.Now().UTC(), Node: Keepers, Kind: "launch-" + string(what), Text: step.Error})
	}
	made, err := l.k.put(ctx, l.s, next, events)
	if err == nil {
		*l.s = made
	}
	return err
}

// Call implements intent.Subject.
func (l *launching) Call(ctx context.Context, step intent.Step) (string, error) {
	launch, err := l.k.launch(l.s, step.Key)
	if err != nil {
		return "", err
	}
	machines, err := l.k.Launchers[l.s.Provider].Launch(ctx, launch)
	if err != nil {
		return "", err
	}
	if len(machines) != launch.Nodes {
		return "", fmt.Errorf("the provider answered with %d machines instead of %d", len(machines), launch.Nodes)
	}
	l.take(machines)
	return strings.Join(l.s.IDs(), ","), nil
}

// take keeps the machines of the launch.
func (l *launching) take(machines []Machine) {
	l.made = slices.Clone(machines)
	slices.SortFunc(l.made, func(a, b Machine) int { return a.Node - b.Node })
	for i := range l.made {
		l.made[i].Pool = l.s.Pool // with its price
		l.made[i].LaunchedAt = l.made[i].LaunchedAt.UTC()
	}
}

// Look implements intent.Subject. What the call answered is a proof; what the provider shows
// is one where it shows all machines of the token.
func (l *launching) Look(ctx context.Context, step intent.Step) (intent.Progress, string, error) {
	if len(l.made) > 0 || len(l.s.Machines) > 0 {
		return intent.Complete, step.Receipt, nil
	}
	found, err := l.k.Launchers[l.s.Provider].Find(ctx, l.k.Installation, l.s.ID)
	if err != nil {
		return "", "", err
	}
	var machines []Machine
	for _, f := range found {
		if f.Token != step.Key || f.Session != l.s.ID {
			continue
		}
		if f.Unstarted {
			return intent.NotDone, "", nil
		}
		machines = append(machines, f.Machine)
	}
	sp, err := spec.Parse(l.s.Name, l.s.Spec)
	if err != nil {
		return "", "", err
	}
	switch {
	case len(machines) == 0:
		return intent.NotDone, "", nil
	case len(machines) < sp.Resources.Nodes:
		return intent.InProgress, "", nil
	}
	l.take(machines)
	return intent.Complete, "", nil
}

func earliest(machines []Machine, now time.Time) time.Time {
	for _, m := range machines {
		if !m.LaunchedAt.IsZero() && m.LaunchedAt.Before(now) {
			now = m.LaunchedAt
		}
	}
	return now
}

// rate is what so many machines of a pool cost an hour; nil where they have no price.
func rate(p Pool, n int) *money.Rate {
	if p.Rate == nil {
		return nil
	}
	all := *p.Rate * money.Rate(n)
	if n > 0 && all/money.Rate(n) != *p.Rate {
		return nil
	}
	return &all
}

// launch is the call that starts a session's machines.
func (k *Keeper) launch(s *Session, key string) (Launch, error) {
	sp, err := spec.Parse(s.Name, s.Spec)
	if err != nil {
		return Launch{}, err
	}
	t := k.timing(s)
	// What is asked for with a token is always the same, also where the lease was extended
	// meanwhile: the host learns that by its first order.
	lease := firstLease(s, sp)
	h := Host{
		Schema: HostSchema, Session: s.ID, Name: s.Name, Nodes: sp.Resources.Nodes, Epoch: s.Epoch, Control: s.Control,
		Work: s.Work, WorkDir: DefaultWorkDir,
		Every: Duration(DefaultEvery), Idle: Duration(s.Idle), Lease: lease, Grace: Duration(t.Grace),
		Save: Duration(t.Save), Limit: Duration(t.End),
		Setup: sp.Setup, Env: sp.Env, Secrets: sp.Secrets, Ports: sp.Ports}
	if h.Nodes <= 1 {
		h.Seen = s.Earlier.Manifest
	}
	if w := sp.Work; w != nil {
		h.WorkDir, h.Every = cmp.Or(w.Dir, h.WorkDir), cmp.Or(Duration(w.Every), h.Every)
	}
	if end := h.Limit; end > 0 {
		if h.Limit = 0; h.EndLimit() != end { // an agent of an older version knows the default alone
			h.Limit = end
		}
	}
	for _, d := range sp.Data {
		h.Data = append(h.Data, d.URI)
	}
	return Launch{
		Token: key, Session: *s, Spec: sp, Pool: s.Pool, Nodes: sp.Resources.Nodes, Tags: k.tags(s, sp, key), Host: h,
	}, nil
}

// firstLease is until when a session runs unless its lease is extended.
func firstLease(s *Session, sp *spec.Spec) time.Time {
	if sp.Lease > 0 {
		return s.RequestedAt.Add(sp.Lease).UTC()
	}
	return s.LeaseUntil.UTC()
}

// What a session has that says nothing of it.
const (
	DefaultWorkDir = "~/work"
	DefaultEvery   = 10 * time.Minute
	DefaultIdle    = 30 * time.Minute
)

// TagName is the tag with the name that a person gave a session, TagPerson the one by which
// the provider's permissions know who may connect to it.
const (
	TagName   = "curfew:session-name"
	TagPerson = "curfew:owner"
)

// tags are those of everything that is made for a session.
func (k *Keeper) tags(s *Session, sp *spec.Spec, key string) map[string]string {
	tags := map[string]string{
		"Name": s.Name, inventory.TagSession: s.ID, TagName: s.Name, inventory.TagIntent: key,
		inventory.TagInstallation: k.Installation,
		inventory.TagManaged:      "true", inventory.TagLifetime: string(inventory.Ephemeral),
		inventory.TagLease: firstLease(s, sp).Format(time.RFC3339),
		TagPerson:          cmp.Or(s.Person, s.Owner.User, s.By, keeper),
	}
	if sp.Resources.Nodes > 1 { // they are judged together
		tags[inventory.TagGang] = s.ID
	}
	if s.Work != "" { // its work is saved before it ends, whoever ends it
		tags[inventory.TagDisks] = inventory.DisksScratch
	}
	for key, v := range map[string]string{
		inventory.TagHold: s.HoldID, "curfew:team": s.Owner.Team, "curfew:project": s.Owner.Project,
		"curfew:user":        cmp.Or(s.Owner.User, s.By),
		"curfew:environment": s.Owner.Environment, "curfew:cost-center": s.Owner.CostCenter} {
		if v != "" {
			tags[key] = v
		}
	}
	if sp.Purpose != "" {
		tags[inventory.TagPurpose] = string(sp.Purpose)
	}
	return tags
}

// release takes a session's end a pass on.
func (k *Keeper) release(ctx context.Context, s *Session, v View) (waits bool, err error) {
	on := &releasing{k: k, s: s, found: v.Found}
	run := intent.Run{Now: func() time.Time { return k.Now().UTC() }, Idempotent: true, Redact: action.Redact}
	step, out, err := run.Do(ctx, on, s.End)
	if err != nil {
		return false, err
	}
	switch out {
	case intent.Lapsed:
		next := *on.s
		next.End = intent.Step{Name: "end", Key: step.Key}
		_, err = k.put(ctx, on.s, next, nil)
		return false, err
	case intent.Unseen, intent.UnderWay, intent.Due:
		return true, nil
	}
	return false, nil
}

// releasing is the end of a session's machines as an intent's subject.
type releasing struct {
	k     *Keeper
	s     *Session
	found []Found
}

// Keep implements intent.Subject.
func (r *releasing) Keep(ctx context.Context, step intent.Step, what intent.Event) error {
	next := *r.s
	next.End = step
	var events []Event
	if step.Error != "" && step.Error != r.s.End.Error {
		events = append(events, Event{At: r.k.Now().UTC(), Node: Keepers, Kind: "end-" + string(what), Text: step.Error})
	}
	made, err := r.k.put(ctx, r.s, next, events)
	if err == nil {
		*r.s = made
	}
	return err
}

// Call implements intent.Subject.
func (r *releasing) Call(ctx context.Context, _ intent.Step) (string, error) {
	ids := r.s.IDs()
	for _, f := range r.found {
		if !slices.Contains(ids, f.ID) {
			ids = append(ids, f.ID)
		}
	}
	l := r.k.launcher(r.s)
	if files, ok := l.(Rescuer); ok && r.s.Lost != "" {
		where, err := files.Rescue(ctx, r.s.ID, ids)
		if err == nil && where != "" && !strings.Contains(r.s.Lost, where) {
			next := *r.s
			next.Lost += "; its files are kept in " + where
			if next, err = r.k.put(ctx, r.s, next, []Event{
				{At: r.k.Now().UTC(), Node: Keepers, Kind: "kept", Text: "files that are not saved: " + where},
			}); err == nil {
				*r.s = next
			}
		}
		if err != nil {
			return "", err
		}
	}
	return strings.Join(ids, ","), l.End(ctx, r.s.ID, ids)
}

// Look implements intent.Subject.
func (r *releasing) Look(ctx context.Context, step intent.Step) (intent.Progress, string, error) {
	found, err := r.k.launcher(r.s).Find(ctx, r.k.Installation, r.s.ID)
	if err != nil {
		return "", "", err
	}
	switch {
	case step.AcceptedAt.IsZero():
		return intent.NotDone, "", nil // machines that do not show may be there all the same
	case len(found) > 0:
		return intent.InProgress, "", nil
	}
	return intent.Complete, "", nil
}

// clean removes what the machines of a session left, charges for them, settles its hold, and
// closes the record.
func (k *Keeper) clean(ctx context.Context, s *Session, n Next) (waits bool, err error) {
	left, err := k.launcher(s).Leftovers(ctx, k.Installation, s.ID)
	if err != nil {
		return false, fmt.Errorf("remove what it left: %w", err)
	}
	if len(left) > 0 {
		why := s.EndWhy + "; not removed yet: " + strings.Join(left, ", ")
		if why == s.Why {
			return true, nil
		}
		next := *s
		next.Why = why
		_, err := k.put(ctx, s, next, nil)
		return true, err
	}
	done := n.Session
	if len(done.Machines) > 0 && k.Books != nil {
		if err := k.Books.Charge(ctx, &done, done.EndedAt, true); err != nil {
			return false, err
		}
	}
	actual, _, err := done.Cost(done.EndedAt)
	if err == nil && k.Holds != nil {
		err = k.Holds.Close(ctx, &done, actual, len(done.Machines) > 0)
	}
	if err == nil {
		_, err = k.put(ctx, s, done, n.Events)
	}
	return false, err
}
