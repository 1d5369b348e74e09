package cli

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/curfew-dev/curfew/internal/client"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/view"
)

// sessioner has sessions.
type sessioner interface {
	// Sessions opens them, for the time of a command.
	Sessions(ctx context.Context) (sessions, error)
}

// sessions are those of the state: kept by this machine, or by a server.
type sessions interface {
	List(ctx context.Context, all bool) (view.Runs, error)
	// Status is a session with what its machines said last, One is it without.
	Status(ctx context.Context, name string) (view.Runs, error)
	One(ctx context.Context, name string) (view.Run, error)
	Log(ctx context.Context, name string) (view.SessionLog, error)
	// Up asks for a session and Extend for a longer one. Where the gate does not let it pass,
	// the session comes with the error.
	Up(ctx context.Context, o daemon.UpOptions) (view.Run, error)
	Extend(ctx context.Context, name string, by time.Duration) (view.Run, error)
	Down(ctx context.Context, name string, discard bool) (view.Run, error)
	// Names are those that are not over and that the user may end.
	Names(ctx context.Context) ([]string, error)
	// Step does what is missing of a session as far as that goes now, where this machine keeps
	// it, and says when to look again.
	Step(ctx context.Context, id string) (time.Duration, error)
	// EnsureKeeper sees to it that it is kept after this command.
	EnsureKeeper(ctx context.Context) error
	// Disconnect ends the connections from here to sessions that are over.
	Disconnect(ctx context.Context) error
	Close() error
}

// sessionsHere are kept by this machine.
type sessionsHere struct {
	*daemon.Sessions
	*turn
}

// turn is when it is this process's turn to work on a session again: at a time, or once its
// record has another version than it saw last.
type turn struct {
	due     time.Time
	version int64
}

func keptHere(all *daemon.Sessions) sessionsHere { return sessionsHere{all, &turn{version: -1}} }

// Sessions implements sessioner.
func (l thisMachine) Sessions(ctx context.Context) (sessions, error) {
	all, err := l.OpenSessions(ctx)
	if err != nil {
		return nil, err
	}
	return keptHere(all), nil
}

// One implements sessions.
func (h sessionsHere) One(ctx context.Context, name string) (view.Run, error) {
	s, err := h.Newest(ctx, name)
	if err != nil {
		return view.Run{}, err
	}
	return h.Answer(ctx, s, nil)
}

// Up implements sessions.
func (h sessionsHere) Up(ctx context.Context, o daemon.UpOptions) (view.Run, error) {
	s, d, err := h.Sessions.Up(ctx, o)
	if err != nil {
		return view.Run{}, err
	}
	return h.Answer(ctx, s, d)
}

// Extend implements sessions.
func (h sessionsHere) Extend(ctx context.Context, name string, by time.Duration) (view.Run, error) {
	s, d, err := h.Sessions.Extend(ctx, name, by)
	if err != nil {
		return view.Run{}, err
	}
	return h.Answer(ctx, s, d)
}

// Down implements sessions.
func (h sessionsHere) Down(ctx context.Context, name string, discard bool) (view.Run, error) {
	s, err := h.Sessions.Down(ctx, name, discard)
	if err != nil {
		return view.Run{}, err
	}
	return h.Answer(ctx, s, nil)
}

// Names implements sessions.
func (h sessionsHere) Names(ctx context.Context) ([]string, error) { return h.Open(ctx) }

// Step implements sessions. The keeper in the background works on it as well; whichever is
// first, does it.
func (h sessionsHere) Step(ctx context.Context, id string) (time.Duration, error) {
	_, s, err := h.Run(ctx, id)
	if err != nil {
		return 0, err
	}
	if h.version != s.Version || !time.Now().Before(h.due) { //nolint:forbidigo // the pace of this process
		h.version = s.Version
		var after time.Duration
		if after, err = h.Keeper.Keep(ctx, id); err != nil {
			after = time.Second
		}
		h.due = time.Now().Add(after) //nolint:forbidigo // the pace of this process
	}
	return min(max(time.Until(h.due), 20*time.Millisecond), 250*time.Millisecond), err
}

// sessionsThere are kept by a server.
type sessionsThere struct{ *remote }

// Sessions implements sessioner.
func (r *remote) Sessions(context.Context) (sessions, error) { return sessionsThere{r}, nil }

