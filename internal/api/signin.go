package api

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	exact "github.com/go-jose/go-jose/v4/json"
	"golang.org/x/oauth2"

	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/store"
)

// Cookies of a browser session and of a sign-in in progress.
const (
	cookieName = "curfew_session"
	stateName  = "curfew_sign_in"
)

// Limits of sign-ins.
const (
	sessionFor = 8 * time.Hour
	signInFor  = 10 * time.Minute
	proofAge   = time.Minute
	minNonce   = 16
	maxNonce   = 128
	// signInTimeout bounds the response to a browser that returns from the provider.
	signInTimeout = 15 * time.Second
)

// callerKey identifies a caller by the proof of identity.
func callerKey(c *ops.Call) string {
	return string(c.Who.Proof.Kind) + " " + c.Who.Proof.Subject + " " + c.Who.Name
}

func unauthenticated(detail string) *problem {
	return problemOf(http.StatusUnauthorized, "unauthenticated", detail, "send a token of `curfew token create`, or "+
		"the owner token of the data directory, as Authorization: Bearer TOKEN")
}

// challenge is the WWW-Authenticate header of calls without a credential.
const challenge = `Bearer realm="curfew"`

// bearer returns the credential in the Authorization header; ok is false if it has another form.
func bearer(r *http.Request) (text string, ok bool) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return "", true
	}
	scheme, text, _ := strings.Cut(header, " ")
	return text, strings.EqualFold(scheme, "bearer") && text != ""
}

// credential returns the credential of a request, or a problem if it is malformed. A header takes
// precedence over a cookie.
func credential(r *http.Request) (string, *problem) {
	text, ok := bearer(r)
	if !ok {
		return "", unauthenticated("the Authorization header is no bearer token")
	}
	if text != "" {
		if strings.HasPrefix(text, browserPrefix) {
			return "", unauthenticated("the session of a browser is no token")
		}
		return text, nil
	}
	if cookie, err := r.Cookie(cookieName); err == nil && cookie.Value != "" &&
		strings.HasPrefix(cookie.Value, identity.TokenPrefix) && !identity.IsOwnerToken(cookie.Value) {
		if rest, ok := strings.CutPrefix(cookie.Value, keptPrefix); ok {
			return identity.TokenPrefix + rest, nil
		}
		return cookie.Value, nil
	}
	return "", unauthenticated("the call has no credential")
}

// authenticate determines the caller of a request. Until the caller is known, the request is
// limited by its address, before any lookup or verification; a caller with a known credential is
// not affected by others at that address.
func (s *Server) authenticate(w http.ResponseWriter, r *http.Request) (*ops.Call, *problem) {
	ctx := r.Context()
	stranger := func(p *problem) (*ops.Call, *problem) {
		if late := s.limitsOf(r).allow(w, network(r)); late != nil {
			return nil, late
		}
		return nil, p
	}
	text, p := credential(r)
	if p != nil {
		return stranger(p)
	}
	session, isBrowser := strings.CutPrefix(text, browserPrefix)
	var identify func(*runtime.Request, config.Config) (approval.Person, error)
	owns := false
	switch {
	case isBrowser:
		if owns = s.Owner != nil && s.browsers.has(session, s.Now()); !owns {
			return stranger(unauthenticated("the session of the browser has ended"))
		}
		identify = owner
	case identity.IsOwnerToken(text):
		if owns = s.Owner.Is(text); !owns {
			return stranger(unauthenticated("it is not the owner token of this service"))
		}
		identify = owner
	case strings.Count(text, ".") == 2 && s.OIDC.Issuer != "":
		c, p := s.bearerIDToken(ctx, w, r, text)
		if p != nil {
			return nil, p
		}
		identify = func(req *runtime.Request, cfg config.Config) (approval.Person, error) {
			return s.signedIn(req, cfg, c), nil
		}
	default:
		v, p := s.tokenOf(ctx, w, r, text)
		if p != nil {
			return nil, p
		}
		identify = func(req *runtime.Request, cfg config.Config) (approval.Person, error) {
			return identity.PersonOfToken(req, cfg, v), nil
		}
	}
	req := s.Process.Request()
	cfg, _, err := identity.PeopleInForce(ctx, req)
	if err != nil && owns { // the owner may do everything under any shared settings
		cfg, err = req.Config()
	}
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	who, err := identify(req, cfg)
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	req.Caller = runtime.ServedCaller(who)
	if owns {
		return &ops.Call{Request: req, Who: who, Owner: true}, nil
	}
	c := &ops.Call{Request: req, Who: who, Roles: serviceRoles(who.Roles)}
	if len(c.Roles) == 0 {
		return c, problemOf(http.StatusForbidden, "no_role", who.Name+" ("+who.Proof.String()+") has no role here",
			"an admin names the identity and its roles in the people section of the configuration")
	}
	return c, nil
}

