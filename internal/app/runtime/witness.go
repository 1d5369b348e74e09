package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/objectstore"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/witness"
)

// witness returns what detects that the configured state was reset to an older copy.
func (req *Request) witness(ctx context.Context, cfg config.Config) (*witness.Witness, error) {
	documents, err := req.witnessDocuments(ctx, cfg)
	if err != nil {
		return nil, &Error{
			Class: Usage, Code: "invalid_witness", Err: fmt.Errorf("state.witness: %w", err),
			Hint: "give a folder outside of the data directory, or s3://bucket/prefix",
		}
	}
	return &witness.Witness{Documents: documents, Warn: func(err error) {
		plain.Fprintf(req.Log, "curfew: %s\n", err)
	}}, nil
}

func (req *Request) witnessDocuments(ctx context.Context, cfg config.Config) (witness.Documents, error) {
	at, named := cfg.State.Witness, true
	switch {
	case strings.HasPrefix(at, "s3://"):
		objects, err := objectstore.Open(ctx, at, objectstore.Options{Profile: cfg.AWS.Profile})
		if err != nil {
			//nolint:nilerr // nothing acts without it, and a freeze does not need it
			return witness.Missing{Why: err.Error()}, nil
		}
		return witnessObjects{objects, at}, nil
	case strings.Contains(at, "://"):
		return nil, fmt.Errorf("%q is no place for it", at)
	case at == "":
		at, named = req.WitnessDir, false
	default:
		at = req.Path(at)
	}
	if at == "" {
		return witness.Missing{Why: "there is no home directory for it: set state.witness"}, nil
	}
	if cfg.DataDir != "" && cfg.DatabaseURL == "" && witness.Within(at, cfg.DataDir) {
		err := fmt.Errorf("%s is in the data directory, and would be restored with it", at)
		if named {
			return nil, err
		}
		return witness.Missing{Why: err.Error() + ": set state.witness"}, nil
	}
	return witness.Dir{Path: at}, nil
}

// witnessObjects stores the documents of a witness in a bucket.
type witnessObjects struct {
	objects checkpoint.Backend
	at      string
}

// witnessLimit is the size limit of a document, witnessTries the number of attempts to write while
// others write.
const witnessLimit, witnessTries = 16 << 20, 4

// String implements witness.Documents.
func (w witnessObjects) String() string { return w.at }

// Read implements witness.Documents.
func (w witnessObjects) Read(ctx context.Context, name string) ([]byte, error) {
	o, err := w.objects.Get(ctx, name, witnessLimit)
	if errors.Is(err, checkpoint.ErrNotFound) {
		return nil, nil
	}
	if err == nil && len(o.Data) == 0 {
		err = fmt.Errorf("%s is empty", name)
	}
	return o.Data, err
}

// Write implements witness.Documents. Of two concurrent writes the later one is kept.
func (w witnessObjects) Write(ctx context.Context, name string, data []byte) error {
	var err error
	for range witnessTries {
		var o checkpoint.Object
		if o, err = w.objects.Get(ctx, name, witnessLimit); errors.Is(err, checkpoint.ErrNotFound) {
			err = nil
		}
		if err == nil {
			_, err = w.objects.Replace(ctx, name, data, o.Version)
		}
		if !errors.Is(err, checkpoint.ErrConflict) {
			break
		}
	}
	return err
}

// Lock implements witness.Documents. It does nothing, because writes are conditional.
func (w witnessObjects) Lock(context.Context) func() { return func() {} }
