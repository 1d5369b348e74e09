package cli

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/store"
)

const (
	// anchorBytes bounds an anchor, of which a real one has 500.
	anchorBytes = 16 << 10
	// keyFile is the key in the data directory.
	keyFile = "audit.key"
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
func (a *app) anchored(ctx context.Context, f anchorFlags, output string) error {
	cfg, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	var at place
	if f.at != "" {
		if at, err = a.placeOf(ctx, cfg, f); err != nil {
			return err
		}
	}
	if f.verify {
		return a.verifyAudit(ctx, cfg, s, at, output)
	}
	key, err := a.signingKey(cfg)
	if err != nil {
		return err
	}
	public := key.Public().(ed25519.PublicKey)
	if expected, err := publicKey(cfg); err != nil {
		return err
	} else if expected != nil && !expected.Equal(public) {
		return &failure{exit: ExitUsage, code: "wrong_key", err: fmt.Errorf("audit.public_key is %s, and the key here is %s", action.KeyText(expected), action.KeyText(public)),
			hint: "audit.key names the file of the key that signs"}
	}
	// One that is there is not given up for a log that does not hold it any more.
	var heads []action.Head
	switch src, err := at.read(ctx); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return anchorFailure(err)
	default:
		last, err := parseAnchor(at.name, src, public)
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
	if err := at.write(ctx, append(text, '\n')); err != nil {
		return anchorFailure(err)
	}
	if output == "json" {
		return a.printJSON(d)
	}
	plain.Fprintf(a.Stdout, "%s: entry %d of %s, hash %s\nsigned with %s\n", at.name, d.Entry, d.At.Format(time.RFC3339), d.Hash, d.Key)
	return nil
}

// verifyAudit checks the chain, and that it holds what an anchor says.
func (a *app) verifyAudit(ctx context.Context, cfg config.Config, s *store.Store, at place, output string) error {
	var anchor *action.Anchor
	var heads []action.Head
	if at.name != "" {
		key, err := a.verifyingKey(cfg)
		if err != nil {
			return err
		}
		src, err := at.read(ctx)
		if err != nil {
			return anchorFailure(err)
		}
		d, err := parseAnchor(at.name, src, key)
		if err != nil {
			return err
		}
		anchor, heads = &d, append(heads, d.Head)
	}
	end, err := s.VerifyAudit(ctx, heads...)
	if err != nil {
		return verifyFailure(err)
	}
	if output == "json" {
		return a.printJSON(map[string]any{"schema": "curfew.audit-verified/v1", "entries": end.Entry, "hash": end.Hash, "anchor": anchor})
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

// anchorFailure gives an anchor that cannot be read or written its exit code.
func anchorFailure(err error) error {
	var bad *document.Error
	if errors.As(err, &bad) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return &failure{exit: ExitUsage, code: "invalid_file", err: err, hint: "`curfew audit --anchor` writes one"}
	}
	return scanFailure(err)
}

// place is where an anchor lies.
type place struct {
	name  string
	read  func(context.Context) ([]byte, error)
	write func(context.Context, []byte) error
}

func (a *app) placeOf(ctx context.Context, cfg config.Config, f anchorFlags) (place, error) {
	if !isBucket(f.at) {
		path := a.path(f.at)
		return place{f.at, func(context.Context) ([]byte, error) { return readSmall(f.at, path) },
			func(_ context.Context, text []byte) error { return writeWhole(f.at, path, text) }}, nil
	}
	name, key, _ := strings.Cut(strings.TrimPrefix(f.at, "s3://"), "/")
	if name == "" || key == "" || strings.HasSuffix(key, "/") {
		return place{}, usageError("--anchor %s: it is s3://bucket/key", f.at)
	}
	cloud, err := aws.New(ctx, aws.Options{Profile: first(f.profile, cfg.AWS.Profile), Regions: cfg.AWS.Regions})
	if err != nil {
		return place{}, scanFailure(err)
	}
	bucket, err := cloud.Bucket(ctx, name)
	if err != nil {
		return place{}, anchorFailure(err)
	}
	return place{f.at, func(ctx context.Context) ([]byte, error) {
		body, err := bucket.Open(ctx, key)
		if err != nil {
			return nil, err
		}
		defer func() { _ = body.Close() }()
		return document.Read(f.at, body, anchorBytes)
	}, func(ctx context.Context, text []byte) error { return bucket.Put(ctx, key, text) }}, nil
}

// readSmall reads a file of at most a few kilobytes.
func readSmall(name, path string) ([]byte, error) {
	file, err := config.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, unwrapPath(err))
	}
	defer file.Close()
	return document.Read(name, file, anchorBytes)
}

