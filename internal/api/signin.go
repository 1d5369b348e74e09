package api

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/httpclient"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/store"
)

// Cookies: the session of a browser, and what a sign-in under way has to come back with.
const (
	cookieName = "curfew_session"
	stateName  = "curfew_sign_in"
)

// Bounds of sign-ins.
const (
	sessionFor = 8 * time.Hour
	signInFor  = 10 * time.Minute
	proofAge   = time.Minute
	minNonce   = 16
)

// callerKey identifies a caller by their proof of identity.
func callerKey(c *ops.Call) string {
	return string(c.Who.Proof.Kind) + " " + c.Who.Proof.Subject + " " + c.Who.Name
}

func unauthenticated(detail string) *problem {
	return problemOf(http.StatusUnauthorized, "unauthenticated", detail, "send a token of `curfew token create` as Authorization: Bearer TOKEN")
}

// authenticate finds out who makes a request.
func (s *server) authenticate(r *http.Request) (*ops.Call, *problem) {
	ctx := r.Context()
	req := s.Process.Request()
	cfg, _, err := identity.PeopleInForce(ctx, req)
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	st := s.State
	header := r.Header.Get("Authorization")
	cookie, noCookie := r.Cookie(cookieName)
	var who approval.Person
	switch scheme, text, _ := strings.Cut(header, " "); {
	case header != "" && !strings.EqualFold(scheme, "bearer"):
		return nil, unauthenticated("the Authorization header is no bearer token")
	case header != "" && strings.Count(text, ".") == 2 && s.OIDC.Issuer != "":
		if who, err = s.idToken(ctx, req, cfg, text, ""); err != nil {
			return nil, unauthenticated("the sign-in provider does not vouch for the token, or it expired")
		}
	case header != "":
		if who, err = s.token(ctx, req, cfg, st, text); err != nil {
			return nil, s.untaken(ctx, err)
		}
	case noCookie == nil:
		if who, err = s.token(ctx, req, cfg, st, cookie.Value); err != nil {
			return nil, s.untaken(ctx, err)
		}
	default:
		return s.localUser(r, req, cfg, st)
	}
	req.Caller = runtime.ServedCaller(who)
	c := &ops.Call{Request: req, Who: who, Roles: serviceRoles(who.Roles)}
	if len(c.Roles) == 0 {
		return c, problemOf(http.StatusForbidden, "no_role", who.Name+" ("+who.Proof.String()+") has no role here", "an admin names the identity and its roles in the people section of the configuration")
	}
	return c, nil
}

func (s *server) untaken(ctx context.Context, err error) *problem {
	if errors.Is(err, store.ErrNoToken) {
		return unauthenticated("the token is unknown, expired or revoked")
	}
	return s.failed(ctx, err)
}

// token is who a token speaks for.
func (s *server) token(ctx context.Context, req *runtime.Request, cfg config.Config, st *store.Store, text string) (approval.Person, error) {
	hash, _, ok := identity.HashToken(text)
	if !ok {
		return approval.Person{}, store.ErrNoToken
	}
	now := req.Now().UTC()
	v, err := st.Callers().Token(ctx, hash, now)
	if err == nil && !v.Valid(now) {
		err = store.ErrNoToken
	}
	if err != nil {
		return approval.Person{}, err
	}
	return identity.PersonOfToken(req, cfg, v), nil
}

// localUser is the user of this process, where no one has to sign in.
func (s *server) localUser(r *http.Request, req *runtime.Request, cfg config.Config, st *store.Store) (*ops.Call, *problem) {
	if s.OIDC.Issuer != "" || s.public != nil || !fromThisMachine(r) {
		return nil, unauthenticated("this server takes only callers who sign in")
	}
	all, err := st.Callers().Tokens(r.Context())
	if err != nil {
		return nil, s.failed(r.Context(), err)
	}
	now := req.Now().UTC()
	if slices.ContainsFunc(all, func(v store.Token) bool { return v.Valid(now) }) {
		return nil, unauthenticated("this server has tokens, so every call needs one")
	}
	who, err := req.Declared(cfg)
	if err != nil {
		return nil, s.failed(r.Context(), err)
	}
	req.Caller = runtime.ServedCaller(who)
	return &ops.Call{Request: req, Who: who, Local: true}, nil
}

// serviceRoles are roles as operations know them: any other role decides requests, as an
// approver does.
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

// provider is the sign-in provider, which is asked for its keys on first use.
type provider struct {
	mu    sync.Mutex
	known *oidc.Provider
	// client is made with the first call.
	client *httpclient.Client
}

// providerTimeout bounds a call to the sign-in provider with its repetitions.
const providerTimeout = 10 * time.Second

