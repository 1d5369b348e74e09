package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/store"
)

// Bounds of requests.
const (
	maxBody    = 1 << 20
	maxPath    = 2 << 10
	answersFor = 24 * time.Hour
	maxKey     = 200
)

// guard refuses invalid requests before any lookup.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				s.Log.ErrorContext(r.Context(), "a call panicked", "path", r.URL.Path, "panic", v,
					"stack", string(debug.Stack()))
				writeProblem(w, problemOf(http.StatusInternalServerError, "error",
					"the service could not do it; its log says why",
					""))
			}
		}()
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cache-Control", "no-store")
		if p := s.refused(r); p != nil {
			writeProblem(w, p)
			return
		}
		if !strings.HasPrefix(r.URL.Path, "/api/") {
			if p := s.unsigned(w, r); p != nil {
				writeProblem(w, p)
				return
			}
			s.bounded(w, r, next)
			return
		}
		r = s.numbered(w, r)
		c, p := s.authenticate(w, r)
		if c != nil && !s.urgent(r) {
			p = cmp.Or(s.callers.allow(w, callerKey(c)), p)
		}
		if p != nil {
			if p.Status == http.StatusUnauthorized {
				h.Set("WWW-Authenticate", challenge)
			}
			writeProblem(w, p)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
		defer func() {
			if err := c.Close(); err != nil {
				s.Log.ErrorContext(r.Context(), "the state of a call was not closed", "error", err)
			}
		}()
		if reads(r) {
			s.bounded(w, r, next)
			return
		}
		s.bounded(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.mutate(w, r, c, next) }))
	})
}

// requestHeader identifies a request in the response and in the service's log.
const requestHeader = "Request-Id"

// request has the log attributes of a request.
type request struct{ operation, id string }

type requestKey struct{}

// numbered gives a request its client's ID or a new one, and returns it in the response.
func (s *Server) numbered(w http.ResponseWriter, r *http.Request) *http.Request {
	id := r.Header.Get(requestHeader)
	if !requestID.MatchString(id) {
		id = random()[:16]
	}
	w.Header().Set(requestHeader, id)
	return r.WithContext(context.WithValue(r.Context(), requestKey{}, request{r.Method + " " + r.URL.Path, id}))
}

var requestID = lazyregexp.New(`^[A-Za-z0-9._-]{1,64}$`)

// urgent reports whether a request is a freeze, which is exempt from limits.
func (s *Server) urgent(r *http.Request) bool {
	return r.Method == s.freeze.Method && r.URL.Path == s.freeze.Path
}

// unsigned limits requests without a known caller. Those that cause requests to others have a lower
// limit.
func (s *Server) unsigned(w http.ResponseWriter, r *http.Request) *problem {
	if cheap(r) {
		return nil
	}
	if p := s.strangers.allow(w, network(r)); p != nil {
		return p
	}
	switch r.URL.Path {
	case "/auth/callback", "/auth/aws":
		return s.signIns.allow(w, network(r))
	}
	return nil
}

// Known reports whether a request has a credential of someone with a role here.
func (s *Server) Known(r *http.Request) bool {
	if _, p := credential(r); p != nil || s.refused(r) != nil {
		return false
	}
	c, p := s.authenticate(discard{}, r)
	return c != nil && p == nil
}

// discard drops a response.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// refused returns the problem of a request that is invalid for every caller.
func (s *Server) refused(r *http.Request) *problem {
	host := r.Host
	switch {
	case len(r.URL.EscapedPath()) > maxPath:
		return problemOf(http.StatusRequestURITooLong, "invalid_path", "the path is too long", "")
	case oddPath(r.URL):
		return problemOf(http.StatusBadRequest, "invalid_path", "the path is not in its plain form", "")
	case !s.ours(host):
		return problemOf(http.StatusMisdirectedRequest, "foreign_host",
			"this server is not the host that the request names",
			"reach it by its public URL, or by localhost")
	}
	if origin := r.Header.Get("Origin"); origin != "" && !s.sameOrigin(origin, r) {
		return problemOf(http.StatusForbidden, "foreign_origin", "a page of another origin made the request", "")
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		if navigates := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Method == http.MethodGet; !navigates {
			return problemOf(http.StatusForbidden, "foreign_origin", "a page of another site made the request", "")
		}
	}
	return nil
}

// oddPath reports whether a path is ambiguous: it goes up, has empty segments, or characters that
// are not part of names.
func oddPath(u *url.URL) bool {
	for segment := range strings.SplitSeq(strings.TrimPrefix(u.EscapedPath(), "/"), "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil || plain == "." || plain == ".." || strings.Contains(plain, "../") ||
			strings.Contains(plain, "/..") ||
			strings.ContainsFunc(plain, func(r rune) bool {
				return r < ' ' || r == 0x7f || r == '\\' || r == '\uFFFD'
			}) {
			return true
		}
		if segment == "" && u.Path != "/" {
			return true
		}
	}
	return false
}

