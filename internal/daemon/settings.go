package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// Kinds of settings.
const (
	SettingsKind = "gate"
	PricesKind   = "prices"
)

// Governed is the configuration under the shared settings of the state: theirs, or what is
// stricter here. A weaker one is refused. Prices are from then on those of the store.
func (rt *Runtime) Governed(ctx context.Context, cfg config.Config, s *store.Store) (config.Config, view.Decider, error) {
	shared, set, err := rt.Shared(ctx, s)
	if err != nil {
		return cfg, view.Decider{}, err
	}
	if set.Version == 0 {
		return cfg, view.Decider{Source: "local", Hash: cfg.SharedHash(), Advisory: true}, nil
	}
	if cfg, err = cfg.Under(shared); err != nil {
		return cfg, view.Decider{}, &Error{Class: Denied, Code: "weaker_settings", Err: err, Hint: "`curfew settings` shows the shared ones; leave out of curfew.yaml what they set"}
	}
	prices, _, err := s.Settings().Newest(ctx, PricesKind)
	if err != nil {
		return cfg, view.Decider{}, err
	}
	rt.prices = priceOverlay{text: prices.Body, set: true}
	return cfg, view.Decider{Source: "shared", Version: set.Version, Hash: cfg.SharedHash(), Prices: prices.Version}, nil
}

// Asker is who asks the gate: by a verified identity where shared settings take no names
// that are self-declared.
func (rt *Runtime) Asker(ctx context.Context, cfg config.Config, by view.Decider) (approval.Person, error) {
	if by.Advisory || cfg.Approvals.Accepts(approval.SelfDeclared) {
		return rt.Declared(cfg)
	}
	who, err := rt.SignedIn(ctx, cfg, "curfew gate")
	if err != nil {
		return who, &Error{Class: Usage, Code: "no_identity", Err: fmt.Errorf("the shared settings take verified identities alone: %w", err), Hint: "`curfew whoami` shows who you are"}
	}
	who.Proof.Signed = ""
	return who, nil
}

// Shared are the shared settings of the state; version 0: there are none.
func (rt *Runtime) Shared(ctx context.Context, s *store.Store) (config.Shared, store.Setting, error) {
	set, ok, err := s.Settings().Newest(ctx, SettingsKind)
	if err != nil || !ok {
		return config.Shared{}, store.Setting{}, err
	}
	shared, err := config.DecodeShared(fmt.Sprintf("shared settings %d", set.Version), []byte(set.Body))
	if err != nil {
		err = fmt.Errorf("read the shared settings: %w", err)
	}
	return shared, set, err
}

// People is the configuration with the roles and identities that count: those of the shared
// settings where there are any, also where the local ones are weaker and decide nothing.
func (rt *Runtime) People(ctx context.Context, cfg config.Config, s *store.Store) (config.Config, view.Decider, error) {
	under, by, err := rt.Governed(ctx, cfg, s)
	weaker := (*Error)(nil)
	if !errors.As(err, &weaker) || weaker.Code != "weaker_settings" {
		return under, by, err
	}
	shared, set, err := rt.Shared(ctx, s)
	cfg.Approvers, cfg.People, cfg.Approvals, cfg.GitHub = shared.Approvers, shared.People, shared.Approvals, shared.GitHub
	return cfg, view.Decider{Source: "shared", Version: set.Version, Hash: cfg.SharedHash()}, err
}

// BodyHash is a short hash of shared settings, by which decisions name them.
func BodyHash(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:8])
}

// Admin is who may set settings, by those that judge.
func (rt *Runtime) Admin(ctx context.Context, cfg config.Config, judge config.Shared, binding string) (approval.Person, error) {
	cfg.Approvers, cfg.People, cfg.Approvals, cfg.GitHub = judge.Approvers, judge.People, judge.Approvals, judge.GitHub
	who, err := rt.Declared(cfg)
	if _, served := rt.Caller.Served(); served && who.Proof.Kind == approval.SelfDeclared { // of the machine's user at the service: by what judges
		who.Roles = approval.Roles(cfg.Holders(), who.Name)
	}
	if !judge.Approvals.Accepts(approval.SelfDeclared) {
		who, err = rt.SignedIn(ctx, cfg, "curfew settings "+binding)
	}
	if err != nil {
		return who, &Error{Class: Denied, Code: "not_admin", Err: fmt.Errorf("who sets the settings is not verified: %w", err), Hint: "`curfew whoami` shows who you are"}
	}
	if !slices.Contains(who.Roles, config.AdminRole) {
		return who, &Error{Class: Denied, Code: "not_admin", Err: fmt.Errorf("%s (%s) has not the role %s", who.Name, who.Proof, config.AdminRole)}
	}
	return who, nil
}

