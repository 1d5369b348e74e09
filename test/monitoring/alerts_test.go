package monitoring

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/test/postgres"
	"github.com/curfew-dev/curfew/test/wire"
)

func TestMain(m *testing.M) { os.Exit(postgres.Run(m)) }

// fault is a failure in a running service, with its repair.
type fault struct {
	name         string
	alerts       []alert
	inject, mend func(s *stand) error
}

// alert is an alert that a fault causes: the rule, and its labels in addition to those of the rule.
type alert struct {
	rule   string
	labels map[string]string
}

// first and second are placeholders for the addresses of the services.
const first, second = "{first}", "{second}"

// instance returns the labels of an alert about one process.
func instance(of string) map[string]string { return map[string]string{"job": "curfew", "instance": of} }

// of returns the labels of an alert about an account.
func of(account string) map[string]string { return map[string]string{"source": source(account)} }

// lanes groups faults: those of a lane are injected one after another, and lanes run concurrently.
var lanes = map[string][]fault{
	"measurements": {{
		name: "GPUs of most machines are not measured", alerts: []alert{{"CurfewManyUnknown", nil}},
		inject: func(s *stand) error { return s.cloud.launch(s.t.Context(), unmeasured, 25, machine{load: 80}) },
		mend:   func(s *stand) error { s.cloud.measureGPUs(unmeasured); return nil },
	}},
	"actions": {{
		name: "StopInstances is denied", alerts: []alert{{"CurfewActionsFail", map[string]string{"verb": "stop"}}},
		inject: func(s *stand) error {
			denied := wire.Fault{Account: acting, Operation: "StopInstances", Kind: wire.AccessDenied}
			return errors.Join(s.spoil(denied), s.idle(1))
		},
		mend: func(s *stand) error { return s.repair(acting) },
	}, {
		name: "Slack refuses every message", alerts: []alert{{"CurfewNotificationsRefused", nil}},
		inject: func(s *stand) error { s.refusing.Store(true); return s.idle(1) },
		mend:   func(s *stand) error { s.refusing.Store(false); return nil },
	}, {
		name: "most machines are due at once", alerts: []alert{{"CurfewFuseBlown", nil}},
		inject: func(s *stand) error { return s.idle(8) },
		mend: func(s *stand) error {
			_, err := s.first.command("confirm", "idle", "--reason", "the test")
			return err
		},
	}, {
		name: "a freeze is left behind", alerts: []alert{{"CurfewFrozen", nil}},
		inject: func(s *stand) error {
			_, err := s.first.command("freeze", "--reason", "the test")
			return err
		},
		mend: func(s *stand) error {
			_, err := s.first.command("unfreeze", "--reason", "the test")
			return err
		},
	}},
	"calls": {{
		name: "a role is denied", alerts: []alert{{"CurfewRoundsFail", of(reading)}},
		inject: func(s *stand) error { return s.spoil(wire.Fault{Account: reading, Kind: wire.AccessDenied}) },
		mend:   func(s *stand) error { return s.repair(reading) },
	}, {
		name:   "calls are not answered",
		alerts: []alert{{"CurfewNoRound", join(instance(first), of(reading))}, {"CurfewSourceLate", of(reading)}},
		inject: func(s *stand) error { return s.spoil(wire.Fault{Account: reading, Kind: wire.Never}) },
		mend:   func(s *stand) error { return s.repair(reading) },
	}, {
		name:   "metrics are denied",
		alerts: []alert{{"CurfewBlindSpots", join(instance(first), of(reading))}},
		inject: func(s *stand) error {
			return s.spoil(wire.Fault{Account: reading, Service: "cloudwatch", Kind: wire.AccessDenied})
		},
		mend: func(s *stand) error { return s.repair(reading + "cloudwatch") },
	}},
	"configuration": {{
		name: "a key is unknown", alerts: []alert{{"CurfewConfigurationRefused", instance(first)}},
		inject: func(s *stand) error { return s.first.configure("bogus: 1\n") },
		mend:   func(s *stand) error { return s.first.configure("") },
	}, {
		name: "the organization is denied", alerts: []alert{{"CurfewOrganizationNotListed", nil}},
		inject: func(s *stand) error { return s.spoil(wire.Fault{Service: "organizations", Kind: wire.AccessDenied}) },
		mend:   func(s *stand) error { return s.repair("organizations") },
	}},
	"certificate": {{
		name: "the certificate expires", alerts: []alert{{"CurfewCertificateExpires", instance(first)}},
		inject: func(s *stand) error { return s.writeCertificate(14 * 24 * time.Hour / Factor) },
		mend:   func(s *stand) error { return s.writeCertificate(90 * 24 * time.Hour) },
	}, {
		name: "a token expires", alerts: []alert{{"CurfewTokenExpires", nil}},
		inject: (*stand).keepToken,
		mend: func(s *stand) error {
			_, err := s.first.command("token", "revoke", agedToken)
			return err
		},
	}},
	"second service": {{
		name: "a process is killed", alerts: []alert{{"CurfewDown", instance(second)}},
		inject: func(s *stand) error { s.second.kill(); return nil },
		mend:   func(s *stand) error { return s.second.start() },
	}, {
		name: "a process is suspended", alerts: []alert{{"CurfewDown", instance(second)}},
		inject: func(s *stand) error { return s.second.process.Process.Signal(syscall.SIGSTOP) },
		mend:   func(s *stand) error { return s.second.process.Process.Signal(syscall.SIGCONT) },
	}, {
		name: "a backup is put back", alerts: []alert{{"CurfewStateNotTrusted", nil}},
		inject: func(s *stand) error {
			// The witness records this act, but the backup does not contain it.
			_, err := s.second.command("keep", s.cloud.first(other), "--for", "1h", "--reason", "the test")
			s.second.kill()
			return errors.Join(err, s.backUp(true), s.second.start())
		},
		mend: func(s *stand) error {
			_, err := s.second.command("state", "accept", "--reason", "the test")
			return err
		},
	}, {
		name:   "the database crashes",
		alerts: []alert{{"CurfewNotReady", instance(second)}, {"CurfewSourceNotHeld", of(other)}},
		inject: func(s *stand) error { return s.database.Stop() },
		mend:   func(s *stand) error { return s.database.Start() },
	}},
}

