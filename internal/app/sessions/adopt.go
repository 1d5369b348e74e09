package sessions

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/sessionfile"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/view"
)

// AdoptOptions configure the adoption of a machine that a person launched.
type AdoptOptions struct {
	clouds.Source
	// Name is the session name; empty takes the machine's.
	Name string
	// Lease is the time until the end, Idle the idle time after which the machine ends; 0 takes the
	// configured values.
	Lease, Idle time.Duration
	// Owner fills in what no tag says.
	Owner inventory.Owner
	// Enforce writes the tags and the record.
	Enforce bool
}

// adoption is the adoption of one machine.
type adoption struct {
	options  AdoptOptions
	sessions *Sessions
	ref      inventory.Ref
	actor    string
	now      time.Time
	// machine is the machine as the provider shows it.
	machine *inventory.Resource
	// openSession is an existing open record of the machine; nil if there is none.
	openSession *session.Session
	owner       inventory.Owner
	name        string
	doc         view.Adoption
}

// Adopt puts a machine that a person launched under a lease and an owner: it writes tags, by which
// policies apply, and a session record. It starts and ends nothing. Without Enforce it changes
// nothing.
func Adopt(ctx context.Context, req *runtime.Request, name string, o AdoptOptions) (view.Adoption, error) {
	cfg, err := req.Config()
	if err != nil {
		return view.Adoption{}, err
	}
	ref, err := audit.Resolve(ctx, req, cfg, name)
	if missing := (*runtime.Error)(nil); errors.As(err, &missing) && missing.Code == "not_found" {
		found, failed := clouds.FindResource(ctx, req, cfg, o.Source, name)
		if !errors.Is(failed, inventory.ErrNotFound) {
			ref, err = found, failed
		}
	}
	if err != nil {
		return view.Adoption{}, err
	}
	if ref.Kind != inventory.KindInstance || ref.Cloud != clouds.ProviderAWS {
		return view.Adoption{}, runtime.Invalid(
			"curfew session adopt %s: it takes machines of AWS, and this is of kind %s at %s",
			ref, ref.Kind, ref.Cloud)
	}
	a, err := Open(ctx, req)
	if err != nil {
		return view.Adoption{}, err
	}
	defer a.Close()
	who, err := identity.Asker(ctx, req, a.Config, a.Decider)
	if err != nil {
		return view.Adoption{}, err
	}
	x := &adoption{options: o, sessions: a, ref: ref, actor: who.Name, now: a.now().UTC().Truncate(time.Second)}
	x.options.Cloud, x.options.Regions = clouds.ProviderAWS, []string{ref.Region}
	if err := audit.RestoreAccess(ctx, a.Config, a.store, &x.options.Source, []inventory.Ref{ref}); err != nil {
		return view.Adoption{}, err
	}
	if err := x.read(ctx); err != nil {
		return view.Adoption{}, err
	}
	if x.doc.Refusals = x.refusals(); len(x.doc.Refusals) > 0 {
		x.doc.State = view.AdoptRefused
		return x.doc, nil
	}
	return x.doc, x.apply(ctx)
}