// writeWhole writes a file, or leaves it as it was.
func writeWhole(name, path string, text []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".anchor-")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, unwrapPath(err))
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, unwrapPath(err)), os.Remove(file.Name()))
	}
	return nil
}

// publicKey is the configured key that counts; nil where none is.
func publicKey(cfg config.Config) (ed25519.PublicKey, error) {
	text := strings.TrimSpace(cfg.Audit.PublicKey)
	if text == "" {
		return nil, nil
	}
	key, err := action.ParseKey(text)
	if err != nil {
		return nil, usageError("audit.public_key: %v", err)
	}
	return key, nil
}

// verifyingKey is the key whose signature counts. None is made for it.
func (a *app) verifyingKey(cfg config.Config) (ed25519.PublicKey, error) {
	if key, err := publicKey(cfg); key != nil || err != nil {
		return key, err
	}
	key, err := a.readKey(a.keyPath(cfg))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &failure{exit: ExitUsage, code: "no_key", err: errors.New("there is no key here by which an anchor could be verified"),
			hint: "set audit.public_key to the key that `curfew audit --anchor` printed"}
	}
	if err != nil {
		return nil, keyFailure(err)
	}
	return key.Public().(ed25519.PublicKey), nil
}

func (a *app) keyPath(cfg config.Config) string {
	if cfg.Audit.Key != "" {
		return a.path(cfg.Audit.Key)
	}
	return filepath.Join(cfg.DataDir, keyFile)
}

// signingKey is the key that signs; the one in the data directory is made on first use.
func (a *app) signingKey(cfg config.Config) (ed25519.PrivateKey, error) {
	path := a.keyPath(cfg)
	key, err := a.readKey(path)
	if errors.Is(err, fs.ErrNotExist) && cfg.Audit.Key == "" && cfg.DataDir != "" {
		if err = makeKey(path); err == nil || errors.Is(err, fs.ErrExist) {
			key, err = a.readKey(path)
		}
	}
	if err != nil {
		return nil, keyFailure(err)
	}
	return key, nil
}

func keyFailure(err error) error {
	return &failure{exit: ExitUsage, code: "invalid_key", err: err, hint: "audit.key names a file with an Ed25519 key, PKCS #8 as PEM, that nobody else can read"}
}

// readKey reads a private key that only its owner can read.
func (a *app) readKey(path string) (ed25519.PrivateKey, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the key %s: %w", path, unwrapPath(err))
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("read the key %s: others can read it", path)
	}
	src, err := readSmall(path, path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(src)
	if block == nil {
		return nil, fmt.Errorf("read the key %s: it is not PEM", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, fmt.Errorf("read the key %s: it is no Ed25519 key", path)
	}
	return key, nil
}

// makeKey makes a key where there is none: whole or not at all, by whoever is first.
func makeKey(path string) error {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return fmt.Errorf("make the key %s: %w", path, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("make the key %s: %w", path, err)
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".key-") // for its owner alone
	if err != nil {
		return fmt.Errorf("make the key %s: %w", path, unwrapPath(err))
	}
	defer func() { _ = os.Remove(file.Name()) }()
	err = pem.Encode(file, &pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Link(file.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("make the key %s: %w", path, err)
	}
	return nil
}