// outage is injected after all others.
var outage = fault{
	name: "no process is left", alerts: []alert{{"CurfewAbsent", nil}},
	inject: func(s *stand) error { s.first.kill(); s.second.kill(); return nil },
	mend:   func(s *stand) error { return s.first.start() },
}

func join(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// idle launches idle machines, which their policy ends.
func (s *stand) idle(count int32) error {
	return s.cloud.launch(s.t.Context(), acting, count, machine{reports: true})
}

// keepToken stores an old token that expires soon.
func (s *stand) keepToken() error {
	state, err := store.Open(s.t.Context(), store.Options{Dir: filepath.Join(s.first.dir, "state")})
	if err != nil {
		return err
	}
	defer state.Close()
	now := time.Now().UTC()
	token := store.Token{
		ID: agedToken, Hash: strings.Repeat(agedToken, 8), Name: "probe", Roles: []string{"viewer"}, CreatedBy: "ana",
		CreatedAt: now.Add(-83 * 24 * time.Hour), ExpiresAt: now.Add(7 * 24 * time.Hour / Factor),
	}
	entry := action.Entry{At: now, Actor: "ana", What: action.EventToken, Because: "token " + token.ID}
	return state.Callers().Create(s.t.Context(), token, entry)
}

// agedToken is the id of the token that expires soon.
const agedToken = "5e7ac0de"

// rule is an alert rule of the shipped file.
type rule struct {
	Alert       string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

// shippedRules returns the alert rules by name.
func shippedRules(t *testing.T) map[string]rule {
	t.Helper()
	var doc struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join(shipped, "curfew.rules.yml"))), &doc); err != nil {
		t.Fatal(err)
	}
	out := map[string]rule{}
	for _, g := range doc.Groups {
		for _, r := range g.Rules {
			out[r.Alert] = r
		}
	}
	return out
}

// TestEachRuleHasAFault checks that every rule in the file has a fault that triggers it.
func TestEachRuleHasAFault(t *testing.T) {
	var caused []string
	for _, faults := range lanes {
		for _, f := range faults {
			for _, a := range f.alerts {
				caused = append(caused, a.rule)
			}
		}
	}
	for _, a := range outage.alerts {
		caused = append(caused, a.rule)
	}
	slices.Sort(caused)
	caused = slices.Compact(caused)
	if have := slices.Sorted(maps.Keys(shippedRules(t))); !slices.Equal(caused, have) {
		t.Errorf("faults cause %q, and the rules are %q", caused, have)
	}
}

