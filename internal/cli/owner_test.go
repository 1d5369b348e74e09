package cli

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/api"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/view"
)

// TestBrowserLink: who has the owner token gets a link that signs a browser in once.
func TestBrowserLink(t *testing.T) {
	o := newOffice(t, nil)
	if got := o.give("", "login", "--browser"); got.code != ExitDenied ||
		!strings.Contains(got.errs, "run it as the user of the service") {
		t.Errorf("without the owner token: exit %d: %s", got.code, got.errs)
	}
	o.srv.owned(t, o.data, filepath.Join(o.dir, "none"))
	follow := func(link string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	got := o.give("", "login", "--browser")
	link, rest, _ := strings.Cut(got.out, "\n")
	if got.code != ExitDone || !strings.HasPrefix(link, o.srv.URL+"/auth/once?code=") ||
		!strings.Contains(rest, "It counts once.") {
		t.Fatalf("exit %d: %s%s", got.code, got.out, got.errs)
	}
	for _, want := range []int{http.StatusSeeOther, http.StatusForbidden} {
		if status := follow(link); status != want {
			t.Errorf("the link: %d, want %d", status, want)
		}
	}
	got = o.give("", "login", "--browser", "-o", "json")
	var doc view.Login
	if err := json.Unmarshal([]byte(got.out), &doc); err != nil || doc.Name != "root" || doc.ExpiresAt == nil ||
		follow(doc.Link) != http.StatusSeeOther {
		t.Errorf("%v: %+v", err, doc)
	}
	if len(o.kept()) != 0 {
		t.Error("a token is kept here")
	}
	// A token that is kept for the service does not stand in for the owner token.
	if got := o.give(o.token("ada", "admin").Secret, "login"); got.code != ExitDone {
		t.Fatalf("exit %d: %s", got.code, got.errs)
	}
	if got := o.give("", "login", "--browser"); got.code != ExitDone {
		t.Errorf("with a kept token: exit %d: %s", got.code, got.errs)
	}
	if got := o.give("", "whoami"); got.code != ExitDone || !strings.Contains(got.out, "ada") {
		t.Errorf("with a kept token: exit %d: %s%s", got.code, got.out, got.errs)
	}
}

// TestRefusesReadableOwnerToken is an error: it is no secret any more.
func TestRefusesReadableOwnerToken(t *testing.T) {
	o := newOffice(t, nil)
	mine := filepath.Join(o.dir, "none")
	o.srv.owned(t, o.data, mine)
	if got := o.give("", "ls"); got.code != ExitDone {
		t.Errorf("exit %d: %s", got.code, got.errs)
	}
	if err := os.Chmod(filepath.Join(mine, identity.OwnerFile), 0o604); err != nil {
		t.Fatal(err)
	}
	if got := o.give("", "ls"); got.code != ExitUsage ||
		!strings.Contains(got.errs, "others can read it (mode 0604)") ||
		strings.Count(got.errs, "\n") != 1 {
		t.Errorf("exit %d: %s", got.code, got.errs)
	}
}

// TestServeShowsLink checks that a person who starts the simulated account, or a service on a
// terminal, sees how to sign in with a browser: the first URL, alone on its line. It is in no log
// or file.
func TestServeShowsLink(t *testing.T) {
	for _, width := range []int{0, 80} {
		d := newDesktop(t)
		data := filepath.Join(d.dir, "data")
		got := d.giveAt(data, width, nil, "serve", "--demo", "--observe", "--speed", "max", "--for", "10m", "--listen",
			"127.0.0.1:0")
		if got.code != ExitDone || strings.Contains(got.errs, "/auth/once") ||
			strings.Contains(got.errs, identity.TokenPrefix) ||
			!strings.Contains(got.errs, "owner_token="+filepath.Join(data, identity.OwnerFile)) {
			t.Errorf("width %d: exit %d: %s", width, got.code, got.errs)
		}
		lines := strings.Split(got.out, "\n")
		first := slices.IndexFunc(lines, func(s string) bool { return strings.Contains(s, "://") })
		if first < 0 || !linkLine.MatchString(lines[first]) {
			t.Errorf("width %d: %s", width, got.out)
		}
		if _, err := identity.ReadOwner(data); err != nil {
			t.Error(err)
		}
		files, err := os.ReadDir(data)
		if err != nil || len(files) != 1 {
			t.Errorf("the demonstration left %v, %v", files, err)
		}
	}
}

var linkLine = regexp.MustCompile(`^http://127\.0\.0\.1:\d+/auth/once\?code=[\w-]{43}$`)

// TestServeHidesLinkFromJournals checks that a service for real accounts that no terminal started
// prints none.
func TestServeHidesLinkFromJournals(t *testing.T) {
	var out strings.Builder
	a := &app{Process: &Process{Stdout: &out}}
	a.showLink(api.Options{Owner: &identity.Owner{}}, nil, "http://127.0.0.1:8787", false)
	if out.Len() > 0 {
		t.Error(out.String())
	}
}