// Settings are the shared settings of the state with all their versions, newest first.
func (rt *Runtime) Settings(ctx context.Context) (view.Settings, error) {
	doc := view.Settings{Schema: view.SettingsSchema, Versions: []view.SettingsVersion{}, Advisory: true}
	_, s, err := rt.State(ctx)
	if err != nil {
		return doc, err
	}
	defer s.Close()
	for _, kind := range []string{SettingsKind, PricesKind} {
		all, err := s.Settings().Versions(ctx, kind)
		if err != nil {
			return doc, err
		}
		if kind == SettingsKind && len(all) > 0 && all[0].Body != "" {
			doc.Body, doc.Advisory = &all[0].Body, false
		}
		for _, v := range all {
			doc.Versions = append(doc.Versions, settingsVersion(v))
		}
	}
	return doc, nil
}

func settingsVersion(v store.Setting) view.SettingsVersion {
	return view.SettingsVersion{Kind: v.Kind, Version: v.Version, At: v.At.UTC().Format("2006-01-02T15:04:05Z"), Who: v.Who, Reason: v.Reason, Hash: BodyHash(v.Body)}
}

// SettingsText is what is set: the text of the shared settings, that of prices, or both; nil
// leaves one as it is.
type SettingsText struct {
	Settings, Prices *string
	// Name and PricesName call them in errors.
	Name, PricesName string
	// Last is the version of the settings that was read before; where another one holds by
	// now, nothing is set. Nil is any.
	Last *int64
}

// SetSettings makes the next version of the shared settings of a file, of the prices of
// another, or of both. An empty name is none.
func (rt *Runtime) SetSettings(ctx context.Context, name, prices, reason string) (view.SettingsSet, error) {
	t, err := rt.SettingsOf(name, prices)
	if err != nil {
		return view.SettingsSet{Schema: view.SettingsSetSchema, Versions: []view.SettingsVersion{}}, err
	}
	return rt.PutSettings(ctx, t, reason)
}

// SettingsOf reads what is set from a file of settings and one of prices. An empty name is none.
func (rt *Runtime) SettingsOf(name, prices string) (SettingsText, error) {
	t := SettingsText{Name: name, PricesName: prices}
	if name != "" {
		src, err := rt.Read(name, nil, document.MaxBytes)
		if err != nil {
			return t, err
		}
		text := string(src)
		t.Settings = &text
	}
	if prices != "" {
		text, err := rt.readOverlay(prices)
		if err != nil {
			return t, err
		}
		t.Prices = &text
	}
	return t, nil
}