// TestEachRuleFires checks that a real fault triggers each rule, and that its repair resolves it,
// by the messages that Alertmanager posts, with an hour shortened to a minute.
func TestEachRuleFires(t *testing.T) {
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("make test-slow runs it")
	}
	s := newStand(t)
	s.rules = shippedRules(t)
	if err := s.begin(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, lane := range slices.Sorted(maps.Keys(lanes)) {
		wg.Go(func() {
			for _, f := range lanes[lane] {
				if err := s.try(f); err != nil {
					t.Errorf("%s: %v", f.name, err)
				}
			}
		})
	}
	wg.Wait()
	if err := s.try(outage); err != nil {
		t.Errorf("%s: %v", outage.name, err)
	}
}

// begin starts the services, the second with a state that was backed up, and waits until all
// accounts are read.
func (s *stand) begin() error {
	for _, command := range []string{"freeze", "unfreeze"} {
		if _, err := s.second.command(command, "--reason", "the test"); err != nil {
			return err
		}
	}
	if err := errors.Join(s.backUp(false), s.first.start(), s.second.start()); err != nil {
		return err
	}
	return s.until("each account is read", patience, func() (bool, error) {
		return s.holds(`count(curfew_rounds_total{result="done"} > 1) == 4`)
	})
}

// try injects a fault, waits for its alerts, repairs it, and waits until they are resolved.
func (s *stand) try(f fault) error {
	for _, a := range f.alerts {
		if err := s.inState(a, patience, "inactive", "resolved", time.Time{}); err != nil {
			return fmt.Errorf("before: %w", err)
		}
	}
	injected := time.Now()
	if err := f.inject(s); err != nil {
		return fmt.Errorf("inject: %w", err)
	}
	for _, a := range f.alerts {
		if err := s.inState(a, 2*s.holdsFor(a)+patience, "firing", "firing", injected); err != nil {
			return errors.Join(err, f.mend(s)) // so that later faults are not hidden
		}
		s.t.Logf("%s: %s fired after %s", f.name, a.rule, time.Since(injected).Round(time.Second))
	}
	mended := time.Now()
	if err := f.mend(s); err != nil {
		return fmt.Errorf("mend: %w", err)
	}
	for _, a := range f.alerts {
		if err := s.inState(a, patience, "inactive", "resolved", mended); err != nil {
			return fmt.Errorf("mended: %w", err)
		}
		s.t.Logf("%s: %s was resolved after %s", f.name, a.rule, time.Since(mended).Round(time.Second))
	}
	return nil
}

// holdsFor returns how long the condition of an alert must hold, scaled.
func (s *stand) holdsFor(a alert) time.Duration {
	d, err := time.ParseDuration(s.rules[a.rule].For)
	if err != nil {
		return 0 // it fires immediately
	}
	return d / Factor
}

// labels returns all labels of an alert.
func (s *stand) labels(a alert) map[string]string {
	out := join(s.rules[a.rule].Labels, a.labels)
	out["alertname"] = a.rule
	switch out["instance"] {
	case first:
		out["instance"] = s.first.address
	case second:
		out["instance"] = s.second.address
	}
	return out
}

// inState waits until Prometheus reports a state of an alert, and the newest message about it after
// a time has a status and the texts of the rule. With the zero time, no message is required.
func (s *stand) inState(a alert, most time.Duration, state, status string, after time.Time) error {
	labels := s.labels(a)
	var newest message
	err := s.until(fmt.Sprintf("%s is %s: %v", a.rule, status, labels), most, func() (bool, error) {
		is, err := s.state(labels)
		if err != nil || is != state {
			return false, err
		}
		var told bool
		newest, told = s.received.newest(labels)
		return !told && after.IsZero() || told && newest.Status == status && newest.at.After(after), nil
	})
	if err != nil {
		return fmt.Errorf("%w; received:%s", err, s.received.about(a.rule))
	}
	if after.IsZero() {
		return nil
	}
	want := map[string]string{}
	for name, text := range s.rules[a.rule].Annotations {
		for label, value := range labels {
			text = strings.ReplaceAll(text, "{{ $labels."+label+" }}", value)
		}
		want[name] = text
	}
	if !maps.Equal(newest.Annotations, want) {
		return fmt.Errorf("%s has the annotations %q, want %q", a.rule, newest.Annotations, want)
	}
	return nil
}