// with returns a context in which the sign-in provider's libraries use the one client. [server.open]
// calls it first.
func (p *provider) with(ctx context.Context) context.Context {
	if p.client == nil {
		p.client = httpclient.New(httpclient.Options{TotalTimeout: providerTimeout, WholeBody: true, FollowRedirects: true})
	}
	return oidc.ClientContext(ctx, p.client.Standard())
}

// open asks the provider for its keys, once.
func (s *server) open(ctx context.Context) (*oidc.Provider, error) {
	s.signIn.mu.Lock()
	defer s.signIn.mu.Unlock()
	if s.signIn.known != nil {
		return s.signIn.known, nil
	}
	// The provider keeps the client of its context for later keys; the deadline is the client's.
	p, err := oidc.NewProvider(s.signIn.with(context.WithoutCancel(ctx)), s.OIDC.Issuer)
	if err == nil {
		s.signIn.known = p
	}
	return p, err
}

// idToken is whom an ID token of the sign-in provider names: signed by the provider, for this
// service, not expired, and with the nonce where one is given.
func (s *server) idToken(ctx context.Context, req *runtime.Request, cfg config.Config, raw, nonce string) (approval.Person, error) {
	p, err := s.open(ctx)
	if err != nil {
		return approval.Person{}, err
	}
	token, err := p.Verifier(&oidc.Config{ClientID: s.OIDC.ClientID, Now: req.Now}).Verify(ctx, raw)
	if err != nil {
		return approval.Person{}, err
	}
	if nonce != "" && subtle.ConstantTimeCompare([]byte(nonce), []byte(token.Nonce)) != 1 {
		return approval.Person{}, errors.New("the token is for another sign-in")
	}
	var claims struct {
		Email    string `json:"email"`
		Verified bool   `json:"email_verified"`
	}
	if err := token.Claims(&claims); err != nil {
		return approval.Person{}, err
	}
	if !claims.Verified {
		claims.Email = ""
	}
	return identity.PersonOfSignIn(req, cfg, s.OIDC.Issuer, token.Subject, claims.Email), nil
}

// registerSignIn adds what browsers and AWS identities sign in by. None of it is called with
// a session, so it is no part of the API.
func (s *server) registerSignIn(mux *http.ServeMux) {
	mux.HandleFunc("GET /auth/login", s.login)
	mux.HandleFunc("GET /auth/callback", s.callback)
	mux.HandleFunc("POST /auth/logout", s.logout)
	mux.HandleFunc("POST /auth/aws", s.awsSignIn)
}

// signingIn is what a sign-in under way has to come back with. It is a cookie of its own,
// so that a sign-in that another browser began does not end in this one.
type signingIn struct{ State, Nonce, Verifier string }

func (s *server) oauth(p *oidc.Provider) oauth2.Config {
	return oauth2.Config{ClientID: s.OIDC.ClientID, ClientSecret: s.OIDC.ClientSecret, Endpoint: p.Endpoint(),
		RedirectURL: strings.TrimSuffix(s.PublicURL, "/") + "/auth/callback", Scopes: []string{oidc.ScopeOpenID, "email", "profile"}}
}

func random() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