// theOne is the session of an answer, also of one that is an error.
func theOne(doc view.Runs, err error) (view.Run, error) {
	var said *client.Error
	if errors.As(err, &said) && len(said.Document) > 0 {
		if bad := json.Unmarshal(said.Document, &doc); bad != nil {
			return view.Run{}, errors.Join(err, bad)
		}
	}
	if err == nil && len(doc.Runs) != 1 {
		return view.Run{}, errors.New("read the answer of the server: it has not one session")
	}
	if len(doc.Runs) != 1 {
		return view.Run{}, err
	}
	return doc.Runs[0], err
}

// Disconnect implements sessions: whoever has a server connects from elsewhere.
func (t sessionsThere) Disconnect(context.Context) error { return nil }

// List implements sessions.
func (t sessionsThere) List(ctx context.Context, all bool) (view.Runs, error) {
	q := query()
	if all {
		q.Set("all", "true")
	}
	doc, _, err := collected(ctx, t.remote, view.RunsSchema, q, func(w *view.Runs, p view.Runs) { w.Runs = append(w.Runs, p.Runs...) }, "sessions")
	return doc, err
}

// Status implements sessions.
func (t sessionsThere) Status(ctx context.Context, name string) (view.Runs, error) {
	return got[view.Runs](ctx, t.remote, view.RunsSchema, nil, "sessions", name)
}

// One implements sessions.
func (t sessionsThere) One(ctx context.Context, name string) (view.Run, error) {
	return theOne(got[view.Runs](ctx, t.remote, view.RunsSchema, query("hosts", "false"), "sessions", name))
}

// Log implements sessions.
func (t sessionsThere) Log(ctx context.Context, name string) (view.SessionLog, error) {
	doc, _, err := collected(ctx, t.remote, view.SessionLogSchema, nil, func(w *view.SessionLog, p view.SessionLog) { w.Events = append(w.Events, p.Events...) }, "sessions", name, "log")
	return doc, err
}

// Up implements sessions.
func (t sessionsThere) Up(ctx context.Context, o daemon.UpOptions) (view.Run, error) {
	in := body{"name": o.Name, "spot": o.Spot}.with("gpu", o.GPU).with("type", o.Type).with("cloud", o.Cloud).with("image", o.Image)
	if o.File != "" {
		text, err := t.file(o.File, daemon.EstimateOptions{In: o.In})
		if err != nil {
			return view.Run{}, err
		}
		in["content"], in["file"] = text, o.File
	}
	for key, n := range map[string]int64{"cpus": int64(o.CPUs), "nodes": int64(o.Nodes), "disk_gib": o.DiskGiB} {
		if n != 0 {
			in[key] = n
		}
	}
	if len(o.Regions) > 0 {
		in["regions"] = o.Regions
	}
	for key, d := range map[string]time.Duration{"lease": o.Lease, "idle": o.Idle} {
		if d > 0 {
			in[key] = d.String()
		}
	}
	return theOne(posted[view.Runs](ctx, t.remote, view.RunsSchema, in, "sessions"))
}

// Extend implements sessions.
func (t sessionsThere) Extend(ctx context.Context, name string, by time.Duration) (view.Run, error) {
	return theOne(posted[view.Runs](ctx, t.remote, view.RunsSchema, body{"for": by.String()}, "sessions", name, "extend"))
}

// Down implements sessions.
func (t sessionsThere) Down(ctx context.Context, name string, discard bool) (view.Run, error) {
	return theOne(posted[view.Runs](ctx, t.remote, view.RunsSchema, body{"discard": discard}, "sessions", name, "down"))
}

// Names implements sessions.
func (t sessionsThere) Names(ctx context.Context) ([]string, error) {
	doc, _, err := collected(ctx, t.remote, view.RunsSchema, query("yours", "true"), func(w *view.Runs, p view.Runs) { w.Runs = append(w.Runs, p.Runs...) }, "sessions")
	var names []string
	for _, r := range doc.Runs {
		names = append(names, r.Name)
	}
	return names, err
}

// Step implements sessions: the server keeps them.
func (sessionsThere) Step(context.Context, string) (time.Duration, error) {
	return 500 * time.Millisecond, nil
}

// EnsureKeeper implements sessions.
func (sessionsThere) EnsureKeeper(context.Context) error { return nil }

// Close implements sessions.
func (sessionsThere) Close() error { return nil }