// tokenOf returns the token of the state for a text. An unknown one is looked up together with all
// others, at a limited rate.
func (s *Server) tokenOf(ctx context.Context, w http.ResponseWriter, r *http.Request, text string) (store.Token,
	*problem) {
	none := unauthenticated("the token is unknown, expired or revoked")
	hash, _, whole := identity.HashToken(text)
	if !whole || !s.tokens.has(hash) {
		if late := s.limitsOf(r).allow(w, network(r)); late != nil {
			return store.Token{}, late
		}
		if !whole {
			return store.Token{}, none
		}
		if found, p := s.findTokens(ctx, w, r, hash); p != nil || !found {
			return store.Token{}, cmp.Or(p, none)
		}
	}
	now := s.Process.Now().UTC()
	v, err := s.State.Callers().Token(ctx, hash, now)
	switch {
	case err == nil && v.Valid(now):
		return v, nil
	case err == nil || errors.Is(err, store.ErrNoToken):
		s.tokens.forget(hash)
		return store.Token{}, none
	}
	return store.Token{}, s.failed(ctx, err)
}

// limitsOf returns the limits of unauthenticated callers. A freeze has its own, so that a flood of
// other calls from the same address does not block it.
func (s *Server) limitsOf(r *http.Request) *limits {
	if s.urgent(r) {
		return s.freezes
	}
	return s.strangers
}

// findTokens reads the valid tokens, and reports whether a given one is valid.
func (s *Server) findTokens(ctx context.Context, w http.ResponseWriter, r *http.Request, hash string) (bool,
	*problem) {
	if !s.urgent(r) && !s.searches.Allow() { // a freeze is limited by its address already
		return false, tooMany(w, time.Second)
	}
	turn := s.tokens.turn()
	all, err := s.State.Callers().Valid(ctx, s.Process.Now().UTC())
	if err != nil {
		return false, s.failed(ctx, err)
	}
	s.tokens.set(turn, all)
	return slices.Contains(all, hash), nil
}

// tokenSet holds the hashes of the tokens that were valid at the last reading.
type tokenSet struct {
	mu sync.Mutex
	of map[string]bool
	// turns counts the readings; newest is the one that of comes from.
	turns, newest int
}

// turn begins a reading. An earlier one does not replace the result of a later one.
func (t *tokenSet) turn() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turns++
	return t.turns
}

func (t *tokenSet) has(hash string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[hash]
}

func (t *tokenSet) set(turn int, all []string) {
	of := make(map[string]bool, len(all))
	for _, hash := range all {
		of[hash] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if turn > t.newest {
		t.of, t.newest = of, turn
	}
}

func (t *tokenSet) forget(hash string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, hash)
}

// serviceRoles returns roles as known to operations: any other role decides requests, like an
// approver.
func serviceRoles(roles []string) []string {
	out := make([]string, 0, len(roles))
	for _, held := range roles {
		if role, team := approval.SplitRole(held); !slices.Contains(approval.ServiceRoles, role) {
			held = approval.RoleApprover
			if team != "" {
				held += "@" + team
			}
		}
		out = append(out, held)
	}
	return out
}

