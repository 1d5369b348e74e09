package govern

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// parseAnchor parses an anchor and verifies its signature with a key.
func parseAnchor(name string, src []byte, key ed25519.PublicKey) (action.Anchor, error) {
	anchor, err := action.ParseAnchor(name, src, key)
	if errors.Is(err, action.ErrUntrusted) {
		err = &runtime.Error{Code: "untrusted_anchor", Err: err,
			Hint: "audit.public_key in curfew.yaml is the key that counts; without it that of this data directory does"}
	}
	return anchor, err
}

// Anchor writes the signed end of the audit log to a file or an object, and returns it.
func Anchor(ctx context.Context, req *runtime.Request, name, profile string) (action.Anchor, error) {
	var none action.Anchor
	cfg, s, err := req.State(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	at, err := identity.PlaceOf(ctx, req, cfg, name, profile)
	if err != nil {
		return none, err
	}
	key, err := identity.SigningKey(req, cfg)
	if err != nil {
		return none, err
	}
	public := key.Public().(ed25519.PublicKey)
	if expected, err := identity.PublicKey(cfg); err != nil {
		return none, err
	} else if expected != nil && !expected.Equal(public) {
		return none, &runtime.Error{
			Class: runtime.Usage, Code: "wrong_key", Err: fmt.Errorf("audit.public_key is %s, and the key here is %s",
				action.KeyText(expected), action.KeyText(public)),
			Hint: "audit.key names the file of the key that signs"}
	}
	// An existing anchor is not replaced if the log no longer contains it.
	var heads []action.Head
	switch src, err := at.Read(ctx); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return none, identity.AnchorError(err)
	default:
		last, err := parseAnchor(at.Name, src, public)
		if err != nil {
			return none, err
		}
		heads = append(heads, last.Head)
	}
	end, err := s.VerifyAudit(ctx, heads...)
	if err != nil {
		return none, verifyFailure(err)
	}
	if end.Entry == 0 {
		return none, &runtime.Error{
			Code: "empty_log", Err: errors.New("the audit log is empty: there is nothing to anchor"),
		}
	}
	now, err := req.StateTime(ctx, s)
	if err != nil {
		return none, err
	}
	d := action.SignAnchor(end, now, key)
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return none, fmt.Errorf("write the anchor: %w", err)
	}
	if err := at.Write(ctx, append(text, '\n')); err != nil {
		return none, identity.AnchorError(err)
	}
	return d, nil
}

// VerifyAudit checks the chain of the audit log, and that the log contains the named anchor, unless
// the name is empty.
func VerifyAudit(ctx context.Context, req *runtime.Request, name, profile string) (view.Verified, error) {
	var none view.Verified
	cfg, s, err := req.State(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	var at identity.Place
	if name != "" {
		if at, err = identity.PlaceOf(ctx, req, cfg, name, profile); err != nil {
			return none, err
		}
	}
	var anchor *action.Anchor
	var heads []action.Head
	if at.Name != "" {
		key, err := identity.VerifyingKey(req, cfg)
		if err != nil {
			return none, err
		}
		src, err := at.Read(ctx)
		if err != nil {
			return none, identity.AnchorError(err)
		}
		d, err := parseAnchor(at.Name, src, key)
		if err != nil {
			return none, err
		}
		anchor, heads = &d, append(heads, d.Head)
	}
	end, err := s.VerifyAudit(ctx, heads...)
	if err != nil {
		return none, verifyFailure(err)
	}
	return view.Verified{Schema: view.VerifiedSchema, Entries: end.Entry, Hash: end.Hash, Anchor: anchor}, nil
}

func verifyFailure(err error) error {
	if !errors.Is(err, store.ErrTampered) {
		return err
	}
	return &runtime.Error{Code: "tampered", Err: err}
}

// Entries returns the entries of the audit log, oldest first.
func Entries(ctx context.Context, req *runtime.Request, q action.Query, each func(view.AuditEntry) error) error {
	_, s, err := req.State(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Actions().Entries(ctx, q, func(e action.Entry) error {
		return each(view.NewAuditEntry(e))
	}); err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	return nil
}