// ours reports whether a Host header names this server, which a name resolved here by a foreign
// page does not.
func (s *Server) ours(host string) bool {
	if s.public != nil && strings.EqualFold(host, s.public.Host) {
		return true
	}
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	ip, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return strings.EqualFold(name, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

func (s *Server) sameOrigin(origin string, r *http.Request) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return false
	}
	if s.public != nil && strings.EqualFold(u.Host, s.public.Host) {
		return u.Scheme == s.public.Scheme
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return strings.EqualFold(u.Host, r.Host) && u.Scheme == scheme
}

// bounded reads the body of a request within limits of size and time, and continues with it.
func (s *Server) bounded(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if r.ContentLength > maxBody {
		writeProblem(w, problemOf(http.StatusRequestEntityTooLarge, "too_large", "a body is at most 1 MiB", ""))
		return
	}
	if r.Body != nil && r.Body != http.NoBody {
		control := http.NewResponseController(w)
		late := time.AfterFunc(s.BodyTime, func() { _ = control.SetReadDeadline(time.Unix(1, 0)) })
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if !late.Stop() && err == nil {
			err = os.ErrDeadlineExceeded
		}
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			writeProblem(w, problemOf(http.StatusRequestEntityTooLarge, "too_large", "a body is at most 1 MiB", ""))
			return
		case err != nil:
			w.Header().Set("Connection", "close")
			writeProblem(w, problemOf(http.StatusRequestTimeout, "too_slow", "the body did not arrive in time", ""))
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.ContentLength = int64(len(body))
	}
	next.ServeHTTP(w, r)
}

// mutate executes a call that may change something: once per idempotency key, and recorded with its
// caller.
func (s *Server) mutate(w http.ResponseWriter, r *http.Request, c *ops.Call, next http.Handler) {
	key := r.Header.Get("Idempotency-Key")
	if len(key) > maxKey {
		writeProblem(w,
			problemOf(http.StatusBadRequest, "invalid_key", "an idempotency key has at most 200 characters", ""))
		return
	}
	callers, now := s.State.Callers(), s.Process.Now().UTC()
	if key != "" && s.secrets[r.URL.Path] && !reads(r) {
		writeProblem(w,
			problemOf(http.StatusBadRequest, "invalid_key",
				"the answer holds a secret and is not kept, so this call takes no idempotency key", ""))
		return
	}
	if key != "" {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			writeProblem(w, s.failed(r.Context(), err))
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		sum := sha256.Sum256([]byte(r.Method + "\n" + r.URL.RequestURI() + "\n" + string(body)))
		request := hex.EncodeToString(sum[:])
		old, known, err := callers.Begin(r.Context(), callerKey(c), key, request, now, now.Add(-answersFor))
		switch {
		case err != nil:
			writeProblem(w, s.failed(r.Context(), err))
			return
		case known && old.Request != request:
			writeProblem(w, problemOf(http.StatusUnprocessableEntity, "key_reused",
				"the idempotency key was used for another call", "take a new key for each call"))
			return
		case known && old.Status == 0:
			w.Header().Set("Retry-After", "1")
			writeProblem(w,
				problemOf(http.StatusConflict, "in_progress",
					"the call with this idempotency key is still carried out",
					"send it again in a moment").exits(exits[runtime.Failed]))
			return
		case known:
			replay(w, old)
			return
		}
	}
	kept := &recorded{ResponseWriter: w, status: http.StatusOK}
	done := false
	ctx := context.WithoutCancel(r.Context()) // the result is recorded even if the caller disconnects
	defer func() {
		status := kept.status
		if !done || status >= http.StatusInternalServerError || status == http.StatusTooManyRequests {
			status = 0
		}
		entry := action.Entry{
			At: now, Actor: c.Who.Name, What: action.EventCall, Because: action.Redact(r.Method + " " + r.URL.Path),
			Outcome: strconv.Itoa(kept.status) + ", by " + c.Who.Proof.String()}
		if err := s.State.Transact(ctx, func(in *store.Store) error {
			if key != "" {
				if err := in.Callers().Finish(ctx, callerKey(c), key, status, kept.body.String()); err != nil {
					return err
				}
			}
			return in.Actions().Record(ctx, entry)
		}); err != nil {
			s.Log.ErrorContext(ctx, "a call and its answer were not recorded", "error", err)
		}
	}()
	next.ServeHTTP(kept, r)
	done = true
}

func replay(w http.ResponseWriter, old store.Answer) {
	kind := "application/json"
	if old.Status >= http.StatusBadRequest {
		kind = "application/problem+json"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Idempotency-Replayed", "true")
	w.WriteHeader(old.Status)
	_, _ = io.WriteString(w, old.Body)
}

// recorded captures a response.
type recorded struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (r *recorded) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorded) Write(p []byte) (int, error) {
	r.body.Write(p)
	return r.ResponseWriter.Write(p)
}

// Unwrap implements the interface of [http.ResponseController].
func (r *recorded) Unwrap() http.ResponseWriter { return r.ResponseWriter }
