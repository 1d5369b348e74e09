package sessions

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/store"
)

// TestOpenedOnceRetriesErrors checks that a failed open is retried and a successful one is shared.
func TestOpenedOnceRetriesErrors(t *testing.T) {
	calls := 0
	open := openedOnce(func() (int, error) {
		if calls++; calls < 3 {
			return 0, errors.New("there is no such profile")
		}
		return calls, nil
	})
	for want := range 2 {
		if _, err := open(); err == nil || calls != want+1 {
			t.Fatalf("call %d: %v", calls, err)
		}
	}
	for range 2 {
		if v, err := open(); v != 3 || err != nil || calls != 3 {
			t.Fatalf("got %d, %v after %d calls", v, err, calls)
		}
	}
}

// fakeProvider is a provider that may hang.
type fakeProvider struct {
	session.Launcher
	hangs bool
	found func(id string)
}

func (l fakeProvider) Find(ctx context.Context, _, id string) ([]session.FoundMachine, error) {
	l.found(id)
	if l.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, nil
}

// TestHangingProviderDelaysNoOtherSessions checks that sessions of one provider are kept while
// another provider hangs.
func TestHangingProviderDelaysNoOtherSessions(t *testing.T) {
	s, err := store.Open(t.Context(), store.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for _, provider := range []string{"hangs", "works"} {
		now := time.Now().UTC()
		if _, err := s.Sessions().Put(ctx, session.Session{
			ID: provider, Name: provider, Provider: provider, State: session.Ending, RequestedAt: now, EndingAt: now,
			LaunchedAt: now,
			Machines:   []session.Machine{{ID: "m-" + provider}}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	kept, compared := make(chan struct{}), make(chan struct{})
	var keptOnce, comparedOnce sync.Once
	a := &Sessions{
		Request: runtime.NewProcess(runtime.Host{Lookup: func(string) (string, bool) { return "", false }}).Request(),
		store:   s,
		now:     time.Now,
	}
	a.Keeper = &session.Keeper{
		Store:        s.Sessions(),
		Installation: "here",
		Now:          time.Now,
		Log:          slog.New(slog.DiscardHandler),
		Launchers: map[string]session.Launcher{
			"hangs": fakeProvider{hangs: true, found: func(string) {}},
			"works": fakeProvider{found: func(id string) {
				switch id {
				case "":
					comparedOnce.Do(func() { close(compared) })
				case "works":
					keptOnce.Do(func() { close(kept) })
				}
			}},
		},
		Reachable: func(s *session.Session) bool {
			if s.Provider == "hangs" {
				<-ctx.Done()
			}
			return true
		},
	}
	ended := make(chan error, 1)
	go func() { ended <- a.keep(ctx, true, slog.New(slog.DiscardHandler), nil) }()
	for what, done := range map[string]chan struct{}{"kept": kept, "compared": compared} {
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Errorf("the session of the other provider was not %s", what)
		}
	}
	stop()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the loop does not end with its context")
	}
}
