package runtime_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
)

func TestStateNeedsADirectory(t *testing.T) {
	req := runtime.NewProcess(runtime.Host{
		Now: time.Now, Dir: t.TempDir(), Log: io.Discard, Lookup: func(string) (string, bool) { return "", false },
	}).Request()
	_, _, err := req.State(t.Context())
	var f *runtime.Error
	if !errors.As(err, &f) || f.Code != "no_state" {
		t.Errorf("got %v, want no_state", err)
	}
}

func TestOpenCreatesOwnStorage(t *testing.T) {
	req := apptest.Request(t, "")
	cfg, err := req.Config()
	if err != nil {
		t.Fatal(err)
	}
	if req.Storage.Exists(cfg) {
		t.Error("there is a state before it was opened")
	}
	s, err := req.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if !req.Storage.Exists(cfg) {
		t.Error("there is no state after it was opened")
	}
}

func TestLentStateOutlivesRequests(t *testing.T) {
	s, err := store.Open(t.Context(), store.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	req := apptest.Request(t, "")
	req.Storage = runtime.LentStorage{State: s}
	for range 2 {
		_, lent, err := req.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lent.Close()
	}
	if _, _, err := s.Settings().Newest(t.Context(), runtime.SettingsKind); err != nil {
		t.Errorf("the state was closed: %v", err)
	}
}

func TestCallerNamesThePerson(t *testing.T) {
	req := apptest.Request(t, "")
	cfg, err := req.Config()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		caller runtime.Caller
		want   string
	}{{runtime.Caller{}, "ana"}, {runtime.ServedCaller(approval.Person{Name: "bo"}), "bo"}} {
		req.Caller = c.caller
		who, err := req.Declared(cfg)
		if err != nil || who.Name != c.want {
			t.Errorf("got %q, %v, want %s", who.Name, err, c.want)
		}
	}
}

func TestRequestsShareNoMemory(t *testing.T) {
	req := apptest.Request(t, "")
	req.SetReviewed("r1")
	if other := req.Fresh(); !req.Reviewed("r1") || other.Reviewed("r1") {
		t.Error("a request remembers what another one read")
	}
	bar := req.Progress("nothing")
	bar.Report(round.Progress{})
	bar.Finish()
}