// verified caches the hashes of recently verified ID tokens.
type verified struct {
	mu sync.Mutex
	of map[[sha256.Size]byte]verifiedToken
}

type verifiedToken struct {
	claims claims
	at     time.Time
}

const (
	// verifiedLifetime is the lifetime of the cache entry, maxVerified the number of entries.
	verifiedLifetime = time.Minute
	maxVerified      = 1_000
)

func (v *verified) get(raw string, now time.Time) (claims, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	one, ok := v.of[sha256.Sum256([]byte(raw))]
	return one.claims, ok && now.Sub(one.at) < verifiedLifetime
}

func (v *verified) put(raw string, c claims, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.of == nil || len(v.of) >= maxVerified {
		v.of = map[[sha256.Size]byte]verifiedToken{}
	}
	v.of[sha256.Sum256([]byte(raw))] = verifiedToken{c, now}
}

// bearerIDToken returns the claims of an ID token sent with a call. It was issued in a sign-in
// elsewhere, so that its nonce is unknown here.
func (s *Server) bearerIDToken(ctx context.Context, w http.ResponseWriter, r *http.Request, raw string) (claims,
	*problem) {
	now := s.Now()
	if c, ok := s.verified.get(raw, now); ok && s.signIn.check(c) == nil {
		return c, nil
	}
	if late := s.strangers.allow(w, network(r)); late != nil {
		return claims{}, late
	}
	c, err := s.signIn.verify(ctx, raw)
	if err != nil {
		s.Log.DebugContext(ctx, "an ID token does not count", "error", err)
		return claims{}, unauthenticated("the sign-in provider does not vouch for the token, or it expired")
	}
	s.verified.put(raw, c, now)
	return c, nil
}

// signInIDToken returns the claims of the ID token that completes a sign-in; it must have the
// sign-in's nonce.
func (s *Server) signInIDToken(ctx context.Context, raw, nonce string) (claims, error) {
	c, err := s.signIn.verify(ctx, raw)
	if err != nil {
		return claims{}, err
	}
	if len(nonce) < minNonce || subtle.ConstantTimeCompare([]byte(nonce), []byte(c.Nonce)) != 1 {
		return claims{}, errors.New("the token is for another sign-in")
	}
	return c, nil
}

// signedIn returns the person named by claims. An address is used only if the provider has verified
// it.
func (s *Server) signedIn(req *runtime.Request, cfg config.Config, c claims) approval.Person {
	mail := c.Email
	if !c.EmailVerified {
		mail = ""
	}
	return identity.PersonOfSignIn(req, cfg, s.OIDC.Issuer, c.Subject, mail)
}

// registerSignIn adds the sign-in endpoints for browsers and AWS identities. They are called
// without a session and thus not part of the API.
func (s *Server) registerSignIn(mux *http.ServeMux) {
	mux.HandleFunc("GET /auth/login", s.login)
	mux.HandleFunc("GET /auth/callback", s.callback)
	mux.HandleFunc("POST /auth/logout", s.logout)
	mux.HandleFunc("POST /auth/aws", s.awsSignIn)
}

// signingIn is the state of a sign-in in progress, which the callback must return. It is a separate
// cookie, so that a sign-in begun in another browser cannot complete in this one.
type signingIn struct {
	State, Nonce, Verifier string
	// Ends is the expiry in Unix seconds.
	Ends int64
}

// stateKey returns the key that signs cookies of sign-ins in progress. It derives from the client
// secret, so that all processes of one sign-in client share it; without a secret each process has
// its own, and a sign-in must complete at the process where it began.
func stateKey(o OIDC) []byte {
	if o.ClientSecret == "" {
		return []byte(random())
	}
	return sum(o.ClientSecret, "curfew.sign-in/v1")
}