// PutSettings makes the next version of the shared settings, of prices, or of both.
func (rt *Runtime) PutSettings(ctx context.Context, t SettingsText, reason string) (view.SettingsSet, error) {
	doc := view.SettingsSet{Schema: view.SettingsSetSchema, Versions: []view.SettingsVersion{}}
	if t.Settings == nil && t.Prices == nil {
		return doc, invalid("set the settings: neither settings nor prices are given")
	}
	bodies := map[string]string{}
	var next config.Shared
	var err error
	if t.Settings != nil {
		if next, err = config.DecodeShared(t.Name, []byte(*t.Settings)); err != nil {
			return doc, err
		}
		bodies[SettingsKind] = *t.Settings
	}
	if t.Prices != nil {
		if err := rt.checkOverlay(t.PricesName, *t.Prices); err != nil {
			return doc, err
		}
		bodies[PricesKind] = *t.Prices
	}
	cfg, s, err := rt.State(ctx)
	if err != nil {
		return doc, err
	}
	defer s.Close()
	judge, held, err := rt.Shared(ctx, s)
	if err != nil {
		return doc, err
	}
	if t.Last != nil && *t.Last != held.Version {
		return doc, settingsChanged(fmt.Errorf("set the settings: version %d holds by now, not %d", held.Version, *t.Last))
	}
	switch {
	case held.Version > 0:
	case t.Settings == nil:
		return doc, invalid("curfew settings set --prices: set the settings first, with who is an admin")
	default:
		judge = next
	}
	if t.Settings != nil && !givesAdmin(next) {
		return doc, invalid("%s: approvers gives no person the role %s, so the settings could not be changed again", t.Name, config.AdminRole)
	}
	who, err := rt.Admin(ctx, cfg, judge, BodyHash(bodies[SettingsKind]+bodies[PricesKind]))
	if err != nil {
		return doc, err
	}
	doc.By, doc.Proof = who.Name, who.Proof.String()
	now, err := rt.InTime(ctx, s)
	if err != nil {
		return doc, err
	}
	var changes []store.SettingChange
	for _, kind := range []string{SettingsKind, PricesKind} {
		body, given := bodies[kind]
		if !given {
			continue
		}
		last, _, err := s.Settings().Newest(ctx, kind)
		if err != nil {
			return doc, err
		}
		if kind == SettingsKind { // what was judged by is what it follows
			last.Version = held.Version
		}
		v := store.Setting{Kind: kind, Version: last.Version + 1, At: now, Who: who.Name, Reason: reason, Body: body}
		changes = append(changes, store.SettingChange{Setting: v, Entry: action.Entry{At: now, Actor: who.Name, What: action.EventSettings, Because: reason,
			Outcome: fmt.Sprintf("%s %d, %s, by %s", kind, v.Version, BodyHash(body), who.Proof)}})
	}
	if err := s.Settings().Put(ctx, changes...); errors.Is(err, store.ErrSettingConflict) {
		return doc, settingsChanged(err)
	} else if err != nil {
		return doc, err
	}
	for _, c := range changes {
		doc.Versions = append(doc.Versions, settingsVersion(c.Setting))
	}
	return doc, nil
}

// settingsChanged is the answer to who sets settings that another one has set meanwhile.
func settingsChanged(err error) error {
	return &Error{Class: Held, Code: "changed", Err: err, Hint: "read the settings again: `curfew settings`"}
}

// readOverlay reads a price overlay.
func (rt *Runtime) readOverlay(name string) (string, error) {
	f, err := os.Open(rt.Path(name))
	if err != nil {
		return "", invalidFile(fmt.Errorf("read prices %s: %w", name, Cause(err)))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, document.MaxBytes*8))
	if err != nil {
		return "", fmt.Errorf("read prices %s: %w", name, err)
	}
	return string(text), nil
}

// checkOverlay refuses a price overlay of which a price does not pass the quarantine.
func (rt *Runtime) checkOverlay(name, text string) error {
	_, refused, err := rt.Quarantined(text, name)
	if err == nil && len(refused) > 0 {
		err = errors.New(refused[0].Reason)
		err = fmt.Errorf("%d of its prices are refused: %s in %s: %w", len(refused), refused[0].Entry.Type, refused[0].Entry.Region, err)
	}
	if err != nil {
		return invalidFile(fmt.Errorf("%s: %w", name, err))
	}
	return nil
}

// SetClock takes the time of this machine for that of a state that is a file.
func (rt *Runtime) SetClock(ctx context.Context, reason string) (view.Clock, error) {
	doc := view.Clock{Schema: view.ClockSchema, Reason: reason}
	cfg, s, err := rt.State(ctx)
	if err != nil {
		return doc, err
	}
	defer s.Close()
	judge, set, err := rt.Shared(ctx, s)
	if err != nil {
		return doc, err
	}
	who, err := rt.Declared(cfg)
	if set.Version > 0 {
		who, err = rt.Admin(ctx, cfg, judge, "clock")
	}
	if err != nil {
		return doc, err
	}
	if doc.Was, err = rt.StateTime(ctx, s); err != nil {
		return doc, err
	}
	doc.By, doc.Now = who.Name, rt.Now().UTC()
	return doc, s.SetClock(ctx, action.Entry{At: doc.Now, Actor: who.Name, What: "clock", Because: reason,
		Outcome: fmt.Sprintf("%s, was %s, by %s", doc.Now.Format(time.RFC3339), doc.Was.Format(time.RFC3339), who.Proof)})
}

// givesAdmin says whether settings give a person the role by which they can be changed again.
func givesAdmin(s config.Shared) bool {
	c := config.Config{Approvers: s.Approvers, People: s.People}
	for _, roles := range c.Holders() {
		if slices.Contains(roles, config.AdminRole) {
			return true
		}
	}
	return false
}
