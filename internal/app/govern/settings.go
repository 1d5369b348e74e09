package govern

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
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// BodyHash returns a short hash of shared settings, by which decisions refer to them.
func BodyHash(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:8])
}

// Settings returns the shared settings of the state with all their versions, newest first.
func Settings(ctx context.Context, req *runtime.Request) (view.Settings, error) {
	doc := view.Settings{Schema: view.SettingsSchema, Versions: []view.SettingsVersion{}, Advisory: true}
	_, s, err := req.State(ctx)
	if err != nil {
		return doc, err
	}
	defer s.Close()
	for _, kind := range []string{runtime.SettingsKind, runtime.PricesKind} {
		all, err := s.Settings().Versions(ctx, kind)
		if err != nil {
			return doc, err
		}
		if kind == runtime.SettingsKind && len(all) > 0 && all[0].Body != "" {
			doc.Body, doc.Advisory = &all[0].Body, false
		}
		for _, v := range all {
			doc.Versions = append(doc.Versions, settingsVersion(v))
		}
	}
	return doc, nil
}

func settingsVersion(v store.Setting) view.SettingsVersion {
	return view.SettingsVersion{
		Kind: v.Kind, Version: v.Version, At: v.At.UTC().Format("2006-01-02T15:04:05Z"), Who: v.Who, Reason: v.Reason,
		Hash: BodyHash(v.Body),
	}
}

// SettingsText holds shared settings, prices, or both; nil leaves one unchanged.
type SettingsText struct {
	Settings, Prices *string
	// Name and PricesName are used in errors.
	Name, PricesName string
	// Last is the version of the settings that the caller has read; if another one is in force by
	// now, nothing is set. nil skips this check.
	Last *int64
}

// SettingsOf reads a file of settings and one of prices; an empty name skips one.
func SettingsOf(req *runtime.Request, name, prices string) (SettingsText, error) {
	t := SettingsText{Name: name, PricesName: prices}
	if name != "" {
		src, err := req.Read(name, nil, document.MaxBytes)
		if err != nil {
			return t, err
		}
		text := string(src)
		t.Settings = &text
	}
	if prices != "" {
		text, err := readOverlay(req, prices)
		if err != nil {
			return t, err
		}
		t.Prices = &text
	}
	return t, nil
}

