package intenttest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
)

// Fault is a one-shot fault.
type Fault struct {
	// On is the call of a step by its name, or "look".
	On string
	// Message is the error; Carried makes the call take effect all the same. Without a message the
	// call is accepted but has no effect.
	Message string
	Carried bool
	// Class makes the error a refusal without effect.
	Class string
}

// Refusal is the error with which a [Provider] refuses a call.
type Refusal struct{ Class, Why string }

// Error returns the reason.
func (r *Refusal) Error() string { return r.Why }

// Class returns the class of a refusal, for [intent.Run].
func Class(err error) string {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Class
	}
	return ""
}

// Effect is the change that a call started.
type Effect struct {
	Subject, Key, Name, Params, Receipt string
	// ShowsAt is when it becomes visible, Slow the number of look-ups that then find it in
	// progress.
	ShowsAt time.Time
	Slow    int
	Broken  bool
}

// Call is one call requested from a [Provider].
type Call struct {
	Subject, Name, Key string
	// Carried reports that it had an effect.
	Carried bool
	At      time.Time
}

// Provider simulates effects of calls, which look-ups find by their key.
type Provider struct {
	state State[provider]
	now   func() time.Time
	// Keyed reports that it supports keys: a call with the same key never has a second effect.
	Keyed bool
}

type provider struct {
	Effects []Effect
	Calls   []Call
	Faults  []Fault
	Hidden  time.Duration
	Slow    int
}

// NewProvider returns an empty provider in memory.
func NewProvider(now func() time.Time, keyed bool) *Provider {
	return &Provider{now: now, Keyed: keyed}
}

// OpenProvider returns the provider stored in a directory.
func OpenProvider(dir string, now func() time.Time, keyed bool) *Provider {
	return &Provider{state: State[provider]{Path: filepath.Join(dir, "provider.json")}, now: now, Keyed: keyed}
}

func (p *Provider) change(f func(v *provider)) {
	must(p.state.Do(func(v *provider) error { f(v); return nil }))
}

// Fail injects a fault.
func (p *Provider) Fail(f Fault) { p.change(func(v *provider) { v.Faults = append(v.Faults, f) }) }

// Delay hides the effects of later calls for a time, and then lets a number of look-ups find them
// in progress.
func (p *Provider) Delay(hidden time.Duration, slow int) {
	p.change(func(v *provider) { v.Hidden, v.Slow = hidden, slow })
}

// Break prevents pending effects of a subject from completing.
func (p *Provider) Break(subject string) {
	p.change(func(v *provider) {
		for i := range v.Effects {
			if e := &v.Effects[i]; e.Subject == subject && e.Slow > 0 {
				e.Broken = true
			}
		}
	})
}

// Calls returns every requested call.
func (p *Provider) Calls() (out []Call) {
	p.change(func(v *provider) { out = v.Calls })
	return out
}

// Effects returns all effects.
func (p *Provider) Effects() (out []Effect) {
	p.change(func(v *provider) { out = v.Effects })
	return out
}

// Call makes the call of a step.
func (p *Provider) Call(ctx context.Context, subject string, s intent.Step) (receipt string, err error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	p.change(func(v *provider) {
		call := Call{Subject: subject, Name: s.Name, Key: s.Key, At: p.now()}
		receipt, call.Carried, err = v.call(subject, s, p.Keyed, p.now())
		v.Calls = append(v.Calls, call)
	})
	return receipt, err
}

func (v *provider) call(subject string, s intent.Step, keyed bool, now time.Time) (receipt string, carried bool,
	err error) {
	f := v.fault(s.Name)
	i := v.find(s.Key)
	known := i >= 0 && keyed // it responds as before, even to a call that would otherwise be refused
	switch {
	case known && v.Effects[i].Params != s.Params:
		return "", false, &Refusal{"mismatch", "the key was used for another call"}
	case f == nil:
	case f.Class != "" && known:
		f = nil
	case f.Class != "":
		return "", false, &Refusal{f.Class, f.Message}
	case f.Message == "":
		return "accepted", false, nil
	case !f.Carried:
		return "", false, errors.New(f.Message)
	}
	if known {
		receipt = v.Effects[i].Receipt
	} else {
		receipt, carried = fmt.Sprintf("%s-%d", s.Name, len(v.Effects)+1), true
		v.Effects = append(v.Effects, Effect{
			Subject: subject, Key: s.Key, Name: s.Name, Params: s.Params, Receipt: receipt, ShowsAt: now.Add(v.Hidden),
			Slow: v.Slow,
		})
	}
	if f != nil {
		return "", carried, errors.New(f.Message)
	}
	return receipt, carried, nil
}

// Look looks a step up by its key.
func (p *Provider) Look(ctx context.Context, s intent.Step) (progress intent.Progress, receipt string, err error) {
	if err := ctx.Err(); err != nil {
		return "", "", err
	}
	p.change(func(v *provider) {
		if f := v.fault("look"); f != nil {
			err = errors.New(f.Message)
			return
		}
		i := v.find(s.Key)
		if i < 0 {
			progress = intent.NotDone
			return
		}
		e := &v.Effects[i]
		receipt = e.Receipt
		switch {
		case p.now().Before(e.ShowsAt):
			progress, receipt = intent.NotDone, ""
		case e.Broken:
			progress = intent.Impossible
		case e.Slow > 0:
			e.Slow--
			progress = intent.InProgress
		default:
			progress = intent.Complete
		}
	})
	return progress, receipt, err
}

func (v *provider) find(key string) int {
	return slices.IndexFunc(v.Effects, func(e Effect) bool { return e.Key == key })
}

// fault returns the next fault of a call, or nil.
func (v *provider) fault(on string) *Fault {
	i := slices.IndexFunc(v.Faults, func(f Fault) bool { return f.On == on })
	if i < 0 {
		return nil
	}
	f := v.Faults[i]
	v.Faults = slices.Delete(v.Faults, i, i+1)
	return &f
}
