package cli

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/client"
	"github.com/curfew-dev/curfew/internal/view"
)

// office is a served state with people, and a machine without a state from which they give
// commands.
type office struct {
	*desktop
	srv *serving
	// data is the data directory of the service.
	data string
	env  map[string]string
}

const officeConfig = `
approvals: {accept: [self-declared]}
people:
  vi: {roles: [viewer]}
  olga: {roles: [operator]}
  ada: {roles: [admin]}
`

func newOffice(t *testing.T, wrap func(http.Handler) http.Handler) *office {
	t.Helper()
	d := newDesktop(t)
	serverDir := t.TempDir()
	if err := os.WriteFile(filepath.Join(serverDir, "curfew.yaml"), []byte(officeConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	d.write("curfew.yaml", "")
	o := &office{desktop: d, data: filepath.Join(serverDir, "data")}
	o.srv = serveState(t, serverDir, o.data, func() string { return "root" }, d.clock, wrap)
	o.env = map[string]string{"CURFEW_SERVER": o.srv.URL}
	return o
}

// token makes a token for a person.
func (o *office) token(name string, roles ...string) view.NewToken {
	o.t.Helper()
	req := o.srv.req.Fresh()
	req.Caller = runtime.ServedCaller(approval.Person{Name: name})
	doc, err := identity.CreateToken(o.t.Context(), req, identity.TokenOptions{Name: name, Roles: roles, For: "1h"})
	if err != nil {
		o.t.Fatal(err)
	}
	return doc
}

// give runs a command that reads stdin.
func (o *office) give(stdin string, args ...string) gave {
	o.t.Helper()
	o.env["stdin"] = stdin
	return o.giveAt(filepath.Join(o.dir, "none"), 0, o.env, args...)
}

// kept are the files in which tokens are kept.
func (o *office) kept() []string {
	o.t.Helper()
	files, err := filepath.Glob(filepath.Join(o.dir, "home", "curfew", "servers", "*"))
	if err != nil {
		o.t.Fatal(err)
	}
	return files
}

// TestLogin checks that a token is kept once the service took it, in a file of the user alone; it
// is shown nowhere; logout forgets it.
func TestLogin(t *testing.T) {
	o := newOffice(t, nil)
	vi, ada := o.token("vi", "viewer"), o.token("ada", "admin")
	if got := o.give("", "costs"); got.code != ExitDenied || !strings.Contains(got.errs, "curfew login "+o.srv.URL) {
		t.Fatalf("without a token: exit %d, %s", got.code, got.errs)
	}
	for name, secret := range map[string]string{
		"no token": "", "a text": "not a token\n", "another token": "curfew_" + strings.Repeat("0", 64),
	} {
		got := o.give(secret, "login")
		if got.code != ExitUsage && got.code != ExitDenied || len(o.kept()) > 0 || strings.Count(got.errs, "\n") != 1 {
			t.Errorf("%s: exit %d, %s; kept %v", name, got.code, got.errs, o.kept())
		}
	}
	got := o.give(vi.Secret+"\n", "login", "-o", "json")
	var doc view.Login
	if err := json.Unmarshal([]byte(got.out), &doc); err != nil || got.code != ExitDone || doc.Name != "vi" ||
		doc.Server != o.srv.URL || strings.Join(doc.Roles, " ") != "viewer" {
		t.Fatalf("exit %d, %v: %s%s", got.code, err, got.out, got.errs)
	}
	if strings.Contains(got.out+got.errs, vi.Secret) {
		t.Error("the token is shown")
	}
	files := o.kept()
	if len(files) != 1 {
		t.Fatalf("kept %v", files)
	}
	if st, err := os.Stat(files[0]); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want 0600", st.Mode(), err)
	}
	if st, err := os.Stat(filepath.Dir(files[0])); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v: want 0700", st.Mode(), err)
	}
	// A viewer reads, and changes nothing.
	if got := o.give("", "whoami"); got.code != ExitDone || !strings.Contains(got.out, "vi, token") {
		t.Errorf("exit %d: %s%s", got.code, got.out, got.errs)
	}
	if got := o.give("", "audit"); got.code != ExitDone {
		t.Errorf("exit %d: %s", got.code, got.errs)
	}
	for _, line := range []string{
		"freeze --reason x", "keep sim/000000000000/us-east-1/instance/i-1 --for 1h --reason x", "approve ff",
		"token list", "bill reconcile --post",
	} {
		got := o.give("", strings.Fields(line)...)
		if got.code != ExitDenied || strings.Count(got.errs, "\n") != 1 ||
			!strings.Contains(got.errs, "needs the role") {
			t.Errorf("%s: exit %d, %s", line, got.code, got.errs)
		}
	}
	// Another person signs in in place of the one before.
	if got := o.give(ada.Secret, "login"); got.code != ExitDone || !strings.Contains(got.out, "ada") ||
		len(o.kept()) != 1 {
		t.Fatalf("exit %d: %s%s", got.code, got.out, got.errs)
	}
	if got := o.give("", "token", "revoke", vi.ID); got.code != ExitDone || !strings.Contains(got.out, "revoked") {
		t.Errorf("exit %d: %s%s", got.code, got.out, got.errs)
	}
	made := o.give("", "token", "create", "dashboard", "--role", "viewer", "-o", "json")
	var secret view.NewToken
	if err := json.Unmarshal([]byte(made.out), &secret); err != nil || made.code != ExitDone ||
		secret.Name != "dashboard" {
		t.Errorf("exit %d, %v: %s%s", made.code, err, made.out, made.errs)
	}
	// A file that others can read is not used.
	if err := os.Chmod(o.kept()[0], 0o644); err != nil {
		t.Fatal(err)
	}
	if got := o.give("", "audit"); got.code != ExitUsage || !strings.Contains(got.errs, "others can read") ||
		strings.Contains(got.errs, ada.Secret) {
		t.Errorf("exit %d: %s", got.code, got.errs)
	}
	if got := o.give("", "logout"); got.code != ExitDone || len(o.kept()) != 0 {
		t.Errorf("exit %d: %s%s; kept %v", got.code, got.out, got.errs, o.kept())
	}
	if got := o.give("", "logout"); got.code != ExitDone || !strings.Contains(got.out, "No token") {
		t.Errorf("exit %d: %s%s", got.code, got.out, got.errs)
	}
}