// PutSettings stores a new version of the shared settings, of prices, or of both.
func PutSettings(ctx context.Context, req *runtime.Request, t SettingsText, reason string) (view.SettingsSet, error) {
	doc := view.SettingsSet{Schema: view.SettingsSetSchema, Versions: []view.SettingsVersion{}}
	if t.Settings == nil && t.Prices == nil {
		return doc, runtime.Invalid("set the settings: neither settings nor prices are given")
	}
	bodies := map[string]string{}
	var next config.Shared
	var err error
	if t.Settings != nil {
		if next, err = config.DecodeShared(t.Name, []byte(*t.Settings)); err != nil {
			return doc, err
		}
		bodies[runtime.SettingsKind] = *t.Settings
	}
	if t.Prices != nil {
		if err := checkOverlay(req, t.PricesName, *t.Prices); err != nil {
			return doc, err
		}
		bodies[runtime.PricesKind] = *t.Prices
	}
	cfg, s, err := req.State(ctx)
	if err != nil {
		return doc, err
	}
	defer s.Close()
	judge, held, err := req.Shared(ctx, s)
	if err != nil {
		return doc, err
	}
	if t.Last != nil && *t.Last != held.Version {
		return doc, settingsChanged(
			fmt.Errorf("set the settings: version %d holds by now, not %d", held.Version, *t.Last))
	}
	switch {
	case held.Version > 0:
	case t.Settings == nil:
		return doc, runtime.Invalid("curfew settings set --prices: set the settings first, with who is an admin")
	default:
		judge = next
	}
	if t.Settings != nil && !givesAdmin(next) {
		return doc, runtime.Invalid(
			"%s: approvers gives no person the role %s, so the settings could not be changed again",
			t.Name, config.AdminRole)
	}
	who, err := identity.Admin(ctx, req, cfg, judge, BodyHash(bodies[runtime.SettingsKind]+bodies[runtime.PricesKind]))
	if err != nil {
		return doc, err
	}
	doc.By, doc.Proof = who.Name, who.Proof.String()
	now, err := req.InTime(ctx, s)
	if err != nil {
		return doc, err
	}
	var changes []store.SettingChange
	for _, kind := range []string{runtime.SettingsKind, runtime.PricesKind} {
		body, given := bodies[kind]
		if !given {
			continue
		}
		last, _, err := s.Settings().Newest(ctx, kind)
		if err != nil {
			return doc, err
		}
		if kind == runtime.SettingsKind { // settings must follow the version that was validated
			last.Version = held.Version
		}
		v := store.Setting{Kind: kind, Version: last.Version + 1, At: now, Who: who.Name, Reason: reason, Body: body}
		changes = append(changes, store.SettingChange{
			Setting: v, Entry: action.Entry{At: now, Actor: who.Name, What: action.EventSettings, Because: reason,
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

// settingsChanged is the error if someone else has set settings in the meantime.
func settingsChanged(err error) error {
	return &runtime.Error{
		Class: runtime.Held, Code: "changed", Err: err, Hint: "read the settings again: `curfew settings`",
	}
}

// readOverlay reads a price overlay.
func readOverlay(req *runtime.Request, name string) (string, error) {
	f, err := os.Open(req.Path(name))
	if err != nil {
		return "", runtime.InvalidFile(fmt.Errorf("read prices %s: %w", name, runtime.Cause(err)))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, document.MaxBytes*8))
	if err != nil {
		return "", fmt.Errorf("read prices %s: %w", name, err)
	}
	return string(text), nil
}

// checkOverlay refuses a price overlay with a price that does not pass the quarantine.
func checkOverlay(req *runtime.Request, name, text string) error {
	_, refused, err := req.Quarantined(text, name)
	if err == nil && len(refused) > 0 {
		err = errors.New(refused[0].Reason)
		err = fmt.Errorf("%d of its prices are refused: %s in %s: %w", len(refused), refused[0].Entry.Type,
			refused[0].Entry.Region, err)
	}
	if err != nil {
		return runtime.InvalidFile(fmt.Errorf("%s: %w", name, err))
	}
	return nil
}

// SetClock sets the clock of a state in a file to the time of this machine.
func SetClock(ctx context.Context, req *runtime.Request, reason string) (view.Clock, error) {
	doc := view.Clock{Schema: view.ClockSchema, Reason: reason}
	cfg, s, err := req.State(ctx)
	if err != nil {
		return doc, err
	}
	defer s.Close()
	judge, set, err := req.Shared(ctx, s)
	if err != nil {
		return doc, err
	}
	who, err := req.Declared(cfg)
	if set.Version > 0 {
		who, err = identity.Admin(ctx, req, cfg, judge, "clock")
	}
	if err != nil {
		return doc, err
	}
	if doc.Was, err = req.StateTime(ctx, s); err != nil {
		return doc, err
	}
	doc.By, doc.Now = who.Name, req.Now().UTC()
	return doc, s.SetClock(ctx, action.Entry{At: doc.Now, Actor: who.Name, What: "clock", Because: reason,
		Outcome: fmt.Sprintf("%s, was %s, by %s", doc.Now.Format(time.RFC3339),
			doc.Was.Format(time.RFC3339), who.Proof)})
}

// givesAdmin reports whether settings give a person the role that can change them again.
func givesAdmin(s config.Shared) bool {
	c := config.Config{Approvers: s.Approvers, People: s.People}
	for _, roles := range c.Holders() {
		if slices.Contains(roles, config.AdminRole) {
			return true
		}
	}
	return false
}
