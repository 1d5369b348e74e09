package sessions

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/view"
)

// NameOutput names the part of output in an event by session, node and number: "0123abcd/0/7".
func NameOutput(id string, e *session.Event) {
	if e.Kind == session.OutputPart {
		e.Text = fmt.Sprintf("%s/%d/%s", id, e.Node, e.Text)
	}
}

// Output returns a part of the output of one of some sessions, by its name, as one event.
func (a *Sessions) Output(ctx context.Context, ids []string, name string) (doc view.SessionLog, err error) {
	id, rest, _ := strings.Cut(name, "/")
	nodeText, number, _ := strings.Cut(rest, "/")
	node, errNode := strconv.Atoi(nodeText)
	n, errNumber := strconv.ParseInt(number, 10, 64)
	if errNode != nil || errNumber != nil || node < 0 || n < 1 {
		return doc, runtime.Invalid("part %q: it is SESSION/NODE/NUMBER, as events of the log name it", name)
	}
	missing := &runtime.Error{
		Code: "no_output", Err: fmt.Errorf("there is no part %s of its output", name),
		Hint: "events of the kind output-part name the parts",
	}
	if !slices.Contains(ids, id) {
		return doc, missing
	}
	s, err := a.store.Sessions().Session(ctx, id)
	if err != nil {
		return doc, err
	}
	packed, err := a.packedOutput(ctx, &s, node, n)
	if errors.Is(err, checkpoint.ErrNotFound) {
		if outputExpired(&s, a.now()) {
			missing.Err = fmt.Errorf("part %s of its output was removed %s after its end", name,
				plain.Duration(OutputRetention))
		}
		return doc, missing
	}
	if err != nil {
		return doc, err
	}
	data, err := session.UnpackOutput(packed)
	if err != nil {
		return doc, fmt.Errorf("read part %s of the output of %s: %w", name, s.Name, err)
	}
	return view.NewSessionLog(s, []session.LoggedEvent{{Event: session.Event{
		At: a.now(), Node: s.NodeOf(node), Kind: "output", Text: strings.ToValidUTF8(string(data), "\uFFFD"),
	}}}), nil
}

// packedOutput returns a part of output from where it is kept.
func (a *Sessions) packedOutput(ctx context.Context, s *session.Session, node int, n int64) ([]byte, error) {
	if file, kept := a.outputFile(s, node, n); kept {
		data, err := os.ReadFile(file)
		if !errors.Is(err, fs.ErrNotExist) {
			return data, err
		}
	}
	return a.documents.PackedOutput(ctx, s, node, n)
}

// outputFile returns the file in which this machine keeps a part of output; false if it does not.
func (a *Sessions) outputFile(s *session.Session, node int, n int64) (string, bool) {
	own, ok := a.Keeper.Launchers[clouds.ProviderLocal].(clouds.OwnMachine)
	if !ok {
		return "", false
	}
	return own.OutputFile(s, node, n)
}

// keepOutput copies a part of output from the documents of a local session, which its end removes.
func (a *Sessions) keepOutput(ctx context.Context, s *session.Session, node int, n int64) error {
	file, kept := a.outputFile(s, node, n)
	if !kept {
		return nil
	}
	data, err := a.documents.PackedOutput(ctx, s, node, n)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return durable.ReplaceBytes(file, 0o600, data)
}