// TestExpiredTokenExplainsLogin checks that an expired token is refused in one line with the
// remedy.
func TestExpiredTokenExplainsLogin(t *testing.T) {
	o := newOffice(t, nil)
	o.now = time.Date(2026, 7, 20, 9, 0, 0, 0, time.UTC)
	if got := o.give(o.token("vi", "viewer").Secret, "login"); got.code != ExitDone {
		t.Fatal(got.errs)
	}
	o.token("ada", "admin") // so that the server goes on to want tokens
	o.now = o.now.Add(61 * time.Minute)
	req := o.srv.req.Fresh()
	req.Caller = runtime.ServedCaller(approval.Person{Name: "ada"})
	if _, err := identity.CreateToken(t.Context(), req, identity.TokenOptions{
		Name: "ada", Roles: []string{"admin"},
	}); err != nil {
		t.Fatal(err)
	}
	got := o.give("", "audit")
	if got.code != ExitDenied || strings.Count(got.errs, "\n") != 1 || !strings.Contains(got.errs, "expired") ||
		!strings.Contains(got.errs, "curfew login") {
		t.Errorf("exit %d: %s", got.code, got.errs)
	}
}

// TestUnreachableServerExits checks that one line, exit code 1, whatever is asked; a freeze says
// how to stop everything by hand.
func TestUnreachableServerExits(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	d := newDesktop(t)
	for line, want := range map[string]string{"audit": "curfew serve", "freeze --reason x": "by hand"} {
		got := d.giveAt("", 0, map[string]string{"CURFEW_SERVER": url}, strings.Fields(line)...)
		if got.code != ExitError || strings.Count(got.errs, "\n") != 1 || !strings.Contains(got.errs, "reach "+url) {
			t.Errorf("%s: exit %d, %s", line, got.code, got.errs)
		}
		if line == "audit" && !strings.Contains(got.errs, want) {
			t.Errorf("%s: %s, want %s", line, got.errs, want)
		}
	}
}

