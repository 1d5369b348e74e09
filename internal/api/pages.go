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

// SignInPath is the path of the sign-in page.
const SignInPath = "/sign-in"

// pagePolicy is the content security policy of pages: all content is from this server, no inline
// scripts, and no framing.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// Visit is one request of a page.
type Visit struct {
	// Call is the call of the signed-in person; nil if there is none.
	Call *ops.Call
	// Refusal is the reason why the request is not served; nil if it is.
	Refusal *Refusal
	// session is the visitor's cookie.
	session string
}

// FormToken returns the token that a form of the session must send; empty without a session. It
// differs each time, so that the sizes of compressed pages reveal nothing.
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

// Sent reports whether a token belongs to a form of the session.
func (v Visit) Sent(token string) bool {
	mac := formMAC(v.session)
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || v.session == "" || len(text) != 2*len(mac) {
		return false
	}
	subtle.XORBytes(text[:len(mac)], text[:len(mac)], text[len(mac):])
	return hmac.Equal(text[:len(mac)], mac)
}

// Refusal is the reason why a request was not executed.
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

// visitKey is the context key of a request's visit.
type visitKey struct{}

// VisitOf returns the visit of a request handled by [Server.Pages].
func VisitOf(ctx context.Context) Visit {
	v, _ := ctx.Value(visitKey{}).(Visit)
	return v
}

// Pages guards pages like the API: it refuses the same requests, authenticates in the same way, and
// applies the same limits. Handlers get each request with its [VisitOf], and show refusals
// themselves.
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
		h.Set("Referrer-Policy", "same-origin") // without it a form of the same page has the origin null
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

// visit authenticates the visitor of a page.
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
	case p.Status != http.StatusUnauthorized: // otherwise the session has ended, and the page asks to sign in
		v.Refusal = refusalOf(p)
	}
	return v
}

// formMAC returns the secret of a session's form tokens. It derives from the cookie, which pages of
// other sites cannot read, so that every process that serves the state returns the same one.
func formMAC(session string) []byte { return sum(session, "curfew.form/v1") }

// keptPrefix is the prefix of the cookie of a browser signed in by a token. Signing out does not
// revoke such a token, and revoking it ends the session.
const keptPrefix = identity.TokenPrefix + "kept_"

// SignIn signs in a browser by a token: for the owner token the browser gets a session, for a token
// of the state it stores the token.
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

// HasProvider reports whether there is a sign-in provider.
func (s *Server) HasProvider() bool { return s.OIDC.Issuer != "" && s.public != nil }

// Answer is the response of the API to a call made by a page for its visitor.
type Answer struct {
	Document []byte
	Refusal  *Refusal
}

// Carry makes an API call for the visitor of a page under the API's guard: roles, input checks,
// idempotency and audit log apply as for any other call.
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

// taken captures a response in memory.
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
