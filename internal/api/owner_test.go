package api_test

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/api"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/client"
	"github.com/curfew-dev/curfew/internal/store"
)

// TestCallsNeedCredential covers calls from this machine, and servers without a token or with
// an expired or revoked one.
func TestCallsNeedCredential(t *testing.T) {
	s := start(t, settings, false, nil)
	all := calls(t, []byte(s.call("", "GET", "/openapi.json", "").body))
	if len(all) < 60 {
		t.Fatalf("only %d operations", len(all))
	}
	refused := func(when string) {
		t.Helper()
		for _, c := range all {
			if got := s.call("", c.method, c.path, c.body); got.status != 401 || got.code() != "unauthenticated" ||
				got.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: %s: %d %s", when, c.id, got.status, got.body)
			}
		}
	}
	refused("without tokens")
	now := time.Now()
	hash, id, _ := identity.HashToken("curfew_" + strings.Repeat("ab", 32))
	v := store.Token{
		ID: id, Hash: hash, Name: "old", Roles: []string{"viewer"}, CreatedAt: now.Add(-48 * time.Hour),
		ExpiresAt: now.Add(-time.Hour),
	}
	if err := s.state.Callers().Create(t.Context(), v, action.Entry{
		At: now, Actor: "root", What: action.EventToken,
	}); err != nil {
		t.Fatal(err)
	}
	refused("after the only token expired")
	secret := s.token("vi", "viewer")
	_, id, _ = identity.HashToken(secret)
	if _, err := identity.RevokeToken(t.Context(), s.req.Fresh(), id); err != nil {
		t.Fatal(err)
	}
	refused("after the only token was revoked")
	for _, bad := range []string{
		secret, "curfew_owner_" + strings.Repeat("ab", 32), "curfew_browser_", "x", "a.b.c", " ",
	} {
		if got := s.call("", "GET", "/api/v1/people/me", "", with("Authorization", "Bearer "+bad)); got.status != 401 {
			t.Errorf("with %q: %d %s", bad, got.status, got.body)
		}
	}
}