// read reads the machine and the records.
func (x *adoption) read(ctx context.Context) error {
	a := x.sessions
	open, err := a.store.Sessions().Sessions(ctx, session.Query{OpenOnly: true})
	if err != nil {
		return err
	}
	for _, s := range open {
		if s.UserLaunched && slices.Contains(s.Place.Refs, x.ref) {
			x.openSession = &s
		}
	}
	cloud, err := clouds.OpenActionable(ctx, a.Request, a.Config, x.options.Source)
	if err != nil {
		return err
	}
	if x.machine, err = readMachine(ctx, cloud, x.ref, x.now); err != nil {
		return err
	}
	if x.machine == nil {
		return &runtime.Error{
			Code: "not_found", Err: fmt.Errorf("adopt %s: the provider does not show it", x.ref),
			Hint: "look at its region and account",
		}
	}
	book, err := a.Request.PriceBook(a.Config)
	if err != nil {
		return err
	}
	book.Fill(x.machine)
	x.owner = mergeOwners(x.machine.Owner, x.options.Owner)
	x.name = cmp.Or(x.options.Name, sessionfile.Name(x.machine.Name, x.machine.ID))
	until := x.now.Add(cmp.Or(x.options.Lease, a.Config.Sessions.Lease))
	if x.openSession != nil {
		x.name, until = x.openSession.Name, x.openSession.LeaseUntil
	}
	x.doc = view.Adoption{
		Schema: view.AdoptionSchema, DryRun: !x.options.Enforce, State: view.AdoptPreview, Resource: x.ref.String(),
		Type: x.machine.Type, Region: x.ref.Region,
		Session: x.name, Owner: x.owner, LeaseUntil: until, Idle: session.Duration(x.idleTimeout()).String(),
		Tags: []view.AddedTag{}, Refusals: []view.Refusal{}, Notes: []string{}}
	i, ok := x.machine.Detail.(*inventory.Instance)
	if p, err := book.OnDemand(x.machine.Type, x.ref.Region); err == nil && ok && i.Market == inventory.OnDemand {
		if hourly, err := p.Hourly(); err == nil {
			x.doc.HourlyUSD = money.Known(hourly)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(x.newTags("…"))) {
		t := view.AddedTag{Key: key, Value: x.newTags("the id of the session")[key], From: "session adopt"}
		if before, ok := x.machine.Tags[key]; ok {
			t.Before = &before
		}
		x.doc.Tags = append(x.doc.Tags, t)
	}
	x.doc.Notes = append(x.doc.Notes, "policies stop it when its lease is over or it was idle for that long: `curfew "+
		"policy init` writes such policies (expired-leases.yaml), and docs/pets-to-sessions.md says more")
	if _, err := cloud.Actions().Plan(ctx, x.machine, policy.Do{Verb: policy.Stop}); err != nil {
		x.doc.Notes = append(x.doc.Notes, "it could not be stopped now: "+action.Redact(err.Error()))
	} else {
		x.doc.Notes = append(x.doc.Notes, "a stop keeps its disks; curfew never terminates it")
	}
	return nil
}

// idleTimeout returns the idle timeout, 0 for none. A recorded value takes precedence.
func (x *adoption) idleTimeout() time.Duration {
	if x.openSession != nil {
		return x.openSession.IdleTimeout
	}
	return cmp.Or(x.options.Idle, x.sessions.Config.Sessions.Idle)
}

// readMachine reads a machine again; nil if the provider does not list it.
func readMachine(ctx context.Context, cloud *clouds.AWS, ref inventory.Ref, now time.Time) (*inventory.Resource,
	error) {
	seen, err := cloud.List(ctx, round.Query{Now: now, Only: map[inventory.Ref]bool{ref: true}})
	switch {
	case err != nil:
		return nil, clouds.CloudError(err)
	case len(seen.Resources) == 1:
		return seen.Resources[0], nil
	case len(seen.BlindSpots) > 0:
		return nil, fmt.Errorf("read %s: %s", ref, seen.BlindSpots[0].Why)
	}
	return nil, nil
}

// mergeOwners fills empty fields of the tagged owner.
func mergeOwners(tagged, said inventory.Owner) inventory.Owner {
	return inventory.Owner{
		Team: cmp.Or(tagged.Team, said.Team), Project: cmp.Or(tagged.Project, said.Project),
		User:        cmp.Or(tagged.User, said.User),
		Environment: cmp.Or(tagged.Environment, said.Environment),
		CostCenter:  cmp.Or(tagged.CostCenter, said.CostCenter)}
}

// newTags returns the tags to write. Existing owner tags stay.
func (x *adoption) newTags(id string) map[string]string {
	tags := map[string]string{
		inventory.TagAdopted: id, inventory.TagManaged: "true", inventory.TagLifetime: string(inventory.Ephemeral),
		inventory.TagLease: x.doc.LeaseUntil.UTC().Format(time.RFC3339),
	}
	if idle := x.idleTimeout(); idle > 0 {
		tags[inventory.TagIdle] = idle.String()
	}
	for key, pair := range map[string][2]string{
		"curfew:team": {
			x.machine.Owner.Team, x.owner.Team,
		}, "curfew:project": {x.machine.Owner.Project, x.owner.Project},
		"curfew:user": {x.machine.Owner.User, x.owner.User},
		"curfew:environment": {
			x.machine.Owner.Environment, x.owner.Environment,
		}, "curfew:cost-center": {x.machine.Owner.CostCenter, x.owner.CostCenter}} {
		if pair[0] == "" && pair[1] != "" {
			tags[key] = pair[1]
		}
	}
	return tags
}

// adoptionRules are the reasons to refuse an adoption.
var adoptionRules = []struct {
	name string
	why  func(x *adoption) string
}{
	{"unread", func(x *adoption) string {
		if _, ok := x.machine.Detail.(*inventory.Instance); x.machine.Tags == nil || !ok {
			return "its tags or its details could not be read, so its owner and what manages it are not known"
		}
		return ""
	}},
	{"state", func(x *adoption) string {
		if x.machine.State != inventory.StateRunning {
			return fmt.Sprintf("it is %s: only a machine that runs has a lease",
				cmp.Or(string(x.machine.State), "in no known state"))
		}
		return ""
	}},
	{"launched", func(x *adoption) string {
		switch {
		case x.machine.Tags[inventory.TagSession] != "":
			return "it is a machine of session " + x.machine.Tags[inventory.TagSession] + " already"
		case x.machine.Tags[inventory.TagInstallation] != "":
			return "another curfew started it (" + inventory.TagInstallation + "=" +
				x.machine.Tags[inventory.TagInstallation] +
				")"
		}
		return ""
	}},
	{"adopted", func(x *adoption) string {
		id := x.machine.Tags[inventory.TagAdopted]
		switch {
		case x.openSession != nil && x.openSession.State == session.Ready:
			return "it is session " + x.openSession.Name + " already; `curfew extend " + x.openSession.Name +
				" --for 2h` prolongs it"
		case x.openSession != nil && x.openSession.State == session.Ending:
			return "session " + x.openSession.Name + ", which stands for it, is ending"
		case id != "" && (x.openSession == nil || x.openSession.ID != id):
			return "it was adopted before, as " + id + " (" + inventory.TagAdopted +
				"): take that tag away if no curfew manages it any longer"
		}
		return ""
	}},
	{"group-member", func(x *adoption) string {
		if m := x.machine.Manager; m != (inventory.Manager{}) {
			return m.String() + " manages it and would replace it; change its size there"
		}
		return ""
	}},
	{"gang", func(x *adoption) string {
		if x.machine.Gang != "" {
			return "it works together with the other machines of " + x.machine.Gang + ", which are judged as one"
		}
		return ""
	}},
	{"persistent", func(x *adoption) string {
		if x.machine.Lifetime == inventory.Persistent {
			return "a tag says that it is persistent"
		}
		return ""
	}},
	{"not-managed", func(x *adoption) string {
		for key, v := range x.machine.Tags {
			if inventory.SameTagKey(key, inventory.TagManaged) && v != "" && !strings.EqualFold(v, "true") {
				return fmt.Sprintf("its tag %s=%s keeps policies off it", key, v)
			}
		}
		return ""
	}},
	{"production", func(x *adoption) string {
		switch {
		case x.owner.InProduction():
			return "its environment is " + x.owner.Environment
		case x.machine.Purpose == inventory.Inference:
			return "it serves (" + string(x.machine.Purpose) + "), and what serves has no lease"
		}
		return ""
	}},
	{"owner", func(x *adoption) string {
		for _, f := range []struct{ what, tagged, said string }{
			{
				"team", x.machine.Owner.Team, x.options.Owner.Team,
			}, {"project", x.machine.Owner.Project, x.options.Owner.Project},
			{"user", x.machine.Owner.User, x.options.Owner.User},
		} {
			if f.said != "" && f.tagged != "" && f.said != f.tagged {
				return fmt.Sprintf("a tag says that its %s is %s, not %s", f.what, f.tagged, f.said)
			}
		}
		if x.owner.Team == "" && x.owner.User == "" {
			return "no tag names its owner: give --user or --team, whom warnings then reach"
		}
		return ""
	}},
	{"lease-policy", func(x *adoption) string {
		lease, most := x.doc.LeaseUntil.Sub(x.now), x.sessions.Config.Sessions.MaxLease
		if most > 0 && lease > most {
			return fmt.Sprintf("a lease of %s is longer than sessions.max_lease, %s", plain.Duration(lease),
				plain.Duration(most))
		}
		return ""
	}},
	{"idle-limit", func(x *adoption) string {
		if idle := x.idleTimeout(); idle > inventory.MaxIdle {
			return fmt.Sprintf("an idle time of %s is longer than %s, the longest that policies look for",
				plain.Duration(idle),
				plain.Duration(inventory.MaxIdle))
		}
		return ""
	}},
}

func (x *adoption) refusals() []view.Refusal {
	out := []view.Refusal{}
	for _, rule := range adoptionRules {
		if why := rule.why(x); why != "" {
			out = append(out, view.Refusal{Rule: rule.name, Why: why})
		}
	}
	return out
}

// apply writes the record, then the tags through the safety ladder, and then the completion. After
// a crash in between the next adoption continues; the record alone ends no machine.
func (x *adoption) apply(ctx context.Context) error {
	file, err := sessionfile.New(machineOf(x.machine, x.owner, x.now), nil, nil,
		sessionfile.Options{Name: x.name, Lease: x.doc.LeaseUntil.Sub(x.now), Idle: x.idleTimeout()})
	if err != nil {
		return runtime.Invalid("%w", err)
	}
	if !x.options.Enforce {
		return nil
	}
	s, err := x.writeRecord(ctx, file)
	if err != nil {
		return err
	}
	x.doc.SessionID = s.ID
	line, err := x.writeTags(ctx, s.ID)
	if err != nil {
		return err
	}
	x.doc.Item = line.Item
	if line.Result != action.ResultConfirmed && line.Rule != "nothing-to-do" {
		x.doc.State = view.AdoptUnfinished
		x.doc.Notes = append(x.doc.Notes, "its tags are not confirmed ("+string(line.Result)+"): "+cmp.Or(line.Why,
			"look again")+"; the same command goes on")
		return nil
	}
	s.State, s.ReadyAt, s.Why = session.Ready, x.now, ""
	if _, err := x.sessions.store.Sessions().Put(ctx, s, []session.Event{
		{
			At: x.now, Node: session.KeeperNode, Kind: "adopted",
			Text: "by " + x.actor + ", until " + s.LeaseUntil.Format(time.RFC3339),
		},
	}, sessionEntry(x.sessions, s, x.actor, "adopted "+x.ref.String())); err != nil {
		return err
	}
	x.doc.State = view.AdoptDone
	return nil
}

// machineOf converts a machine of the account for a session file.
func machineOf(r *inventory.Resource, owner inventory.Owner, now time.Time) sessionfile.Machine {
	m := sessionfile.Machine{
		ID: r.ID, Name: r.Name, Type: r.Type, Region: r.Region, Owner: owner, Purpose: r.Purpose,
		Seen: "the account on " + plain.Date(now),
	}
	if i, ok := r.Detail.(*inventory.Instance); ok {
		m.Spot, m.Image = i.Market == inventory.Spot, i.ImageID
		for _, d := range i.Disks {
			if d.Root {
				m.DiskGiB = d.SizeGiB.Or(0)
			}
		}
	}
	return m
}

// writeRecord writes the record, or continues with that of a crashed adoption.
func (x *adoption) writeRecord(ctx context.Context, file *sessionfile.File) (session.Session, error) {
	if x.openSession != nil {
		return *x.openSession, nil
	}
	a := x.sessions
	random := make([]byte, 8)
	if _, err := rand.Read(random); err != nil {
		return session.Session{}, err
	}
	before, err := a.store.Sessions().Sessions(ctx, session.Query{Name: x.name})
	if err != nil {
		return session.Session{}, err
	}
	pool := session.Pool{
		Type: x.machine.Type, Region: x.ref.Region, Zone: x.machine.Zone, Spot: file.Spec.Capacity == "spot",
		Image: file.Spec.Image,
	}
	s := session.Session{
		ID: hex.EncodeToString(random), Name: x.name, RequestedBy: x.actor, Owner: x.owner,
		Spec: file.Spec.Canonical(),
		Hash: file.Spec.Hash(), Provider: clouds.ProviderAWS, Account: x.ref.Account, Region: x.ref.Region,
		Epoch: 1, State: session.Launching, Why: "its tags are being written", LeaseUntil: x.doc.LeaseUntil,
		IdleTimeout: x.idleTimeout(),
		Pool:        pool, UserLaunched: true,
		Place: session.Place{Refs: []inventory.Ref{x.ref}, Profile: x.options.Profile}, RequestedAt: x.now,
		LaunchedAt: x.now}
	if len(x.options.AssumeRoles) > 0 {
		s.Place.Role = x.options.AssumeRoles[0]
	}
	if hourly, priced := x.doc.HourlyUSD.Get(); priced {
		rate, err := hourly.Rate()
		if err != nil {
			return s, fmt.Errorf("price an hour of %s: %w", x.ref, err)
		}
		s.Pool.Rate, s.Rate = &rate, &rate
	}
	s.Machines = []session.Machine{{ID: x.machine.ID, Pool: s.Pool, State: x.machine.State, LaunchedAt: x.now}}
	for _, b := range before {
		s.Epoch = max(s.Epoch, b.Epoch+b.Round()+1)
	}
	made, err := a.store.Sessions().Put(ctx, s, []session.Event{
		{At: x.now, Node: session.KeeperNode, Kind: "requested", Text: "by " + x.actor + ": " + x.ref.String()},
	}, sessionEntry(a, s, x.actor, "asked to adopt "+x.ref.String()))
	if errors.Is(err, session.ErrNameTaken) {
		err = &runtime.Error{
			Class: runtime.Usage, Code: "taken", Err: fmt.Errorf("there is a session %s already", s.Name),
			Hint: "--name gives this one another name",
		}
	}
	return made, err
}

// writeTags writes the tags through the safety ladder, with its refusals, audit entries and undo.
func (x *adoption) writeTags(ctx context.Context, id string) (action.Line, error) {
	a := x.sessions
	setting, err := clouds.Setting(ctx, a.Request, a.Config, x.options.Source)
	if err != nil {
		return action.Line{}, err
	}
	cloud, ok := setting.Lister.(*clouds.AWS)
	if !ok {
		return action.Line{}, runtime.Invalid("nothing is tagged at %s", x.ref.Cloud)
	}
	setting.Sources = nil // tagging does not depend on usage
	setting.Query.Only = map[inventory.Ref]bool{x.ref: true}
	setting.Tagging = &round.Tagging{
		Tags: a.Config.Tags, Declared: map[inventory.Ref]map[string]string{x.ref: x.newTags(id)},
	}
	if _, err := a.Request.InTime(ctx, a.store); err != nil {
		return action.Line{}, err
	}
	if setting.Ladder, err = clouds.Ladders(a.Request, a.Config, a.store, cloud.Actions(), true); err != nil {
		return action.Line{}, err
	}
	out, err := round.New(setting).Round(ctx)
	if err != nil {
		return action.Line{}, runtime.StateError(clouds.CloudError(err))
	}
	for _, l := range out.Lines() {
		if l.Resource == x.ref {
			return l, nil
		}
	}
	return action.Line{Rule: "nothing-to-do"}, nil // the machine has the tags already
}
