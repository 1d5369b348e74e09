package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/session"
)

// Find implements session.Launcher. A machine is listed until its last process is gone.
func (p *Provider) Find(_ context.Context, installation, sessionID string) ([]session.FoundMachine, error) {
	all, err := p.machines()
	if err != nil {
		return nil, err
	}
	var out []session.FoundMachine
	for _, m := range all {
		if m.Installation != installation || sessionID != "" && m.Session != sessionID {
			continue
		}
		s, err := m.readState()
		if err != nil {
			return nil, err
		}
		if s.State != "" {
			out = append(out, session.FoundMachine{
				Machine: m.sessionMachine(s.State), Session: m.Session, Token: m.Token, LeaseUntil: m.LeaseUntil,
				Owner:         p.options.Tags.Owner(m.Tags),
				LaunchPending: s.State == inventory.StatePending && !s.Watcher.Alive()})
		}
	}
	return out, nil
}

// End implements session.Launcher. It tells the agent to end, waits, and kills it with the whole
// cage.
func (p *Provider) End(ctx context.Context, sessionID string, ids []string) error {
	unlock, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := p.machines()
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		i := slices.IndexFunc(all, func(m *machine) bool { return m.ID == id })
		switch {
		case i < 0: // already ended
		case all[i].Session != sessionID:
			errs = append(errs, fmt.Errorf("end %s: it is a machine of another session", id))
		default:
			if err := p.end(ctx, all[i]); err != nil {
				errs = append(errs, fmt.Errorf("end %s: %w", id, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Leftovers implements session.Launcher: folders and control groups.
func (p *Provider) Leftovers(ctx context.Context, installation, sessionID string) ([]string, error) {
	unlock, err := p.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	all, err := p.machines()
	if err != nil {
		return nil, err
	}
	mine := slices.DeleteFunc(all, func(m *machine) bool {
		return m.Installation != installation || m.Session != sessionID
	})
	var left []string
	for _, m := range mine {
		if s, err := m.readState(); err != nil {
			return nil, err
		} else if s.State != "" {
			left = append(left, "machine "+m.ID)
		}
	}
	if len(left) > 0 {
		return left, nil
	}
	for _, m := range mine {
		if err := p.rememberToken(m, mine); err != nil && ctx.Err() == nil {
			// a full disk must not prevent the removal of the folder
			p.options.Log.DebugContext(ctx, "the token is not remembered", slog.String("why", err.Error()))
		}
	}
	for _, m := range mine {
		if err := p.clearMachine(ctx, m); err != nil {
			left = append(left, fmt.Sprintf("folder of machine %s (%v)", m.ID, err))
			continue
		}
		p.options.Log.DebugContext(ctx, "a machine is cleared away", slog.String("machine", m.ID))
	}
	if len(left) == 0 && sessionID != "" && sessionID == filepath.Base(sessionID) {
		if err := os.Remove(p.orderPath(sessionID)); err != nil && !errors.Is(err, os.ErrNotExist) {
			left = append(left, err.Error())
		}
		for _, m := range mine {
			if m.User == nil {
				continue
			}
			// its user may still write to it
			if err := removeTree(ctx, filepath.Join(m.UserDir, sessionID), m.User); err != nil {
				p.options.Log.WarnContext(ctx, "the folder of a session is left",
					slog.String("folder", filepath.Join(m.UserDir, sessionID)),
					slog.String("why", err.Error()))
			}
		}
	}
	return left, nil
}

// rememberToken records what a token launched.
func (p *Provider) rememberToken(m *machine, all []*machine) error {
	old := tokenRecord{Asked: m.RequestHash}
	for _, o := range all {
		if o.Token == m.Token {
			old.Machines = append(old.Machines, o.sessionMachine(inventory.StateDeleting))
		}
	}
	return writeJSON(filepath.Join(p.endedDir(), machineID(m.Installation, m.Token, 0)), old)
}

// clearMachine removes the leftovers of an ended machine.
func (p *Provider) clearMachine(ctx context.Context, m *machine) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := OpenCage(m.dir)
	if err == nil {
		err = errors.Join(c.KillAll(ctx), c.Remove(ctx))
	} else if errors.Is(err, ErrNoCage) {
		err = nil
	}
	if err != nil {
		return err
	}
	if m.hasUnsavedFiles(ctx) {
		return p.preserveFiles(ctx, m)
	}
	return p.removeMachine(ctx, m)
}

// HomeDir is the folder of a machine's files that its session writes.
const HomeDir = "home"

// hasUnsavedFiles reports whether a machine has files of its session and ended without confirming
// that they are saved or discarded, as in a shutdown.
func (m *machine) hasUnsavedFiles(ctx context.Context) bool {
	if _, err := os.Lstat(m.path(rescueFile)); err == nil {
		return m.userTree().hasEntries(HomeDir)
	}
	if asked, err := readJSON(m.path(endingFile), &ending{}); err != nil || asked {
		return false
	}
	if s, known := m.lastStatus(ctx); known && s.Phase == session.HostEnding {
		return false
	}
	return m.userTree().hasEntries(HomeDir)
}

// preservedTree returns the tree and name for preserved files of a machine.
func (p *Provider) preservedTree(m *machine) (tree, string) {
	if m.User != nil {
		return tree{base: m.UserDir}, "unsaved-" + m.ID
	}
	return tree{base: filepath.Join(p.options.Dir, "unsaved")}, m.ID
}

// preserveFiles moves possibly unsaved files aside. Only a person removes them.
func (p *Provider) preserveFiles(ctx context.Context, m *machine) error {
	to, name := p.preservedTree(m)
	if m.User == nil {
		if err := os.MkdirAll(to.base, 0o700); err != nil {
			return err
		}
	}
	if err := m.userTree().move(HomeDir, to, name); err != nil {
		return fmt.Errorf("put the files of session %s aside: %w", m.Session, err)
	}
	p.options.Log.WarnContext(ctx, "a session's machine ended without a last snapshot; its files are kept",
		slog.String("session", m.Session), slog.String("folder", to.path(name)))
	return p.removeMachine(ctx, m)
}

// PreserveFiles implements session.FilePreserver.
func (p *Provider) PreserveFiles(ctx context.Context, sessionID string, ids []string) (string, error) {
	unlock, err := p.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	all, err := p.machines()
	if err != nil {
		return "", err
	}
	var where []string
	for _, m := range all {
		if m.Session != sessionID || !slices.Contains(ids, m.ID) {
			continue
		}
		if err := writeJSON(m.path(rescueFile), ending{p.options.Now().UTC()}); err != nil {
			return "", err
		}
		to, name := p.preservedTree(m)
		where = append(where, to.path(name))
	}
	return strings.Join(where, ", "), nil
}

// chargedRate returns the hourly cost of all priced machines of sessions.
func (p *Provider) chargedRate() (money.Amount, error) {
	all, err := p.machines()
	if err != nil {
		return 0, err
	}
	var total money.Amount
	for _, m := range all {
		s, err := m.readState()
		if err != nil {
			return 0, err
		}
		hour, unpriced := p.rates.hour(m.Size.resource())
		if s.State == "" || unpriced != nil {
			continue
		}
		if total, err = total.Add(hour); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// rate returns the hourly charge for a machine.
func (p *Provider) rate(m *machine) inventory.Meter {
	return p.rates.meter(CloudName, m.Size.resource())
}

// newTariff parses rates, with GPUs by their names in the book. Its errors are *FieldError.
func newTariff(book *price.Book, r Rates) (tariff, error) {
	rates, err := r.parse()
	if err != nil {
		return tariff{}, fmt.Errorf("rates%w", err)
	}
	known := make(map[string]money.Amount, len(rates.gpu))
	for name, v := range rates.gpu {
		own := canonicalGPU(book, name)
		if other, twice := known[own]; twice && other != v {
			return tariff{}, fmt.Errorf("rates%w", &FieldError{
				Field: ".gpu_hour",
				Message: fmt.Sprintf("%s has two prices, %s and %s, under two of its names", own,
					min(v, other), max(v, other)),
			})
		}
		known[own] = v
	}
	rates.gpu = known
	return rates, nil
}
