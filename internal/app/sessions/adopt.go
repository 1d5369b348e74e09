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

// AdoptOptions say how a machine that a person started becomes a session.
type AdoptOptions struct {
	clouds.Source
	// Name is that of the session; empty takes the machine's.
	Name string
	// Lease is how long it may still run and Idle the idle period after which it is to end; 0
	// takes those of the configuration.
	Lease, Idle time.Duration
	// Owner is who answers for it where no tag says so.
	Owner inventory.Owner
	// Enforce writes the tags and the record.
	Enforce bool
}

// adopting is a machine on its way to become a session.
type adopting struct {
	o   AdoptOptions
	a   *Sessions
	ref inventory.Ref
	by  string
	now time.Time
	// r is the machine as the provider shows it.
	r *inventory.Resource
	// open is the record that stands for it already; nil: none.
	open  *session.Session
	owner inventory.Owner
	name  string
	doc   view.Adoption
}

// Adopt gives a machine that a person started a lease and an owner: tags that put it under the
// policies, and a record among the sessions. It starts and ends nothing. Without Enforce it
// changes nothing either.
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
			"curfew session adopt %s: it takes machines of AWS, and this is of kind %s at %s", ref, ref.Kind, ref.Cloud)
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
	x := &adopting{o: o, a: a, ref: ref, by: who.Name, now: a.now().UTC().Truncate(time.Second)}
	x.o.Cloud, x.o.Regions = clouds.ProviderAWS, []string{ref.Region}
	if err := audit.RestoreAccess(ctx, a.Config, a.store, &x.o.Source, []inventory.Ref{ref}); err != nil {
		return view.Adoption{}, err
	}
	if err := x.read(ctx); err != nil {
		return view.Adoption{}, err
	}
	if x.doc.Refusals = x.refusals(); len(x.doc.Refusals) > 0 {
		x.doc.State = view.AdoptRefused
		return x.doc, nil
	}
	return x.doc, x.carryOut(ctx)
}

