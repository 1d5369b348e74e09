package api_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/curfew-dev/curfew/internal/api"
)

const (
	discovery = "/.well-known/openid-configuration"
	keysPath  = "/keys"
)

// clock is a clock that tests advance.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time          { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) forward(d time.Duration) { c.ahead.Add(int64(d)) }

// signsIn serves an API with a sign-in provider.
func signsIn(t *testing.T, i *issuer, change func(*api.Options)) (*service, *clock) {
	t.Helper()
	c := &clock{}
	return start(t, signedIn, false, func(o *api.Options) {
		o.PublicURL, o.OIDC, o.Now = "https://curfew.example.com", api.OIDC{
			Issuer: i.URL, ClientID: "curfew", ClientSecret: "s",
		}, c.now
		if change != nil {
			change(o)
		}
	}), c
}

// me queries the identity of an ID token.
func (s *service) me(token string) answered {
	return s.call("", "GET", "/api/v1/people/me", "", with("Authorization", "Bearer "+token))
}

// signer signs with a key under an id.
func signer(t *testing.T, algorithm jose.SignatureAlgorithm, key any, id string) jose.Signer {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key},
		(&jose.SignerOptions{}).WithHeader("kid", id))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// raw returns a token with arbitrary claims.
func raw(t *testing.T, by jose.Signer, claims string) string {
	t.Helper()
	signed, err := by.Sign([]byte(claims))
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestChecksIDTokenClaims checks that only exact claims make a signed token valid.
func TestChecksIDTokenClaims(t *testing.T) {
	i := newIssuer(t)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	i.keys = append(i.keys, jose.JSONWebKey{Key: curve.Public(), KeyID: "ec", Algorithm: "ES256"},
		jose.JSONWebKey{Key: small.Public(), KeyID: "small", Algorithm: "RS256"},
		jose.JSONWebKey{Key: i.key.Public(), KeyID: "encrypts", Use: "enc"})
	s, _ := signsIn(t, i, nil)
	now := time.Now().Unix()
	usual := fmt.Sprintf(`"iss":%q,"aud":"curfew","exp":%d,"iat":%d`, i.URL, now+3600, now)
	mail := map[string]any{"sub": "x", "email": "ned@example.com"}
	plus := func(name string, value any) map[string]any {
		all := map[string]any{name: value}
		for k, v := range mail {
			all[k] = v
		}
		return all
	}
	token := func(claims map[string]any) string { return i.token(i.signer, claims) }
	for name, tc := range map[string]struct {
		token  string
		status int
	}{
		"a curve":                              {i.token(signer(t, jose.ES256, curve, "ec"), nil), 200},
		"a small key":                          {i.token(signer(t, jose.RS256, small, "small"), nil), 401},
		"a key for encryption":                 {i.token(signer(t, jose.RS256, i.key, "encrypts"), nil), 401},
		"another algorithm than that of a key": {i.token(signer(t, jose.PS256, i.key, "k"), nil), 401},
		"the client secret as a key": {
			i.token(signer(t, jose.HS256, []byte(strings.Repeat("s", 32)), "k"), nil), 401,
		},
		"for this service and another": {
			token(map[string]any{"aud": []string{"other", "curfew"}, "azp": "curfew"}), 200,
		},
		"given to another service":               {token(map[string]any{"azp": "other"}), 401},
		"for two without the one it is given to": {token(map[string]any{"aud": []string{"curfew", "other"}}), 401},
		"for two and given to the other": {
			token(map[string]any{"aud": []string{"curfew", "other"}, "azp": "other"}), 401,
		},
		"issued in the future":            {token(map[string]any{"iat": now + 3600}), 401},
		"issued by a clock that is ahead": {token(map[string]any{"iat": now + 20}), 200},
		"without when it was issued": {
			raw(t, i.signer, fmt.Sprintf(`{"iss":%q,"aud":"curfew","sub":"00u1vi","exp":%d}`, i.URL, now+3600)), 401,
		},
		"without an end": {
			raw(t, i.signer, fmt.Sprintf(`{"iss":%q,"aud":"curfew","sub":"00u1vi","iat":%d}`, i.URL, now)), 401,
		},
		"not yet":            {token(map[string]any{"nbf": now + 3600}), 401},
		"without a subject":  {raw(t, i.signer, "{"+usual+"}"), 401},
		"a verified address": {token(plus("email_verified", true)), 200},
		"EMAIL_VERIFIED":     {token(plus("EMAIL_VERIFIED", true)), 403},
		"Email_Verified next to email_verified": {
			raw(t, i.signer,
				"{"+usual+`,"sub":"x","email":"ned@example.com","email_verified":false,"Email_Verified":true}`),
			403,
		},
		"an address verified as a text": {token(plus("email_verified", "true")), 401},
		"SUB next to sub":               {raw(t, i.signer, "{"+usual+`,"sub":"x","SUB":"00u1vi"}`), 403},
		"the long s in sub":             {raw(t, i.signer, "{"+usual+`,"sub":"x","\u017fub":"00u1vi"}`), 403},
		"two subjects":                  {raw(t, i.signer, "{"+usual+`,"sub":"x","sub":"00u1vi"}`), 401},
		"ISS of the provider": {
			raw(t, i.signer, strings.Replace("{"+usual+`,"sub":"00u1vi"}`, `"iss"`, `"ISS"`, 1)), 401,
		},
		"AUD of this service": {
			raw(t, i.signer, strings.Replace("{"+usual+`,"sub":"00u1vi"}`, `"aud"`, `"Aud"`, 1)), 401,
		},
		"the issuer with a slash": {token(map[string]any{"iss": i.URL + "/"}), 401},
	} {
		if got := s.me(tc.token); got.status != tc.status {
			t.Errorf("%s: %d %s, want %d", name, got.status, got.body, tc.status)
		}
	}
}

// TestCachesProviderMetadata checks that metadata is fetched once for many callers, not again for
// each unknown key ID, and that known callers do not wait for it.
func TestCachesProviderMetadata(t *testing.T) {
	i := newIssuer(t)
	s, c := signsIn(t, i, nil)
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			if got := s.me(i.token(i.signer, nil)); got.status != 200 {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
	wg.Wait()
	if i.count(discovery) != 1 || i.count(keysPath) != 1 {
		t.Errorf("for 30 callers: %d and %d fetches", i.count(discovery), i.count(keysPath))
	}
	stranger := func(n int) {
		t.Helper()
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for k := range n {
			wg.Go(func() {
				if got := s.me(i.token(signer(t, jose.RS256, key, fmt.Sprint("random", k)), nil)); got.status != 401 {
					t.Errorf("%d %s", got.status, got.body)
				}
			})
		}
		wg.Wait()
	}
	stranger(40)
	if n := i.count(keysPath); n != 1 {
		t.Errorf("unknown keys within 20s of a fetch: %d fetches", n)
	}
	c.forward(21 * time.Second)
	stranger(40)
	if n := i.count(keysPath); n != 2 {
		t.Errorf("unknown keys after 20s: %d fetches, want one more", n)
	}

	// While the provider hangs, a stranger waits for its keys, but a known caller does not.
	c.forward(21 * time.Second)
	held, release := make(chan struct{}), make(chan struct{})
	i.set(func() {
		i.answers[discovery] = func(w http.ResponseWriter, _ *http.Request) {
			close(held)
			<-release
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	wg.Go(func() { stranger(1) })
	<-held
	for range 3 {
		if got := s.me(i.token(i.signer, map[string]any{"jti": time.Now().UnixNano()})); got.status != 200 {
			t.Errorf("a token of a known key: %d %s", got.status, got.body)
		}
		if got := s.call(owner, "GET", "/api/v1/keeps", ""); got.status != 200 {
			t.Errorf("the owner: %d", got.status)
		}
	}
	i.set(func() { delete(i.answers, discovery) })
	close(release)
	wg.Wait()
}

// TestWithdrawnKeys checks that a withdrawn key is valid for at most ten minutes, and no key longer
// than an hour without the provider.
func TestWithdrawnKeys(t *testing.T) {
	i := newIssuer(t)
	s, c := signsIn(t, i, nil)
	token := func() string { return i.token(i.signer, map[string]any{"exp": time.Now().Add(24 * time.Hour).Unix()}) }
	if got := s.me(token()); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	old := i.keys
	i.set(func() { i.keys = []jose.JSONWebKey{{Key: other.Public(), KeyID: "n", Algorithm: "RS256", Use: "sig"}} })
	c.forward(10*time.Minute + time.Second)
	if got := s.me(token()); got.status != 401 {
		t.Errorf("a key that was withdrawn: %d", got.status)
	}
	i.set(func() { i.keys = old })
	c.forward(10*time.Minute + time.Second)
	if got := s.me(token()); got.status != 200 {
		t.Errorf("a key that is back: %d", got.status)
	}
	i.set(func() {
		i.answers[discovery] = func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	c.forward(30 * time.Minute)
	if got := s.me(token()); got.status != 200 {
		t.Errorf("30m without the provider: %d %s", got.status, got.body)
	}
	c.forward(31 * time.Minute)
	if got := s.me(token()); got.status != 401 {
		t.Errorf("61m without the provider: %d", got.status)
	}
}

// TestHostileProvider checks that responses are read up to 1 MiB, never lead to another host, and
// must be consistent.
func TestHostileProvider(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	text := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }
	}
	for name, hostile := range map[string]func(*issuer) (string, http.HandlerFunc){
		"a document without end": func(*issuer) (string, http.HandlerFunc) {
			return discovery, func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					if _, err := w.Write([]byte(strings.Repeat(" ", 1<<16))); err != nil {
						return
					}
				}
			}
		},
		"keys of 2 MiB": func(*issuer) (string, http.HandlerFunc) {
			return keysPath, text(`{"keys":[]}` + strings.Repeat(" ", 2<<20))
		},
		"a redirect": func(*issuer) (string, http.HandlerFunc) {
			return discovery, func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, other.URL, http.StatusFound)
			}
		},
		"keys by a redirect": func(*issuer) (string, http.HandlerFunc) {
			return keysPath, func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, other.URL, http.StatusFound)
			}
		},
		"another issuer": func(i *issuer) (string, http.HandlerFunc) {
			return discovery, text(
				fmt.Sprintf(
					`{"issuer":"https://evil.example","authorization_endpoint":"%[1]s/a","token_endpoint":"%[1]s/t","jwks_uri":"%[1]s/keys"}`, i.URL))
		},
		"names in other letters": func(i *issuer) (string, http.HandlerFunc) {
			return discovery, text(
				fmt.Sprintf(
					`{"issuer":%[1]q,"authorization_endpoint":"%[2]s/a","token_endpoint":"%[2]s/t","JWKS_URI":"%[2]s/keys"}`, i.URL,
					i.URL))
		},
		"metadata of the cloud": func(i *issuer) (string, http.HandlerFunc) {
			return discovery, text(
				fmt.Sprintf(
					`{"issuer":%[1]q,"authorization_endpoint":"%[2]s/a","token_endpoint":"%[2]s/t","jwks_uri":"http://169.254.169.254/latest"}`, i.URL, i.URL))
		},
		"no key that counts": func(*issuer) (string, http.HandlerFunc) {
			return keysPath, text(`{"keys":[{"kty":"oct","k":"c2VjcmV0","kid":"k"}]}`)
		},
		"no JSON": func(*issuer) (string, http.HandlerFunc) { return keysPath, text("<html>") },
	} {
		t.Run(name, func(t *testing.T) {
			i := newIssuer(t)
			path, answer := hostile(i)
			i.answers[path] = answer
			s, _ := signsIn(t, i, nil)
			if got := s.me(i.token(i.signer, nil)); got.status != 401 {
				t.Errorf("a token: %d", got.status)
			}
			if got := s.call("", "GET", "/auth/login", ""); got.status != 424 {
				t.Errorf("a sign-in: %d", got.status)
			}
			if n := i.count(path); n > 1 {
				t.Errorf("it was asked %d times", n)
			}
		})
	}
	if elsewhere.Load() > 0 {
		t.Error("a redirect was followed")
	}
}

