package api_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/curfew-dev/curfew/internal/api"
)

// issuer is a sign-in provider that enforces PKCE: it issues a code for a challenge, and the token
// only for the matching verifier.
type issuer struct {
	*httptest.Server
	t      *testing.T
	signer jose.Signer
	key    *rsa.PrivateKey
	// next are the claims of the next token; asked is the query of the browser's redirect.
	next  map[string]any
	asked url.Values

	mu sync.Mutex
	// keys are published, answers overrides the response of a path, and fetched counts requests by
	// path.
	keys    []jose.JSONWebKey
	answers map[string]http.HandlerFunc
	fetched map[string]int
}

// set changes the provider.
func (i *issuer) set(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

// handle counts a request, and responds as usual or as the test says.
func (i *issuer) handle(usual http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		i.fetched[r.URL.Path]++
		answer := i.answers[r.URL.Path]
		i.mu.Unlock()
		if answer == nil {
			answer = usual.ServeHTTP
		}
		answer(w, r)
	})
}

// count returns the number of requests for a path.
func (i *issuer) count(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetched[path]
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{
		t: t, key: key, signer: signerOf(t, key), answers: map[string]http.HandlerFunc{}, fetched: map[string]int{},
		keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "RS256", Use: "sig"}}}
	mux := http.NewServeMux()
	reply := func(w http.ResponseWriter, doc any) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(doc); err != nil {
			t.Error(err)
		}
	}
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{
			"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
			"jwks_uri": i.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		reply(w, jose.JSONWebKeySet{Keys: i.keys})
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		if r.FormValue("code") != "good" ||
			base64.RawURLEncoding.EncodeToString(sum[:]) != i.asked.Get("code_challenge") {
			http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
			return
		}
		reply(w, map[string]any{
			"access_token": "opaque", "token_type": "Bearer", "id_token": i.token(i.signer, i.next),
		})
	})
	i.Server = httptest.NewServer(i.handle(mux))
	t.Cleanup(i.Close)
	return i
}