// read reads the machine and the records.
func (x *adopting) read(ctx context.Context) error {
	a := x.a
	open, err := a.store.Sessions().Sessions(ctx, session.Query{OpenOnly: true})
	if err != nil {
		return err
	}
	for _, s := range open {
		if s.UserLaunched && slices.Contains(s.Place.Refs, x.ref) {
			x.open = &s
		}
	}
	cloud, err := clouds.OpenActionable(ctx, a.Request, a.Config, x.o.Source)
	if err != nil {
		return err
	}
	if x.r, err = readAgain(ctx, cloud, x.ref, x.now); err != nil {
		return err
	}
	if x.r == nil {
		return &runtime.Error{
			Code: "not_found", Err: fmt.Errorf("adopt %s: the provider does not show it", x.ref),
			Hint: "look at its region and account",
		}
	}
	book, err := a.Request.PriceBook(a.Config)
	if err != nil {
		return err
	}
	book.Fill(x.r)
	x.owner = merged(x.r.Owner, x.o.Owner)
	x.name = cmp.Or(x.o.Name, sessionfile.Name(x.r.Name, x.r.ID))
	until := x.now.Add(cmp.Or(x.o.Lease, a.Config.Sessions.Lease))
	if x.open != nil {
		x.name, until = x.open.Name, x.open.LeaseUntil
	}
	x.doc = view.Adoption{
		Schema: view.AdoptionSchema, DryRun: !x.o.Enforce, State: view.AdoptPreview, Resource: x.ref.String(),
		Type: x.r.Type, Region: x.ref.Region,
		Session: x.name, Owner: x.owner, LeaseUntil: until, Idle: session.Duration(x.idle()).String(),
		Tags: []view.AddedTag{}, Refusals: []view.Refusal{}, Notes: []string{}}
	i, ok := x.r.Detail.(*inventory.Instance)
	if p, err := book.OnDemand(x.r.Type, x.ref.Region); err == nil && ok && i.Market == inventory.OnDemand {
		if hourly, err := p.Hourly(); err == nil {
			x.doc.HourlyUSD = money.Known(hourly)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(x.tags("…"))) {
		t := view.AddedTag{Key: key, Value: x.tags("the id of the session")[key], From: "session adopt"}
		if before, ok := x.r.Tags[key]; ok {
			t.Before = &before
		}
		x.doc.Tags = append(x.doc.Tags, t)
	}
	x.doc.Notes = append(x.doc.Notes, "policies stop it when its lease is over or it was idle for that long: `curfew "+
		"policy init` writes such policies (expired-leases.yaml), and docs/pets-to-sessions.md says more")
	if _, err := cloud.Actions().Plan(ctx, x.r, policy.Do{Verb: policy.Stop}); err != nil {
		x.doc.Notes = append(x.doc.Notes, "it could not be stopped now: "+action.Redact(err.Error()))
	} else {
		x.doc.Notes = append(x.doc.Notes, "a stop keeps its disks; curfew never terminates it")
	}
	return nil
}

// idle is the idle period after which it is to end; 0 is none. What was recorded stays.
func (x *adopting) idle() time.Duration {
	if x.open != nil {
		return x.open.IdleTimeout
	}
	return cmp.Or(x.o.Idle, x.a.Config.Sessions.Idle)
}

// readAgain reads a machine; nil where the provider does not show it.
func readAgain(ctx context.Context, cloud *clouds.AWS, ref inventory.Ref, now time.Time) (*inventory.Resource, error) {
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

// merged is an owner with what another one says where it says nothing.
func merged(tagged, said inventory.Owner) inventory.Owner {
	return inventory.Owner{
		Team: cmp.Or(tagged.Team, said.Team), Project: cmp.Or(tagged.Project, said.Project),
		User:        cmp.Or(tagged.User, said.User),
		Environment: cmp.Or(tagged.Environment, said.Environment), CostCenter: cmp.Or(tagged.CostCenter, said.CostCenter)}
}

// tags are those that the machine gets. What a tag says of its owner stays.
func (x *adopting) tags(id string) map[string]string {
	tags := map[string]string{
		inventory.TagAdopted: id, inventory.TagManaged: "true", inventory.TagLifetime: string(inventory.Ephemeral),
		inventory.TagLease: x.doc.LeaseUntil.UTC().Format(time.RFC3339),
	}
	if idle := x.idle(); idle > 0 {
		tags[inventory.TagIdle] = idle.String()
	}
	for key, pair := range map[string][2]string{
		"curfew:team": {x.r.Owner.Team, x.owner.Team}, "curfew:project": {x.r.Owner.Project, x.owner.Project},
		"curfew:user": {x.r.Owner.User, x.owner.User},
		"curfew:environment": {
			x.r.Owner.Environment, x.owner.Environment,
		}, "curfew:cost-center": {x.r.Owner.CostCenter, x.owner.CostCenter}} {
		if pair[0] == "" && pair[1] != "" {
			tags[key] = pair[1]
		}
	}
	return tags
}

// adoptionRules are why a machine is not adopted. Each has a test that fails without it.
var adoptionRules = []struct {
	name string
	why  func(x *adopting) string
}{
	{"unread", func(x *adopting) string {
		if _, ok := x.r.Detail.(*inventory.Instance); x.r.Tags == nil || !ok {
			return "its tags or its details could not be read, so its owner and what manages it are not known"
		}
		return ""
	}},
	{"state", func(x *adopting) string {
		if x.r.State != inventory.StateRunning {
			return fmt.Sprintf("it is %s: only a machine that runs has a lease", cmp.Or(string(x.r.State), "in no known state"))
		}
		return ""
	}},
	{"launched", func(x *adopting) string {
		switch {
		case x.r.Tags[inventory.TagSession] != "":
			return "it is a machine of session " + x.r.Tags[inventory.TagSession] + " already"
		case x.r.Tags[inventory.TagInstallation] != "":
			return "another curfew started it (" + inventory.TagInstallation + "=" + x.r.Tags[inventory.TagInstallation] + ")"
		}
		return ""
	}},
	{"adopted", func(x *adopting) string {
		id := x.r.Tags[inventory.TagAdopted]
		switch {
		case x.open != nil && x.open.State == session.Ready:
			return "it is session " + x.open.Name + " already; `curfew extend " + x.open.Name + " --for 2h` prolongs it"
		case x.open != nil && x.open.State == session.Ending:
			return "session " + x.open.Name + ", which stands for it, is ending"
		case id != "" && (x.open == nil || x.open.ID != id):
			return "it was adopted before, as " + id + " (" + inventory.TagAdopted +
				"): take that tag away if no curfew looks after it any more"
		}
		return ""
	}},
	{"group-member", func(x *adopting) string {
		if m := x.r.Manager; m != (inventory.Manager{}) {
			return m.String() + " manages it and would replace it; change its size there"
		}
		return ""
	}},
	{"gang", func(x *adopting) string {
		if x.r.Gang != "" {
			return "it works together with the other machines of " + x.r.Gang + ", which are judged as one"
		}
		return ""
	}},
	{"persistent", func(x *adopting) string {
		if x.r.Lifetime == inventory.Persistent {
			return "a tag says that it is persistent"
		}
		return ""
	}},
	{"not-managed", func(x *adopting) string {
		for key, v := range x.r.Tags {
			if inventory.SameTag(key, inventory.TagManaged) && v != "" && !strings.EqualFold(v, "true") {
				return fmt.Sprintf("its tag %s=%s keeps policies off it", key, v)
			}
		}
		return ""
	}},
	{"production", func(x *adopting) string {
		switch {
		case x.owner.InProduction():
			return "its environment is " + x.owner.Environment
		case x.r.Purpose == inventory.Inference:
			return "it serves (" + string(x.r.Purpose) + "), and what serves has no lease"
		}
		return ""
	}},
	{"owner", func(x *adopting) string {
		for _, f := range []struct{ what, tagged, said string }{
			{"team", x.r.Owner.Team, x.o.Owner.Team}, {"project", x.r.Owner.Project, x.o.Owner.Project},
			{"user", x.r.Owner.User, x.o.Owner.User},
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
	{"lease-policy", func(x *adopting) string {
		lease, most := x.doc.LeaseUntil.Sub(x.now), x.a.Config.Sessions.MaxLease
		if most > 0 && lease > most {
			return fmt.Sprintf("a lease of %s is longer than sessions.max_lease, %s", plain.Duration(lease),
				plain.Duration(most))
		}
		return ""
	}},
	{"idle-limit", func(x *adopting) string {
		if idle := x.idle(); idle > inventory.MaxIdle {
			return fmt.Sprintf("an idle time of %s is longer than %s, the longest that policies look for", plain.Duration(idle),
				plain.Duration(inventory.MaxIdle))
		}
		return ""
	}},
}

func (x *adopting) refusals() []view.Refusal {
	out := []view.Refusal{}
	for _, rule := range adoptionRules {
		if why := rule.why(x); why != "" {
			out = append(out, view.Refusal{Rule: rule.name, Why: why})
		}
	}
	return out
}

// carryOut writes the record, then the tags by the ladder, and then that it is done. A process
// that dies in between leaves a record that the next one goes on with, and no machine that
// anything ends: what ends machines of launches does not find it.
func (x *adopting) carryOut(ctx context.Context) error {
	file, err := sessionfile.New(machineOf(x.r, x.owner, x.now), nil, nil,
		sessionfile.Options{Name: x.name, Lease: x.doc.LeaseUntil.Sub(x.now), Idle: x.idle()})
	if err != nil {
		return runtime.Invalid("%w", err)
	}
	if !x.o.Enforce {
		return nil
	}
	s, err := x.record(ctx, file)
	if err != nil {
		return err
	}
	x.doc.SessionID = s.ID
	line, err := x.tag(ctx, s.ID)
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
	if _, err := x.a.store.Sessions().Put(ctx, s, []session.Event{
		{
			At: x.now, Node: session.KeeperNode, Kind: "adopted",
			Text: "by " + x.by + ", until " + s.LeaseUntil.Format(time.RFC3339),
		},
	}, sessionEntry(x.a, s, x.by, "adopted "+x.ref.String())); err != nil {
		return err
	}
	x.doc.State = view.AdoptDone
	return nil
}

// machineOf is a machine of the account as one to write a session file of.
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

// record writes the record, or takes the one of a process that died.
func (x *adopting) record(ctx context.Context, file *sessionfile.File) (session.Session, error) {
	if x.open != nil {
		return *x.open, nil
	}
	a := x.a
	random := make([]byte, 8)
	if _, err := rand.Read(random); err != nil {
		return session.Session{}, err
	}
	before, err := a.store.Sessions().Sessions(ctx, session.Query{Name: x.name})
	if err != nil {
		return session.Session{}, err
	}
	pool := session.Pool{
		Type: x.r.Type, Region: x.ref.Region, Zone: x.r.Zone, Spot: file.Spec.Capacity == "spot", Image: file.Spec.Image,
	}
	s := session.Session{
		ID: hex.EncodeToString(random), Name: x.name, RequestedBy: x.by, Owner: x.owner, Spec: file.Spec.Canonical(),
		Hash: file.Spec.Hash(), Provider: clouds.ProviderAWS, Account: x.ref.Account, Region: x.ref.Region,
		Epoch: 1, State: session.Launching, Why: "its tags are being written", LeaseUntil: x.doc.LeaseUntil,
		IdleTimeout: x.idle(),
		Pool:        pool, UserLaunched: true,
		Place: session.Place{Refs: []inventory.Ref{x.ref}, Profile: x.o.Profile}, RequestedAt: x.now, LaunchedAt: x.now}
	if len(x.o.AssumeRoles) > 0 {
		s.Place.Role = x.o.AssumeRoles[0]
	}
	if hourly, priced := x.doc.HourlyUSD.Get(); priced {
		rate, err := hourly.Rate()
		if err != nil {
			return s, fmt.Errorf("price an hour of %s: %w", x.ref, err)
		}
		s.Pool.Rate, s.Rate = &rate, &rate
	}
	s.Machines = []session.Machine{{ID: x.r.ID, Pool: s.Pool, State: x.r.State, LaunchedAt: x.now}}
	for _, b := range before {
		s.Epoch = max(s.Epoch, b.Epoch+1)
	}
	made, err := a.store.Sessions().Put(ctx, s, []session.Event{
		{At: x.now, Node: session.KeeperNode, Kind: "requested", Text: "by " + x.by + ": " + x.ref.String()},
	}, sessionEntry(a, s, x.by, "asked to adopt "+x.ref.String()))
	if errors.Is(err, session.ErrNameTaken) {
		err = &runtime.Error{
			Class: runtime.Usage, Code: "taken", Err: fmt.Errorf("there is a session %s already", s.Name),
			Hint: "--name gives this one another name",
		}
	}
	return made, err
}

// tag writes the tags by the ladder: with its refusals, its intent and outcome in the audit
// log, and its undo.
func (x *adopting) tag(ctx context.Context, id string) (action.Line, error) {
	a := x.a
	setting, err := clouds.Setting(ctx, a.Request, a.Config, x.o.Source)
	if err != nil {
		return action.Line{}, err
	}
	cloud, ok := setting.Lister.(*clouds.AWS)
	if !ok {
		return action.Line{}, runtime.Invalid("nothing is tagged at %s", x.ref.Cloud)
	}
	setting.Sources = nil // what it does is no matter
	setting.Query.Only = map[inventory.Ref]bool{x.ref: true}
	setting.Tagging = &round.Tagging{
		Tags: a.Config.Tags, Declared: map[inventory.Ref]map[string]string{x.ref: x.tags(id)},
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
	return action.Line{Rule: "nothing-to-do"}, nil // it has them
}
