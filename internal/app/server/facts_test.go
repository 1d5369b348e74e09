package server

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/store"
)

// TestFactsNameFirstExpiringToken checks that only long-lived tokens count, because sign-ins always
// expire within hours.
func TestFactsNameFirstExpiringToken(t *testing.T) {
	dir := t.TempDir()
	host := runtime.Host{
		Now: time.Now, Lookup: os.LookupEnv, Dir: dir, WitnessDir: filepath.Join(dir, "witness"), Log: io.Discard,
	}
	req := runtime.NewProcess(host).Request()
	cfg := config.Default()
	cfg.DataDir = filepath.Join(dir, "state")
	s, err := req.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now := time.Now().UTC().Truncate(time.Second)
	day := 24 * time.Hour
	for i, tc := range []struct {
		made, expires, revoked time.Duration
		want                   time.Duration
	}{
		{made: -time.Hour, expires: 8 * time.Hour},                            // a sign-in
		{made: -89 * day, expires: -time.Hour},                                // expired
		{made: -80 * day, expires: 2 * day, revoked: -day},                    // revoked
		{made: -day, expires: 89 * day, want: 89 * day},                       // a new one
		{made: -85 * day, expires: 5 * day, want: 5 * day},                    // one that was used for long
		{made: -80 * day, expires: 10 * day, want: 5 * day},                   // a later one
		{made: -time.Minute, expires: 3 * day, want: 5 * day},                 // for a task of days
		{made: -365 * day, expires: time.Minute * 90, want: 90 * time.Minute}, // the first
	} {
		token := store.Token{
			ID: fmt.Sprintf("%08d", i), Hash: fmt.Sprintf("%064d", i), Name: "ci",
			Roles: []string{"viewer"}, CreatedBy: "ana",
			CreatedAt: now.Add(tc.made), ExpiresAt: now.Add(tc.expires),
		}
		entry := action.Entry{At: now, Actor: "ana", What: action.EventToken}
		if err := s.Callers().Create(t.Context(), token, entry); err != nil {
			t.Fatal(err)
		}
		if tc.revoked != 0 {
			revoke := func(store.Token) action.Entry { return entry }
			if _, err := s.Callers().Revoke(t.Context(), token.ID, now.Add(tc.revoked), revoke); err != nil {
				t.Fatal(err)
			}
		}
		facts, err := (&server{req: req, store: s}).facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := time.Time{}
		if tc.want != 0 {
			want = now.Add(tc.want)
		}
		if !facts.TokenExpires.Equal(want) {
			t.Errorf("with token %d the first expires at %s, want %s", i, facts.TokenExpires, want)
		}
	}
}
