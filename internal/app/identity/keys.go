package identity

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/durable"
)

// AnchorError sets the exit code for an anchor that cannot be read or written.
func AnchorError(err error) error {
	var bad *document.Error
	if errors.As(err, &bad) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return &runtime.Error{
			Class: runtime.Usage, Code: "invalid_file", Err: err, Hint: "`curfew audit --anchor` writes one",
		}
	}
	return clouds.CloudError(err)
}

const (
	// anchorBytes limits the size of an anchor; a real one has 500.
	anchorBytes = 16 << 10
	// keyName is the file name of the key in the data directory.
	keyName = "audit.key"
)

// Place is the location of an anchor: a file or an object.
type Place struct {
	Name  string
	Read  func(context.Context) ([]byte, error)
	Write func(context.Context, []byte) error
}

// PlaceOf returns the location of an anchor: an object s3://bucket/key, or a file.
func PlaceOf(ctx context.Context, req *runtime.Request, cfg config.Config, at, profile string) (Place, error) {
	if !strings.HasPrefix(at, "s3://") {
		path := req.Path(at)
		return Place{at, func(context.Context) ([]byte, error) { return readSmall(at, path) },
			func(_ context.Context, text []byte) error {
				if err := durable.ReplaceBytes(path, 0o600, text); err != nil {
					return fmt.Errorf("write %s: %w", at, runtime.Cause(err))
				}
				return nil
			}}, nil
	}
	name, key, _ := strings.Cut(strings.TrimPrefix(at, "s3://"), "/")
	if name == "" || key == "" || strings.HasSuffix(key, "/") {
		return Place{}, runtime.Invalid("--anchor %s: it is s3://bucket/key", at)
	}
	cloud, err := clouds.OpenAWS(ctx, cfg, profile, nil)
	if err != nil {
		return Place{}, clouds.CloudError(err)
	}
	bucket, err := cloud.Bucket(ctx, name)
	if err != nil {
		return Place{}, AnchorError(err)
	}
	return Place{at, func(ctx context.Context) ([]byte, error) {
		body, err := bucket.Open(ctx, key)
		if err != nil {
			return nil, err
		}
		defer func() { _ = body.Close() }()
		return document.Read(at, body, anchorBytes)
	}, func(ctx context.Context, text []byte) error { return bucket.Put(ctx, key, text) }}, nil
}

// readSmall reads a file of at most a few kilobytes.
func readSmall(name, path string) ([]byte, error) {
	file, err := config.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, runtime.Cause(err))
	}
	defer file.Close()
	return document.Read(name, file, anchorBytes)
}

// PublicKey returns the configured public key, or nil.
func PublicKey(cfg config.Config) (ed25519.PublicKey, error) {
	text := strings.TrimSpace(cfg.Audit.PublicKey)
	if text == "" {
		return nil, nil
	}
	key, err := action.ParseKey(text)
	if err != nil {
		return nil, runtime.Invalid("audit.public_key: %v", err)
	}
	return key, nil
}

// VerifyingKey returns the key that verifies signatures. It never creates one.
func VerifyingKey(req *runtime.Request, cfg config.Config) (ed25519.PublicKey, error) {
	if key, err := PublicKey(cfg); key != nil || err != nil {
		return key, err
	}
	key, err := readKey(keyPath(req, cfg))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &runtime.Error{
			Class: runtime.Usage, Code: "no_key",
			Err:  errors.New("there is no key here by which an anchor could be verified"),
			Hint: "set audit.public_key to the key that `curfew audit --anchor` printed"}
	}
	if err != nil {
		return nil, keyFailure(err)
	}
	return key.Public().(ed25519.PublicKey), nil
}

func keyPath(req *runtime.Request, cfg config.Config) string {
	if cfg.Audit.Key != "" {
		return req.Path(cfg.Audit.Key)
	}
	return filepath.Join(cfg.DataDir, keyName)
}

// SigningKey returns the signing key; the one in the data directory is created on first use.
func SigningKey(req *runtime.Request, cfg config.Config) (ed25519.PrivateKey, error) {
	path := keyPath(req, cfg)
	key, err := readKey(path)
	if errors.Is(err, fs.ErrNotExist) && cfg.Audit.Key == "" && cfg.DataDir != "" {
		if err = makeKey(path); err == nil || errors.Is(err, fs.ErrExist) {
			key, err = readKey(path)
		}
	}
	if err != nil {
		return nil, keyFailure(err)
	}
	return key, nil
}

func keyFailure(err error) error {
	return &runtime.Error{
		Class: runtime.Usage, Code: "invalid_key", Err: err,
		Hint: "audit.key names a file with an Ed25519 key, PKCS #8 as PEM, that only its owner can read",
	}
}

// readKey reads a private key and checks that only its owner can read it.
func readKey(path string) (ed25519.PrivateKey, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the key %s: %w", path, runtime.Cause(err))
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

// makeKey atomically creates a key unless there is one.
func makeKey(path string) error {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return fmt.Errorf("make the key %s: %w", path, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("make the key %s: %w", path, err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := durable.Create(path, 0o600, text); err != nil {
		return fmt.Errorf("make the key %s: %w", path, err)
	}
	return nil
}