// TestRefusesForeignServer checks that a page of a proxy is told from an answer.
func TestRefusesForeignServer(t *testing.T) {
	d := newDesktop(t)
	for name, answer := range map[string]http.HandlerFunc{
		"a page": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>welcome</html>") },
		"a missing": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no such page", http.StatusNotFound)
		},
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://login.example.com", http.StatusFound)
		},
	} {
		srv := httptest.NewServer(answer)
		got := d.giveAt("", 0, map[string]string{"CURFEW_SERVER": srv.URL}, "audit")
		srv.Close()
		if got.code != ExitError || strings.Count(got.errs, "\n") != 1 ||
			!strings.Contains(got.errs, "no curfew service") {
			t.Errorf("%s: exit %d, %s", name, got.code, got.errs)
		}
	}
}

// TestLostAnswerIsUnknown: where the answer of a call is lost, it is sent again, and done once.
func TestLostAnswerIsUnknown(t *testing.T) {
	var lost, sent atomic.Int32
	o := newOffice(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				next.ServeHTTP(w, r)
				return
			}
			sent.Add(1)
			if lost.Add(-1) < 0 {
				next.ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(httptest.NewRecorder(), r) // it is carried out, and the answer lost
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = c.Close()
		})
	})
	o.srv.owned(t, o.data, filepath.Join(o.dir, "none"))
	events := func(what string) int {
		got := o.give("", "audit", "--what", what, "-o", "jsonl")
		if got.code != ExitDone {
			t.Fatalf("exit %d: %s", got.code, got.errs)
		}
		return strings.Count(got.out, "\n")
	}
	lost.Store(2)
	got := o.give("", "freeze", "--reason", "incident")
	if got.code != ExitDone || sent.Load() != 3 || events("freeze") != 1 {
		t.Errorf("exit %d, sent %d times, %d in the log: %s", got.code, sent.Load(), events("freeze"), got.errs)
	}
	// A missing answer is given up in one line that names the acts that may have happened.
	sent.Store(0)
	lost.Store(100)
	got = o.give("", "unfreeze", "--reason", "over")
	if got.code != ExitError || strings.Count(got.errs, "\n") != 1 ||
		!strings.Contains(got.errs, "may have been carried out") || events("unfreeze") != 1 {
		t.Errorf("exit %d, %d in the log: %s", got.code, events("unfreeze"), got.errs)
	}
	// A token is not made twice: its answer is not kept, so it is not asked for again.
	sent.Store(0)
	lost.Store(100)
	got = o.give("", "token", "create", "ci", "--role", "viewer")
	if got.code != ExitError || sent.Load() != 1 || !strings.Contains(got.errs, "may have been carried out") {
		t.Errorf("exit %d, sent %d times: %s", got.code, sent.Load(), got.errs)
	}
}

