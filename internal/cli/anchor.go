package cli

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// anchorFlags say what to do with the end of the log.
type anchorFlags struct {
	at, profile string
	verify      bool
}

// parseAnchor reads an anchor that key has signed.
func parseAnchor(name string, src []byte, key ed25519.PublicKey) (action.Anchor, error) {
	anchor, err := action.ParseAnchor(name, src, key)
	if errors.Is(err, action.ErrUntrusted) {
		err = &failure{exit: ExitError, code: "untrusted_anchor", err: err,
			hint: "audit.public_key in curfew.yaml is the key that counts; without it that of this data directory does"}
	}
	return anchor, err
}

// anchored verifies the audit log, or writes its end.
func (a *app) anchored(ctx context.Context, f anchorFlags) error {
	cfg, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	var at daemon.Place
	if f.at != "" {
		if at, err = a.rt.PlaceOf(ctx, cfg, f.at, f.profile); err != nil {
			return err
		}
	}
	if f.verify {
		return a.verifyAudit(ctx, cfg, s, at)
	}
	key, err := a.rt.SigningKey(cfg)
	if err != nil {
		return err
	}
	public := key.Public().(ed25519.PublicKey)
	if expected, err := daemon.PublicKey(cfg); err != nil {
		return err
	} else if expected != nil && !expected.Equal(public) {
		return &failure{exit: ExitUsage, code: "wrong_key", err: fmt.Errorf("audit.public_key is %s, and the key here is %s", action.KeyText(expected), action.KeyText(public)),
			hint: "audit.key names the file of the key that signs"}
	}
	// One that is there is not given up for a log that does not hold it any more.
	var heads []action.Head
	switch src, err := at.Read(ctx); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return daemon.AnchorError(err)
	default:
		last, err := parseAnchor(at.Name, src, public)
		if err != nil {
			return err
		}
		heads = append(heads, last.Head)
	}
	end, err := s.VerifyAudit(ctx, heads...)
	if err != nil {
		return verifyFailure(err)
	}
	if end.Entry == 0 {
		return &failure{exit: ExitError, code: "empty_log", err: errors.New("the audit log is empty: there is nothing to anchor")}
	}
	now, err := a.stateTime(ctx, s)
	if err != nil {
		return err
	}
	d := action.SignAnchor(end, now, key)
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return fmt.Errorf("write the anchor: %w", err)
	}
	if err := at.Write(ctx, append(text, '\n')); err != nil {
		return daemon.AnchorError(err)
	}
	if a.format == "json" {
		return a.printJSON(d)
	}
	plain.Fprintf(a.Stdout, "%s: entry %d of %s, hash %s\nsigned with %s\n", at.Name, d.Entry, d.At.Format(time.RFC3339), d.Hash, d.Key)
	return nil
}

// verifyAudit checks the chain, and that it holds what an anchor says.
func (a *app) verifyAudit(ctx context.Context, cfg config.Config, s *store.Store, at daemon.Place) error {
	var anchor *action.Anchor
	var heads []action.Head
	if at.Name != "" {
		key, err := a.rt.VerifyingKey(cfg)
		if err != nil {
			return err
		}
		src, err := at.Read(ctx)
		if err != nil {
			return daemon.AnchorError(err)
		}
		d, err := parseAnchor(at.Name, src, key)
		if err != nil {
			return err
		}
		anchor, heads = &d, append(heads, d.Head)
	}
	end, err := s.VerifyAudit(ctx, heads...)
	if err != nil {
		return verifyFailure(err)
	}
	if a.format == "json" {
		return a.printJSON(view.Verified{Schema: view.VerifiedSchema, Entries: end.Entry, Hash: end.Hash, Anchor: anchor})
	}
	plain.Fprintf(a.Stdout, "%s, unchanged\n", plain.Count(end.Entry, "entry"))
	if anchor != nil {
		plain.Fprintf(a.Stdout, "entry %d is the one that was anchored on %s with %s\n", anchor.Entry, anchor.At.UTC().Format("2006-01-02 15:04 UTC"), anchor.Key)
	}
	return nil
}

func verifyFailure(err error) error {
	if !errors.Is(err, store.ErrTampered) {
		return err
	}
	return &failure{exit: ExitError, code: "tampered", err: err}
}