// TestOwnerToken checks that its bearer acts as the user of the service, under the service's name,
// which identifies no person, and that it is invalid without its file.
func TestOwnerToken(t *testing.T) {
	s := start(t, strings.Replace(settings, "approvals: {accept: [self-declared]}\n", "", 1), false, nil)
	if got := s.call(owner, "POST", "/api/v1/freezes", `{"reason":"x"}`); got.status != 200 ||
		!strings.Contains(got.body, `"by": "root"`) {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got := s.call(owner, "POST", "/api/v1/tokens", `{"name":"dash","roles":["viewer"]}`); got.status != 200 {
		t.Errorf("a token for a program: %d %s", got.status, got.body)
	}
	if got := s.call(owner, "POST", "/api/v1/tokens", `{"name":"root","roles":["approver"]}`); got.status != 403 ||
		got.code() != "not_yours" {
		t.Errorf("a token that decides: %d %s", got.status, got.body)
	}
	got := s.call(owner, "GET", "/api/v1/people/me", "")
	var me struct {
		Name, Proof string
		Verified    bool
	}
	if err := json.Unmarshal([]byte(got.body), &me); err != nil || me.Name != "root" || me.Proof != "owner-token" ||
		me.Verified {
		t.Errorf("%+v %s", me, got.body)
	}
	if got := s.call(owner, "GET", "/api/v1/audit?what=call", ""); !strings.Contains(got.body,
		"by owner-token, not verified") {
		t.Errorf("the audit log: %s", got.body)
	}
	if got := s.call("", "GET", "/api/v1/keeps", "", with("Cookie", "curfew_session="+s.tokens[owner])); got.status !=
		401 {
		t.Errorf("as a cookie: %d", got.status)
	}
	if got := s.call(owner, "GET", "/api/v1/keeps", "", with("Host", "evil.example")); got.status != 421 {
		t.Errorf("by a foreign name: %d", got.status)
	}
	file := filepath.Join(s.dir, "state", identity.OwnerFile)
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := s.call(owner, "GET", "/api/v1/keeps", ""); got.status != 401 {
		t.Errorf("after others could read it: %d", got.status)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := s.call(owner, "GET", "/api/v1/keeps", ""); got.status != 401 {
		t.Errorf("after its file was removed: %d", got.status)
	}
	if _, err := identity.MakeOwner(filepath.Dir(file)); err != nil {
		t.Fatal(err)
	}
	if got := s.call(owner, "GET", "/api/v1/keeps", ""); got.status != 401 {
		t.Errorf("the old one next to a new one: %d", got.status)
	}
}

// TestSignInLink checks that a link is issued only for the owner token, is valid once and for ten
// minutes, and signs in a browser until it signs out.
func TestSignInLink(t *testing.T) {
	now := time.Now()
	s := start(t, settings, true, func(o *api.Options) { o.Now = func() time.Time { return now } })
	link := func() string {
		got := s.call(owner, "POST", client.OwnerLinkPath, "{}")
		var doc client.OwnerLink
		if err := json.Unmarshal([]byte(got.body), &doc); err != nil || got.status != 200 || doc.ExpiresIn != 600 ||
			!strings.HasPrefix(doc.Path, "/auth/once?code=") {
			t.Fatalf("%d %s", got.status, got.body)
		}
		return doc.Path
	}
	for _, who := range []string{"", "ada"} {
		if got := s.call(who, "POST", client.OwnerLinkPath, "{}"); got.status != 401 {
			t.Errorf("a link for %q: %d %s", who, got.status, got.body)
		}
	}
	path := link()
	if got := s.call("", "GET", path, "", with("Sec-Purpose", "prefetch;prerender")); got.status != 403 {
		t.Errorf("fetched ahead: %d", got.status)
	}
	got := s.call("", "GET", path, "")
	var session *http.Cookie
	for _, c := range (&http.Response{Header: got.header}).Cookies() {
		session = c
	}
	if got.status != 303 || session == nil || !session.HttpOnly || session.SameSite != http.SameSiteLaxMode ||
		strings.Contains(session.Value, s.tokens[owner]) {
		t.Fatalf("%d %v", got.status, got.header)
	}
	for name, path := range map[string]string{
		"used": path, "guessed": "/auth/once?code=guess", "empty": "/auth/once?code=", "without a code": "/auth/once",
	} {
		if got := s.call("", "GET", path, ""); got.status != 403 || len(got.header.Values("Set-Cookie")) > 0 {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	cookie := with("Cookie", "curfew_session="+session.Value)
	if got := s.call("", "POST", "/api/v1/freezes", `{"reason":"x"}`, cookie); got.status != 200 {
		t.Errorf("the browser: %d %s", got.status, got.body)
	}
	if got := s.call("", "GET", "/api/v1/keeps", "",
		with("Authorization", "Bearer "+session.Value)); got.status != 401 {
		t.Errorf("its session as a token: %d", got.status)
	}
	if got := s.call("", "POST", client.OwnerLinkPath, "{}", cookie); got.status != 401 {
		t.Errorf("a link for a browser: %d", got.status)
	}
	if got := s.call("", "POST", "/api/v1/freezes/lift", `{"reason":"x"}`, cookie,
		with("Origin", "https://evil.example")); got.status != 403 {
		t.Errorf("a foreign page: %d", got.status)
	}
	if !strings.Contains(s.call(owner, "GET", "/api/v1/audit?what=token", "").body, "a browser by a sign-in link") {
		t.Error("the sign-in is not in the audit log")
	}
	late := link()
	now = now.Add(10 * time.Minute)
	if got := s.call("", "GET", late, ""); got.status != 403 {
		t.Errorf("after ten minutes: %d", got.status)
	}
	if got := s.call("", "POST", "/auth/logout", "{}", cookie); got.status != 204 {
		t.Errorf("logout: %d", got.status)
	}
	if got := s.call("", "GET", "/api/v1/keeps", "", cookie); got.status != 401 {
		t.Errorf("after the logout: %d", got.status)
	}
	got = s.call("", "GET", link(), "")
	cookie = with("Cookie", strings.Split(got.header.Get("Set-Cookie"), ";")[0])
	if got := s.call("", "GET", "/api/v1/keeps", "", cookie); got.status != 200 {
		t.Errorf("a second browser: %d %s", got.status, got.body)
	}
	now = now.Add(8 * time.Hour)
	if got := s.call("", "GET", "/api/v1/keeps", "", cookie); got.status != 401 {
		t.Errorf("after eight hours: %d", got.status)
	}
}

// TestProofOfOwner checks the response to a nonce, computed from the owner token and the address of
// the connection.
func TestProofOfOwner(t *testing.T) {
	s := start(t, settings, false, nil)
	nonce := strings.Repeat("n", 32)
	got := s.call("", "GET", client.OwnerProofPath+"?nonce="+nonce, "")
	var doc client.OwnerProof
	if err := json.Unmarshal([]byte(got.body), &doc); err != nil || got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	at := s.Listener.Addr().(*net.TCPAddr).String()
	if want := client.ProofOfOwner(s.tokens[owner], nonce, at); doc.Proof != want {
		t.Errorf("got %s, want %s", doc.Proof, want)
	}
	for _, other := range []string{
		client.ProofOfOwner(s.tokens[owner], nonce, "127.0.0.1:1"),
		client.ProofOfOwner(s.tokens[owner], strings.Repeat("m", 32), at), client.ProofOfOwner("x", nonce, at),
	} {
		if doc.Proof == other {
			t.Errorf("the proof is one for another token, nonce or address")
		}
	}
	for _, nonce := range []string{"", "short", strings.Repeat("n", 129)} {
		if got := s.call("", "GET", client.OwnerProofPath+"?nonce="+nonce, ""); got.status != 404 {
			t.Errorf("nonce %q: %d", nonce, got.status)
		}
	}
}