func sum(key, text string) []byte {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// seal encodes a sign-in in progress as a cookie.
func (s *Server) seal(in signingIn) (string, error) {
	text, err := json.Marshal(in)
	if err != nil {
		return "", err
	}
	payload := base64.RawURLEncoding.EncodeToString(text)
	return payload + "." + base64.RawURLEncoding.EncodeToString(sum(string(s.stateKey), payload)), nil
}

// unseal decodes a cookie that this service signed and that has not expired.
func (s *Server) unseal(cookie string) (signingIn, bool) {
	var in signingIn
	payload, mac, _ := strings.Cut(cookie, ".")
	signed, err := base64.RawURLEncoding.DecodeString(mac)
	if err != nil || !hmac.Equal(signed, sum(string(s.stateKey), payload)) {
		return in, false
	}
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || json.Unmarshal(text, &in) != nil {
		return in, false
	}
	return in, in.State != "" && in.Nonce != "" && in.Verifier != "" && s.Now().Unix() < in.Ends
}

func random() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

func (s *Server) cookie(name, value string, length time.Duration) *http.Cookie {
	// Lax, because warnings, mails and the provider link here from other sites. Changes require
	// POST with a form token.
	c := &http.Cookie{
		Name: name, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: s.public != nil && s.public.Scheme == "https", MaxAge: int(length / time.Second),
	}
	if name == stateName {
		c.Path = "/auth/"
	}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	if s.OIDC.Issuer == "" || s.public == nil {
		writeProblem(w, problemOf(http.StatusNotFound, "no_provider", "no sign-in provider is configured",
			"create a token: curfew token create"))
		return
	}
	m, err := s.signIn.metadata(r.Context(), nil)
	if err != nil {
		s.Log.ErrorContext(r.Context(), "the sign-in provider cannot be asked", "error", err)
		writeProblem(w, problemOf(http.StatusFailedDependency, "no_provider",
			"the sign-in provider cannot be asked", ""))
		return
	}
	in := signingIn{random(), random(), oauth2.GenerateVerifier(), s.Now().Add(signInFor).Unix()}
	cookie, err := s.seal(in)
	if err != nil {
		writeProblem(w, s.failed(r.Context(), err))
		return
	}
	http.SetCookie(w, s.cookie(stateName, cookie, signInFor))
	o := s.signIn.config(m, s.PublicURL)
	http.Redirect(w, r, o.AuthCodeURL(in.State, oauth2.SetAuthURLParam("nonce", in.Nonce),
		oauth2.S256ChallengeOption(in.Verifier)), http.StatusFound)
}

func (s *Server) callback(w http.ResponseWriter, r *http.Request) {
	refuse := func(why string) {
		http.SetCookie(w, s.cookie(stateName, "", 0))
		writeProblem(w, problemOf(http.StatusForbidden, "not_signed_in", why, "begin again at /auth/login"))
	}
	var began signingIn
	ours := false
	c, err := r.Cookie(stateName)
	if err == nil && s.OIDC.Issuer != "" {
		began, ours = s.unseal(c.Value)
	}
	q := r.URL.Query()
	if !ours || subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(began.State)) != 1 {
		refuse("this browser did not begin the sign-in")
		return
	}
	ctx, end := context.WithTimeout(r.Context(), signInTimeout)
	defer end()
	// It is used up before querying the provider, whatever the result.
	hash, now := sha256.Sum256([]byte(c.Value)), s.Now().UTC()
	switch err := s.State.Callers().UseProof(ctx, hex.EncodeToString(hash[:]), now, now.Add(-time.Hour)); {
	case errors.Is(err, store.ErrUsedProof):
		refuse("the sign-in was used before")
		return
	case err != nil:
		writeProblem(w, s.failed(ctx, err))
		return
	}
	m, err := s.signIn.metadata(ctx, nil)
	if err != nil {
		refuse("the sign-in provider cannot be asked")
		return
	}
	o := s.signIn.config(m, s.PublicURL)
	answered, err := o.Exchange(s.signIn.with(ctx), q.Get("code"), oauth2.VerifierOption(began.Verifier))
	if err != nil {
		refuse("the sign-in provider gave no identity")
		return
	}
	raw, _ := answered.Extra("id_token").(string)
	named, err := s.signInIDToken(ctx, raw, began.Nonce)
	if err != nil {
		s.Log.WarnContext(ctx, "a sign-in does not count", "error", err)
		refuse("the sign-in provider gave no identity for this sign-in")
		return
	}
	req := s.Process.Request()
	cfg, _, err := identity.PeopleInForce(ctx, req)
	if err != nil {
		writeProblem(w, s.failed(ctx, err))
		return
	}
	who := s.signedIn(req, cfg, named)
	secret, refusal := s.session(ctx, req, who, sessionFor)
	if refusal != nil {
		writeProblem(w, refusal)
		return
	}
	// Always a new session: an existing one of the browser is not kept.
	http.SetCookie(w, s.cookie(stateName, "", 0))
	http.SetCookie(w, s.cookie(cookieName, secret, sessionFor))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// session creates a short-lived token for a person who has signed in.
func (s *Server) session(ctx context.Context, req *runtime.Request, who approval.Person, length time.Duration) (string,
	*problem) {
	if len(who.Roles) == 0 {
		return "", problemOf(http.StatusForbidden, "no_role", who.Name+" ("+who.Proof.String()+") has no role here",
			"an admin names the identity and its roles in the people section of the configuration")
	}
	secret, err := identity.StartSession(ctx, req, who, length)
	if err != nil {
		return "", s.failed(ctx, err)
	}
	return secret, nil
}

// logout ends the session of a browser.
func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	if p := s.endBrowser(w, r); p != nil {
		writeProblem(w, p)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// endBrowser ends the session of a browser, if it has one.
func (s *Server) endBrowser(w http.ResponseWriter, r *http.Request) *problem {
	if c, err := r.Cookie(cookieName); err == nil {
		if session, isBrowser := strings.CutPrefix(c.Value, browserPrefix); isBrowser {
			s.browsers.take(session, s.Now())
		}
		if err := identity.EndSession(r.Context(), s.Process.Request(), c.Value); err != nil {
			return s.failed(r.Context(), err)
		}
	}
	http.SetCookie(w, s.cookie(cookieName, "", 0))
	return nil
}

// AWSBinding returns the text signed by a caller to sign in with AWS credentials: the server's
// public URL and the caller's nonce.
func AWSBinding(publicURL, nonce string) string {
	return "curfew.api/v1\n" + strings.TrimSuffix(publicURL, "/") + "\n" + nonce
}

// awsSignIn accepts a presigned GetCallerIdentity call that names this server and a nonce, once and
// within a minute, and returns a short-lived token.
func (s *Server) awsSignIn(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	if mime, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); mime != "application/json" {
		writeProblem(w, problemOf(http.StatusUnsupportedMediaType, "invalid",
			"the body is JSON: {\"nonce\": …, \"signed\": …}", ""))
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		writeProblem(w, s.failed(ctx, err))
		return
	}
	var in map[string]string
	// This decoder rejects duplicate names, and does not accept NONCE for nonce.
	if err := exact.Unmarshal(body, &in); err != nil || len(in) != 2 || len(in["nonce"]) < minNonce ||
		len(in["nonce"]) > maxNonce {
		writeProblem(w, problemOf(http.StatusUnprocessableEntity, "invalid",
			"the body is {\"nonce\": …, \"signed\": …} with a nonce of 16 to 128 characters", ""))
		return
	}
	req := s.Process.Request()
	who, err := identity.SignedCall(ctx, req, in["signed"], AWSBinding(s.name(r), in["nonce"]), proofAge)
	if err != nil {
		p := s.failed(ctx, err)
		if p.Status == http.StatusForbidden {
			p.Status, p.Title = http.StatusUnauthorized, http.StatusText(http.StatusUnauthorized)
		}
		writeProblem(w, p)
		return
	}
	secret, p := s.session(ctx, req, who, time.Hour)
	if p != nil {
		writeProblem(w, p)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"token": secret, "name": who.Name, "expires_in": int(time.Hour / time.Second),
	})
}

// name returns the URL that callers sign for this server.
func (s *Server) name(r *http.Request) string {
	if s.public != nil {
		return s.public.Scheme + "://" + s.public.Host
	}
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}