func (s *server) cookie(name, value string, length time.Duration) *http.Cookie {
	c := &http.Cookie{Name: name, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: s.public != nil && s.public.Scheme == "https", MaxAge: int(length / time.Second)}
	if name == stateName { // the provider leads back from its own site
		c.Path, c.SameSite = "/auth/", http.SameSiteLaxMode
	}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

func (s *server) login(w http.ResponseWriter, r *http.Request) {
	if s.OIDC.Issuer == "" || s.public == nil {
		writeProblem(w, problemOf(http.StatusNotFound, "no_provider", "no sign-in provider is configured", "create a token: curfew token create"))
		return
	}
	p, err := s.open(r.Context())
	if err != nil {
		s.Log.ErrorContext(r.Context(), "the sign-in provider cannot be asked", "error", err)
		writeProblem(w, problemOf(http.StatusFailedDependency, "no_provider", "the sign-in provider cannot be asked", ""))
		return
	}
	now := signingIn{random(), random(), oauth2.GenerateVerifier()}
	text, err := json.Marshal(now)
	if err != nil {
		writeProblem(w, s.failed(r.Context(), err))
		return
	}
	http.SetCookie(w, s.cookie(stateName, base64.RawURLEncoding.EncodeToString(text), signInFor))
	o := s.oauth(p)
	http.Redirect(w, r, o.AuthCodeURL(now.State, oidc.Nonce(now.Nonce), oauth2.S256ChallengeOption(now.Verifier)), http.StatusFound)
}

func (s *server) callback(w http.ResponseWriter, r *http.Request) {
	refuse := func(why string) {
		http.SetCookie(w, s.cookie(stateName, "", 0))
		writeProblem(w, problemOf(http.StatusForbidden, "not_signed_in", why, "begin again at /auth/login"))
	}
	var began signingIn
	c, err := r.Cookie(stateName)
	if err == nil {
		var text []byte
		if text, err = base64.RawURLEncoding.DecodeString(c.Value); err == nil {
			err = json.Unmarshal(text, &began)
		}
	}
	q := r.URL.Query()
	if err != nil || s.OIDC.Issuer == "" || began.State == "" || subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(began.State)) != 1 {
		refuse("this browser did not begin the sign-in")
		return
	}
	ctx, end := context.WithTimeout(r.Context(), 15*time.Second)
	defer end()
	p, err := s.open(ctx)
	if err != nil {
		refuse("the sign-in provider cannot be asked")
		return
	}
	o := s.oauth(p)
	answered, err := o.Exchange(s.signIn.with(ctx), q.Get("code"), oauth2.VerifierOption(began.Verifier))
	if err != nil {
		refuse("the sign-in provider gave no identity")
		return
	}
	raw, _ := answered.Extra("id_token").(string)
	req := s.Process.Request()
	cfg, _, err := identity.PeopleInForce(ctx, req)
	if err != nil {
		writeProblem(w, s.failed(ctx, err))
		return
	}
	who, err := s.idToken(ctx, req, cfg, raw, began.Nonce)
	if err != nil {
		refuse("the sign-in provider gave no identity for this sign-in")
		return
	}
	secret, refusal := s.session(ctx, req, who, sessionFor)
	if refusal != nil {
		writeProblem(w, refusal)
		return
	}
	// The session is always a new one: none that the browser had before is kept.
	http.SetCookie(w, s.cookie(stateName, "", 0))
	http.SetCookie(w, s.cookie(cookieName, secret, sessionFor))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// session makes a token for a person who has signed in, for a while.
func (s *server) session(ctx context.Context, req *runtime.Request, who approval.Person, length time.Duration) (string, *problem) {
	if len(who.Roles) == 0 {
		return "", problemOf(http.StatusForbidden, "no_role", who.Name+" ("+who.Proof.String()+") has no role here", "an admin names the identity and its roles in the people section of the configuration")
	}
	secret, err := identity.StartSession(ctx, req, who, length)
	if err != nil {
		return "", s.failed(ctx, err)
	}
	return secret, nil
}

// logout ends the session of a browser.
func (s *server) logout(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(cookieName); err == nil {
		if err := identity.EndSession(r.Context(), s.Process.Request(), c.Value); err != nil {
			writeProblem(w, s.failed(r.Context(), err))
			return
		}
	}
	http.SetCookie(w, s.cookie(cookieName, "", 0))
	w.WriteHeader(http.StatusNoContent)
}

// AWSBinding is what a caller signs to sign in with AWS credentials: this server by its
// public URL, and a nonce of the caller's.
func AWSBinding(publicURL, nonce string) string {
	return "curfew.api/v1\n" + strings.TrimSuffix(publicURL, "/") + "\n" + nonce
}

// awsSignIn takes a presigned call of GetCallerIdentity that names this server and a nonce,
// once and within a minute, and answers with a token for a while.
func (s *server) awsSignIn(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	var in struct{ Nonce, Signed string }
	d := json.NewDecoder(io.LimitReader(r.Body, maxBody))
	d.DisallowUnknownFields()
	if mime, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); mime != "application/json" {
		writeProblem(w, problemOf(http.StatusUnsupportedMediaType, "invalid", "the body is JSON: {\"nonce\": …, \"signed\": …}", ""))
		return
	}
	if err := d.Decode(&in); err != nil || len(in.Nonce) < minNonce {
		writeProblem(w, problemOf(http.StatusUnprocessableEntity, "invalid", "the body is {\"nonce\": …, \"signed\": …} with a nonce of at least 16 characters", ""))
		return
	}
	req := s.Process.Request()
	who, err := identity.SignedCall(ctx, req, in.Signed, AWSBinding(s.name(r), in.Nonce), proofAge)
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
	_ = json.NewEncoder(w).Encode(map[string]any{"token": secret, "name": who.Name, "expires_in": int(time.Hour / time.Second)})
}

// name is the URL that callers sign for this server.
func (s *server) name(r *http.Request) string {
	if s.public != nil {
		return s.public.Scheme + "://" + s.public.Host
	}
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}