func signerOf(t *testing.T, key *rsa.PrivateKey) jose.Signer {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key},
		(&jose.SignerOptions{}).WithHeader("kid", "k"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// token returns an ID token with usual claims and overrides.
func (i *issuer) token(by jose.Signer, claims map[string]any) string {
	all := map[string]any{
		"iss": i.URL, "aud": "curfew", "sub": "00u1vi", "iat": time.Now().Unix(),
		"exp": time.Now().Add(time.Hour).Unix(),
	}
	for k, v := range claims {
		all[k] = v
	}
	text, err := jwt.Signed(by).Claims(all).Serialize()
	if err != nil {
		i.t.Fatal(err)
	}
	return text
}

const signedIn = `
identity: root
people:
  vi: {oidc: [00u1vi], aws: ["arn:aws:iam::111122223333:user/vi"], roles: [viewer]}
  ned: {mail: [ned@example.com], roles: [user]}
`

// TestIDTokens checks that only a valid token of the provider for this service identifies a person,
// by subject or by a verified address.
func TestIDTokens(t *testing.T) {
	i := newIssuer(t)
	s := start(t, signedIn, false, func(o *api.Options) {
		o.PublicURL, o.OIDC = "https://curfew.example.com", api.OIDC{Issuer: i.URL, ClientID: "curfew"}
	})
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." +
		strings.Split(i.token(i.signer, nil),
			".")[1] + "."
	for name, tc := range map[string]struct {
		token  string
		status int
		who    string
	}{
		"a subject": {i.token(i.signer, nil), 200, "vi"},
		"a verified address": {
			i.token(i.signer, map[string]any{"sub": "x", "email": "Ned@example.com", "email_verified": true}), 200,
			"ned",
		},
		"an unverified address": {
			i.token(i.signer, map[string]any{"sub": "x", "email": "ned@example.com"}), 403, "",
		},
		"a person who is unknown": {i.token(i.signer, map[string]any{"sub": "x"}), 403, ""},
		"for another service":     {i.token(i.signer, map[string]any{"aud": "other"}), 401, ""},
		"of another provider":     {i.token(i.signer, map[string]any{"iss": "https://evil.example"}), 401, ""},
		"expired": {
			i.token(i.signer, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}), 401, "",
		},
		"of another key":      {i.token(signerOf(t, other), nil), 401, ""},
		"without a signature": {none, 401, ""},
	} {
		got := s.call("", "GET", "/api/v1/people/me", "", with("Authorization", "Bearer "+tc.token))
		if got.status != tc.status || tc.who != "" && !strings.Contains(got.body, `"name": "`+tc.who+`"`) {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if tc.status == 403 && got.code() != "no_role" {
			t.Errorf("%s: no explanation: %s", name, got.body)
		}
	}
	if got := s.call("", "GET", "/api/v1/keeps", ""); got.status != 401 {
		t.Errorf("without a token: %d", got.status)
	}
}

// TestSignIn runs a browser's sign-in, and attacks on it: another state, the nonce of another
// sign-in, an existing session.
func TestSignIn(t *testing.T) {
	i := newIssuer(t)
	var later time.Duration
	s := start(t, signedIn, false, func(o *api.Options) {
		o.PublicURL, o.OIDC = "https://curfew.example.com", api.OIDC{
			Issuer: i.URL, ClientID: "curfew", ClientSecret: "s",
		}
		o.Now = func() time.Time { return time.Now().Add(later) }
	})
	begin := func() (began *http.Cookie, asked url.Values) {
		got := s.call("", "GET", "/auth/login", "")
		u, err := url.Parse(got.header.Get("Location"))
		if got.status != 302 || err != nil {
			t.Fatalf("login: %d %s", got.status, got.body)
		}
		for _, c := range (&http.Response{Header: got.header}).Cookies() {
			began = c
		}
		i.asked = u.Query()
		i.next = map[string]any{"nonce": i.asked.Get("nonce")}
		return began, i.asked
	}
	began, asked := begin()
	if asked.Get("code_challenge_method") != "S256" || asked.Get("state") == "" || asked.Get("nonce") == "" ||
		asked.Get("redirect_uri") != "https://curfew.example.com/auth/callback" {
		t.Errorf("asked %v", asked)
	}
	if !began.HttpOnly || !began.Secure || began.Path != "/auth/" {
		t.Errorf("cookie %+v", began)
	}
	callback := func(state, code string, cookies ...string) answered {
		return s.call("", "GET", "/auth/callback?state="+url.QueryEscape(state)+"&code="+code, "",
			with("Cookie", strings.Join(cookies, "; ")))
	}
	fixed := "curfew_session=curfew_" + strings.Repeat("ab", 32)
	payload, mac, _ := strings.Cut(began.Value, ".")
	forged, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		t.Fatal(err)
	}
	forged = []byte(strings.Replace(string(forged), asked.Get("state"), "chosen", 1))
	for name, got := range map[string]answered{
		"no cookie":     callback(asked.Get("state"), "good"),
		"another state": callback("guess", "good", began.Name+"="+began.Value),
		"no state":      callback("", "good", began.Name+"="+began.Value),
		"a forged cookie": callback("chosen", "good",
			began.Name+"="+base64.RawURLEncoding.EncodeToString(forged)+"."+mac),
		"not signed": callback(asked.Get("state"), "good", began.Name+"="+payload),
	} {
		if got.status != 403 || !strings.Contains(got.body, "did not begin") ||
			strings.Contains(strings.Join(got.header.Values("Set-Cookie"), ""), "curfew_session=curfew_") {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	// Each of these uses up a sign-in.
	again := func(claims map[string]any, code string) answered {
		began, asked = begin()
		if claims != nil {
			i.next = claims
		} else {
			i.next = map[string]any{"nonce": asked.Get("nonce")}
		}
		return callback(asked.Get("state"), code, began.Name+"="+began.Value, fixed)
	}
	for name, got := range map[string]answered{
		"another code":                 again(nil, "bad"),
		"the nonce of another sign-in": again(map[string]any{"nonce": "of another sign-in"}, "good"),
		"an empty nonce":               again(map[string]any{"nonce": ""}, "good"),
		"no nonce":                     again(map[string]any{}, "good"),
	} {
		if got.status != 403 || got.code() != "not_signed_in" ||
			strings.Contains(strings.Join(got.header.Values("Set-Cookie"), ""), "curfew_session=curfew_") {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	began, asked = begin()
	i.next = map[string]any{"nonce": asked.Get("nonce"), "sub": "stranger"}
	if got := callback(asked.Get("state"), "good", began.Name+"="+began.Value); got.status != 403 ||
		got.code() != "no_role" {
		t.Errorf("a stranger: %d %s", got.status, got.body)
	}
	got := again(nil, "good")
	var session *http.Cookie
	for _, c := range (&http.Response{Header: got.header}).Cookies() {
		if c.Name == "curfew_session" {
			session = c
		}
	}
	if got.status != 303 || session == nil || strings.Contains(fixed, session.Value) {
		t.Fatalf("signed in: %d %v", got.status, got.header)
	}
	if got := callback(asked.Get("state"), "good", began.Name+"="+began.Value); got.status != 403 ||
		!strings.Contains(got.body, "used before") {
		t.Errorf("the same sign-in twice: %d %s", got.status, got.body)
	}
	began, asked = begin()
	later = 10 * time.Minute
	if got := callback(asked.Get("state"), "good", began.Name+"="+began.Value); got.status != 403 ||
		!strings.Contains(got.body, "did not begin") {
		t.Errorf("a sign-in of ten minutes ago: %d %s", got.status, got.body)
	}
	later = 0
	if !session.HttpOnly || !session.Secure || session.SameSite != http.SameSiteLaxMode || session.Path != "/" {
		t.Errorf("session %+v", session)
	}
	if got := s.call("", "GET", "/api/v1/keeps", "", with("Cookie", fixed)); got.status != 401 {
		t.Errorf("a session that an attacker chose: %d", got.status)
	}
	cookie := with("Cookie", "curfew_session="+session.Value)
	if got := s.call("", "GET", "/api/v1/people/me", "", cookie); got.status != 200 ||
		!strings.Contains(got.body, `"name": "vi"`) {
		t.Errorf("the session: %d %s", got.status, got.body)
	}
	if got := s.call("", "POST", "/auth/logout", "{}", cookie, with("Origin", "https://evil.example")); got.status !=
		403 {
		t.Errorf("a foreign page signs a person out: %d", got.status)
	}
	if got := s.call("", "POST", "/auth/logout", "{}", cookie); got.status != 204 {
		t.Errorf("logout: %d", got.status)
	}
	if got := s.call("", "GET", "/api/v1/keeps", "", cookie); got.status != 401 {
		t.Errorf("after the logout: %d", got.status)
	}
}

// newSTS is a fake STS that verifies signatures by signing the same call again.
func newSTS(t *testing.T, user awssdk.Credentials) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		at, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
		if err != nil || !strings.HasPrefix(q.Get("X-Amz-Credential"), user.AccessKeyID+"/") {
			http.Error(w, "<ErrorResponse/>", http.StatusForbidden)
			return
		}
		again, err := url.Parse(presigned(t, "http://"+r.Host, user, r.Header.Get("X-Curfew-Binding"), at))
		if err != nil || again.Query().Get("X-Amz-Signature") != q.Get("X-Amz-Signature") {
			http.Error(w, "<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code></Error></ErrorResponse>",
				http.StatusForbidden)
			return
		}
		fmt.Fprintf(w,
			"<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>arn:aws:iam::111122223333:user/%s</Arn><Account>111122223333</Account></GetCallerIdentityResult></GetCallerIdentityResponse>", user.Source)
	}))
	t.Cleanup(s.Close)
	return s
}

