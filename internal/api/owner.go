package api

import (
	"crypto/sha256"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/client"
	"github.com/curfew-dev/curfew/internal/config"
)

const (
	// linkLifetime is the lifetime of a sign-in link.
	linkLifetime = 10 * time.Minute
	// maxOwnerSessions bounds the valid sign-in links and browsers of the owner.
	maxOwnerSessions = 100
	// browserPrefix is the prefix of credentials of the owner's browsers.
	browserPrefix = identity.TokenPrefix + "browser_"
	// linkPath is the path of sign-in links, landing the page shown next.
	linkPath = "/auth/once"
	landing  = "/"
)

// secrets holds random texts with a limited lifetime. Only their hashes are stored, in memory.
type secrets struct {
	mu sync.Mutex
	of map[[sha256.Size]byte]time.Time
}

// add creates a secret that is valid until a time. At capacity it replaces the one that expires
// first.
func (s *secrets) add(until time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[[sha256.Size]byte]time.Time{}
	}
	for len(s.of) >= maxOwnerSessions {
		var first [sha256.Size]byte
		var ends time.Time
		for hash, at := range s.of {
			if ends.IsZero() || at.Before(ends) {
				first, ends = hash, at
			}
		}
		delete(s.of, first)
	}
	text := random()
	s.of[sha256.Sum256([]byte(text))] = until
	return text
}

// has reports whether a secret is valid at a time.
func (s *secrets) has(text string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.of[sha256.Sum256([]byte(text))]
	return ok && now.Before(until)
}

// take reports whether a secret is valid at a time, and invalidates it.
func (s *secrets) take(text string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	hash := sha256.Sum256([]byte(text))
	until, ok := s.of[hash]
	delete(s.of, hash)
	return ok && now.Before(until)
}

// registerOwner adds the endpoints for signing in as owner.
func (s *Server) registerOwner(mux *http.ServeMux) {
	mux.HandleFunc("GET "+client.OwnerProofPath, s.proveOwner)
	mux.HandleFunc("POST "+client.OwnerLinkPath, s.newLink)
	mux.HandleFunc("GET "+linkPath, s.useLink)
}

// cheap reports whether a request without a caller is answered from memory. Such requests are not
// limited by address, which other users of the machine share.
func cheap(r *http.Request) bool {
	switch r.URL.Path {
	case client.OwnerProofPath, client.OwnerLinkPath, linkPath, "/openapi.json":
		return true
	}
	return false
}

// proveOwner proves to a client that this server knows the owner token, before the client sends it.
// The proof covers the address of the connection, so that it cannot be relayed.
func (s *Server) proveOwner(w http.ResponseWriter, r *http.Request) {
	at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	nonce := r.URL.Query().Get("nonce")
	if s.Owner == nil || at == nil || len(nonce) < minNonce || len(nonce) > maxNonce {
		writeProblem(w, problemOf(http.StatusNotFound, "not_found", "there is no proof for this", ""))
		return
	}
	token, err := s.Owner.Token()
	if err != nil {
		s.Log.WarnContext(r.Context(), "the owner token is not used", "error", err)
		writeProblem(w, problemOf(http.StatusNotFound, "not_found", "there is no owner token", ""))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(client.OwnerProof{Proof: client.ProofOfOwner(token, nonce, at.String())})
}

// newLink gives the owner a sign-in link for a browser.
func (s *Server) newLink(w http.ResponseWriter, r *http.Request) {
	token, _ := bearer(r)
	if !s.Owner.Is(token) {
		w.Header().Set("WWW-Authenticate", challenge)
		writeProblem(w, unauthenticated("a sign-in link is given for the owner token alone"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(client.OwnerLink{Path: s.Link(), ExpiresIn: int(linkLifetime / time.Second)})
}

// Link returns the path of a new sign-in link, which signs in one browser as the owner of the
// service, once and within ten minutes.
func (s *Server) Link() string {
	return linkPath + "?code=" + s.links.add(s.Now().Add(linkLifetime))
}

// useLink signs in a browser by a link.
func (s *Server) useLink(w http.ResponseWriter, r *http.Request) {
	// a prefetch does not use the link
	if purpose := r.Header.Get("Sec-Purpose"); strings.HasPrefix(purpose, "prefetch") {
		writeProblem(w, problemOf(http.StatusForbidden, "not_signed_in",
			"a link that signs in is not fetched ahead", ""))
		return
	}
	if s.Owner == nil || !s.links.take(r.URL.Query().Get("code"), s.Now()) {
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			http.Redirect(w, r, SignInPath+"?why=link", http.StatusSeeOther)
			return
		}
		writeProblem(w, problemOf(http.StatusForbidden, "not_signed_in",
			"the link was used, or is older than 10 minutes",
			"`curfew login --browser` prints another one"))
		return
	}
	if p := s.startBrowser(w, r, "a browser by a sign-in link"); p != nil {
		writeProblem(w, p)
		return
	}
	http.Redirect(w, r, landing, http.StatusSeeOther)
}

// startBrowser signs in a browser as the owner of the service, and records how.
func (s *Server) startBrowser(w http.ResponseWriter, r *http.Request, because string) *problem {
	entry := action.Entry{
		At:      s.Process.Now().UTC(),
		Actor:   "owner",
		What:    action.EventToken,
		Because: because,
		Outcome: "signed in by " + string(approval.OwnerToken),
	}
	if err := s.State.Actions().Record(r.Context(), entry); err != nil {
		return s.failed(r.Context(), err)
	}
	http.SetCookie(w, s.cookie(cookieName, browserPrefix+s.browsers.add(s.Now().Add(sessionFor)), sessionFor))
	return nil
}

// owner returns the user of the service as a caller.
func owner(req *runtime.Request, cfg config.Config) (approval.Person, error) {
	who, err := req.Declared(cfg)
	who.Proof.Kind, who.Proof.Detail = approval.OwnerToken, "verified by the service"
	return who, err
}
