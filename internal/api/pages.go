package api

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/ops"
)

// SignInPath is the page at which people sign in.
const SignInPath = "/sign-in"

// pagePolicy is the content security policy of pages: everything is of this server, no script is
// in a page, and no other site shows one in a frame.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// Visit is one request of a page.
type Visit struct {
	// Call is the call of the person who is signed in; nil where no one is.
	Call *ops.Call
	// Refusal is why the request is not served; nil where it is.
	Refusal *Refusal
	// session is the cookie of the visitor.
	session string
}

// FormToken returns the token that a form of the session has to send; empty without a session. It
// differs each time, so that nothing can be learned of it from the sizes of compressed pages.
func (v Visit) FormToken() string {
	if v.session == "" {
		return ""
	}
	mac := formMAC(v.session)
	out := make([]byte, 2*len(mac))
	_, _ = rand.Read(out[:len(mac)]) // it never fails
	subtle.XORBytes(out[len(mac):], out[:len(mac)], mac)
	return base64.RawURLEncoding.EncodeToString(out)
}

// Sent reports whether a token is one of the forms of the session.
func (v Visit) Sent(token string) bool {
	mac := formMAC(v.session)
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || v.session == "" || len(text) != 2*len(mac) {
		return false
	}
	subtle.XORBytes(text[:len(mac)], text[:len(mac)], text[len(mac):])
	return hmac.Equal(text[:len(mac)], mac)
}

// Refusal is why a request was not carried out.
type Refusal struct {
	Status             int
	Code, Detail, Hint string
}

func refusalOf(p *problem) *Refusal {
	if p == nil {
		return nil
	}
	return &Refusal{Status: p.Status, Code: p.Code, Detail: p.Detail, Hint: p.Hint}
}

// visitKey finds the visit of a request in its context.
type visitKey struct{}

// VisitOf returns the visit of a request that came through [Server.Pages].
func VisitOf(ctx context.Context) Visit {
	v, _ := ctx.Value(visitKey{}).(Visit)
	return v
}

// Pages guards pages as the API is guarded. It refuses the same requests, finds out in the same
// way who calls, and counts calls by the same limits. The pages get each request with its
// [VisitOf], and say themselves what is refused.
func (s *Server) Pages(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				s.Log.ErrorContext(r.Context(), "a page panicked", "path", r.URL.Path, "panic", v,
					"stack", string(debug.Stack()))
				http.Error(w, "The service could not draw this page. Its log says why.", http.StatusInternalServerError)
			}
		}()
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin") // without it a form of the page itself has the origin null
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("Cache-Control", "no-store")
		r = s.numbered(w, r)
		v := s.visit(w, r)
		r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
		if v.Call != nil {
			defer func() {
				if err := v.Call.Close(); err != nil {
					s.Log.ErrorContext(r.Context(), "the state of a page was not closed", "error", err)
				}
			}()
		}
		s.bounded(w, r, pages)
	})
}

// visit finds out who opens a page.
func (s *Server) visit(w http.ResponseWriter, r *http.Request) (v Visit) {
	if p := s.refused(r); p != nil {
		return Visit{Refusal: refusalOf(p)}
	}
	cookie, err := r.Cookie(cookieName)
	if err != nil || cookie.Value == "" {
		return Visit{Refusal: refusalOf(s.strangers.allow(w, network(r)))}
	}
	v.session = cookie.Value
	c, p := s.authenticate(w, r)
	if c != nil && p == nil {
		p = s.callers.allow(w, callerKey(c))
	}
	switch {
	case p == nil:
		v.Call = c
	case p.Status != http.StatusUnauthorized: // else the session has ended, and the page asks to sign in
		v.Refusal = refusalOf(p)
	}
	return v
}

// formMAC returns the secret of the form tokens of a session. It derives from the cookie, which no page
// of another site can read, so every process that serves the state returns the same one.
func formMAC(session string) []byte { return sum(session, "curfew.form/v1") }