// presigned returns a GetCallerIdentity call signed for a binding.
func presigned(t *testing.T, base string, user awssdk.Credentials, binding string, at time.Time) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		base+"/?Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Expires=900", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Curfew-Binding", binding)
	nothing := sha256.Sum256(nil)
	signed, _, err := v4.NewSigner().PresignHTTP(t.Context(), user, r,
		hex.EncodeToString(nothing[:]), "sts", "us-east-1",
		at)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// TestAWSSignIn checks that a call naming this server and a nonce is accepted once within a minute;
// forged, replayed and foreign proofs are not.
func TestAWSSignIn(t *testing.T) {
	vi := awssdk.Credentials{AccessKeyID: "AKIAVI", SecretAccessKey: "secret", Source: "vi"}
	sts := newSTS(t, vi)
	s := start(t, signedIn+"approvals: {sts_endpoint: \""+sts.URL+"\"}\n", false, func(o *api.Options) {
		o.PublicURL = "https://curfew.example.com"
	})
	bound := func(server, nonce string) string {
		sum := sha256.Sum256([]byte(api.AWSBinding(server, nonce)))
		return hex.EncodeToString(sum[:])
	}
	const here, nonce = "https://curfew.example.com", "0123456789abcdef"
	send := func(signed, nonce string) answered {
		body, err := json.Marshal(map[string]string{"nonce": nonce, "signed": signed})
		if err != nil {
			t.Fatal(err)
		}
		return s.call("", "POST", "/auth/aws", string(body))
	}
	now := time.Now().UTC()
	eve := vi
	eve.SecretAccessKey = "guessed"
	good := presigned(t, sts.URL, vi, bound(here, nonce), now)
	for name, tc := range map[string]struct{ signed, nonce string }{
		"forged":             {presigned(t, sts.URL, eve, bound(here, nonce), now), nonce},
		"for another server": {presigned(t, sts.URL, vi, bound("https://other.example.com", nonce), now), nonce},
		"with another nonce": {good, "fedcba9876543210"},
		"of two minutes ago": {presigned(t, sts.URL, vi, bound(here, nonce), now.Add(-2*time.Minute)), nonce},
		"at another host": {
			presigned(t, "https://sts.us-east-1.amazonaws.com.evil.example", vi, bound(here, nonce), now), nonce,
		},
		"for another action":      {strings.Replace(good, "GetCallerIdentity", "GetSessionToken", 1), nonce},
		"an address of the cloud": {"http://169.254.169.254/latest/meta-data/", nonce},
		"no proof":                {"", nonce},
	} {
		if got := send(tc.signed, tc.nonce); got.status != 401 {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	if got := send(good, "short"); got.status != 422 {
		t.Errorf("a short nonce: %d", got.status)
	}
	got := send(good, nonce)
	var in struct{ Token, Name string }
	if err := json.Unmarshal([]byte(got.body), &in); err != nil || got.status != 200 || in.Name != "vi" {
		t.Fatalf("signed in: %d %s", got.status, got.body)
	}
	if got := s.call("", "GET", "/api/v1/keeps", "", with("Authorization", "Bearer "+in.Token)); got.status != 200 {
		t.Errorf("the token: %d %s", got.status, got.body)
	}
	if got := send(good, nonce); got.status != 401 || !strings.Contains(got.body, "used before") {
		t.Errorf("replayed: %d %s", got.status, got.body)
	}
	if strings.Contains(s.log.String(), "X-Amz-Signature") {
		t.Errorf("the log holds a proof:\n%s", s.log)
	}
	if got := s.call("", "GET", "/auth/login", ""); got.status != 404 {
		t.Errorf("no provider: %d", got.status)
	}
}