// TestLimitsUnknownCallersFirst checks that a flood of invalid tokens is limited by address before
// any lookup, without delaying known callers, or new tokens for long, and with few reads of the
// state.
func TestLimitsUnknownCallersFirst(t *testing.T) {
	s := start(t, settings, true, func(o *api.Options) { o.Rate, o.Burst = 20, 60 })
	if got := s.call("vi", "GET", "/api/v1/keeps", ""); got.status != 200 {
		t.Fatal(got.status)
	}
	began := time.Now()
	var wg sync.WaitGroup
	var lookups, late atomic.Int64
	stop := make(chan struct{})
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				guess := make([]byte, 32)
				_, _ = rand.Read(guess)
				switch got := s.call("", "GET", "/api/v1/keeps", "",
					with("Authorization", "Bearer curfew_"+hex.EncodeToString(guess))); got.status {
				case 401:
					lookups.Add(1)
				case 429:
					late.Add(1)
				default:
					t.Errorf("a guess: %d %s", got.status, got.body)
				}
			}
		})
	}
	for late.Load() < 200 {
		time.Sleep(time.Millisecond)
	}
	for range 5 {
		for _, who := range []string{"vi", owner} {
			if got := s.call(who, "GET", "/api/v1/keeps", ""); got.status != 200 {
				t.Errorf("%s in the flood: %d %s", who, got.status, got.body)
			}
		}
	}
	fresh := with("Authorization", "Bearer "+s.token("ned", "user"))
	for got := (answered{}); got.status != 200; {
		if got = s.call("", "GET", "/api/v1/keeps", "", fresh); got.status != 200 && got.status != 429 {
			t.Fatalf("a new token: %d %s", got.status, got.body)
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatal("a new token is not taken in the flood")
		}
	}
	close(stop)
	wg.Wait()
	// Two searches a second, with a burst of ten.
	if most := 12 + 2*int64(time.Since(began)/time.Second+1); lookups.Load() > most {
		t.Errorf("%d guesses were looked up, at most %d", lookups.Load(), most)
	}
}