// keptPrefix begins the cookie of a browser in which a person has given a token. Signing out does
// not end such a token, and revoking it ends the session.
const keptPrefix = identity.TokenPrefix + "kept_"

// SignIn signs a browser in by a token: the owner token, or one of the state. For the first the
// browser gets a session of its own, for the second it keeps the token.
func (s *Server) SignIn(w http.ResponseWriter, r *http.Request, token string) *Refusal {
	token = strings.TrimSpace(token)
	if identity.IsOwnerToken(token) {
		if late := s.strangers.allow(w, network(r)); late != nil {
			return refusalOf(late)
		}
		if !s.Owner.Is(token) {
			return refusalOf(unauthenticated("it is not the owner token of this service"))
		}
		return refusalOf(s.startBrowser(w, r, "a browser by the owner token"))
	}
	if !strings.HasPrefix(token, identity.TokenPrefix) || strings.HasPrefix(token, browserPrefix) ||
		strings.HasPrefix(token, keptPrefix) {
		return refusalOf(unauthenticated("it is no token of this service"))
	}
	asked := r.Clone(r.Context())
	asked.Header.Set("Authorization", "Bearer "+token)
	c, p := s.authenticate(w, asked)
	if p != nil {
		return refusalOf(p)
	}
	if err := c.Close(); err != nil {
		return refusalOf(s.failed(r.Context(), err))
	}
	kept := keptPrefix + strings.TrimPrefix(token, identity.TokenPrefix)
	http.SetCookie(w, s.cookie(cookieName, kept, sessionFor))
	return nil
}

// SignOut ends the session of a browser.
func (s *Server) SignOut(w http.ResponseWriter, r *http.Request) *Refusal {
	return refusalOf(s.endBrowser(w, r))
}

// HasProvider reports whether people can sign in at a provider.
func (s *Server) HasProvider() bool { return s.OIDC.Issuer != "" && s.public != nil }

// Answer is the answer of the API to a call that a page makes for its visitor.
type Answer struct {
	Document []byte
	Refusal  *Refusal
}

// Carry makes a call of the API for the visitor of a page, and so under its guard: the roles, the
// checks of the input, the idempotency key and the audit log are those of any other call.
func (s *Server) Carry(r *http.Request, o ops.Info, path string, body []byte, key string) Answer {
	call, err := http.NewRequestWithContext(r.Context(), o.Method, path, bytes.NewReader(body))
	if err != nil {
		p := problemOf(http.StatusBadRequest, "invalid", "the form names no such thing", "")
		return Answer{Refusal: refusalOf(p)}
	}
	call.Host, call.RemoteAddr, call.TLS = r.Host, r.RemoteAddr, r.TLS
	for _, name := range []string{"Cookie", "Origin", requestHeader} {
		if text := r.Header.Get(name); text != "" {
			call.Header.Set(name, text)
		}
	}
	call.Header.Set("Content-Type", "application/json")
	if key != "" && !o.HasSecret {
		call.Header.Set("Idempotency-Key", key)
	}
	var got taken
	s.ServeHTTP(&got, call)
	if got.status < http.StatusMultipleChoices {
		return Answer{Document: got.body.Bytes()}
	}
	var p problem
	if err := json.Unmarshal(got.body.Bytes(), &p); err != nil {
		p = *problemOf(got.status, "error", "the service could not do it; its log says why", "")
	}
	refusal := refusalOf(&p)
	for _, e := range p.Errors {
		refusal.Detail += "; " + e.Error()
	}
	return Answer{Document: got.body.Bytes(), Refusal: refusal}
}

// taken keeps an answer in memory.
type taken struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (t *taken) Header() http.Header {
	if t.header == nil {
		t.header = http.Header{}
	}
	return t.header
}

// WriteHeader implements http.ResponseWriter.
func (t *taken) WriteHeader(status int) {
	if t.status == 0 {
		t.status = status
	}
}

// Write implements http.ResponseWriter.
func (t *taken) Write(p []byte) (int, error) {
	t.WriteHeader(http.StatusOK)
	return t.body.Write(p)
}