// TestRefusesForeignCertificate checks that a certificate of an authority that does not count here
// ends a command before a token is sent; server_ca_file makes it count.
func TestRefusesForeignCertificate(t *testing.T) {
	var sawToken atomic.Bool
	o := newOffice(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				sawToken.Store(true)
			}
			next.ServeHTTP(w, r)
		})
	})
	srv := httptest.NewUnstartedServer(o.srv.Config.Handler)
	srv.Config.ErrorLog = nil
	srv.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	o.env["CURFEW_SERVER"] = srv.URL
	vi := o.token("vi", "viewer")
	got := o.give(vi.Secret, "login")
	if got.code != ExitError || strings.Count(got.errs, "\n") != 1 || !strings.Contains(got.errs, "authority") ||
		!strings.Contains(got.errs, "server_ca_file") || sawToken.Load() || len(o.kept()) > 0 {
		t.Errorf("exit %d: %s; a token was sent: %v", got.code, got.errs, sawToken.Load())
	}
	o.write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})))
	o.write("curfew.yaml", "server_ca_file: ca.pem\n")
	if got := o.give(vi.Secret, "login"); got.code != ExitDone || !sawToken.Load() {
		t.Errorf("exit %d: %s", got.code, got.errs)
	}
	if got := o.give("", "audit"); got.code != ExitDone {
		t.Errorf("exit %d: %s", got.code, got.errs)
	}
	o.write("ca.pem", "no certificate\n")
	if got := o.give("", "audit"); got.code != ExitUsage || !strings.Contains(got.errs, "PEM") {
		t.Errorf("exit %d: %s", got.code, got.errs)
	}
	// A token of one server goes to no other.
	o.write("curfew.yaml", "")
	sawToken.Store(false)
	o.env["CURFEW_SERVER"] = o.srv.URL
	if got := o.give("", "audit"); got.code != ExitDenied || sawToken.Load() {
		t.Errorf("exit %d: %s; a token was sent: %v", got.code, got.errs, sawToken.Load())
	}
}

// TestLoginByAWS checks that the credentials of a user of AWS, as STS names them, make a session of
// an hour; logout ends it at the service as well. Credentials of another user make none.
func TestLoginByAWS(t *testing.T) {
	l := newLadder(t)
	ana, asAna := l.keysOf("ana")
	_, asEve := l.keysOf("eve")
	sts := fmt.Sprintf("approvals: {sts_endpoint: %q}\n", os.Getenv("AWS_ENDPOINT_URL"))
	o := newOffice(t, nil)
	o.write("curfew.yaml", sts)
	if err := os.WriteFile(filepath.Join(o.srv.req.Dir, "curfew.yaml"),
		[]byte(sts+fmt.Sprintf("people: {ana: {aws: [%q], roles: [viewer]}}\n", ana)), 0o600); err != nil {
		t.Fatal(err)
	}
	asEve()
	if got := o.give("", "login", "--aws"); got.code != ExitDenied || strings.Count(got.errs, "\n") != 1 ||
		len(o.kept()) != 0 {
		t.Errorf("exit %d: %s%s", got.code, got.out, got.errs)
	}
	asAna()
	got := o.give("", "login", "--aws", "-o", "json")
	var doc view.Login
	if err := json.Unmarshal([]byte(got.out), &doc); err != nil || got.code != ExitDone || doc.Name != "ana" ||
		doc.ExpiresAt == nil || time.Until(*doc.ExpiresAt) > time.Hour {
		t.Fatalf("exit %d, %v: %s%s", got.code, err, got.out, got.errs)
	}
	if got := o.give("", "whoami"); got.code != ExitDone || !strings.Contains(got.out, "ana") {
		t.Errorf("exit %d: %s%s", got.code, got.out, got.errs)
	}
	text, err := os.ReadFile(o.kept()[0])
	if err != nil {
		t.Fatal(err)
	}
	var kept client.Login
	if err := json.Unmarshal(text, &kept); err != nil || !kept.Session {
		t.Fatalf("%v: %s", err, text)
	}
	if got := o.give("", "logout"); got.code != ExitDone || len(o.kept()) != 0 || got.errs != "" {
		t.Errorf("exit %d: %s%s", got.code, got.out, got.errs)
	}
	if got := o.give(kept.Token, "login"); got.code != ExitDenied || !strings.Contains(got.errs, "revoked") {
		t.Errorf("the session was not ended: exit %d: %s%s", got.code, got.out, got.errs)
	}
}
