package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/curfew-dev/curfew/internal/client"
)

const ownerToken = "curfew_owner_" + "ab12ab12ab12ab12ab12ab12ab12ab12ab12ab12ab12ab12ab12ab12ab12ab12"

// prover is a server that proves its owner token and accepts calls that carry it.
type prover struct {
	*httptest.Server
	token string
	// calls counts the accepted calls.
	calls atomic.Int64
}

func newProver(t *testing.T, token string, listen func(http.Handler) *httptest.Server) *prover {
	t.Helper()
	p := &prover{token: token}
	p.Server = listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == client.OwnerProofPath {
			at := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
			_ = json.NewEncoder(w).Encode(client.OwnerProof{
				Proof: client.ProofOfOwner(p.token, r.URL.Query().Get("nonce"), at.String()),
			})
			return
		}
		if r.Header.Get("Authorization") != "Bearer "+p.token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		p.calls.Add(1)
		_, _ = io.WriteString(w, `{"schema":"x"}`)
	}))
	t.Cleanup(p.Close)
	return p
}

// ask makes one call with an owner token.
func ask(t *testing.T, at string, roots []byte) error {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{URL: u, Token: ownerToken, Owner: true, Roots: roots, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _, err = client.Get[struct{}](t.Context(), c, "x", "/api/v1/x", nil)
	return err
}

// TestOwnerTokenGoesToItsService checks that the token is sent over HTTP, over TLS and to the host
// name localhost.
func TestOwnerTokenGoesToItsService(t *testing.T) {
	plain := newProver(t, ownerToken, httptest.NewServer)
	secure := newProver(t, ownerToken, httptest.NewTLSServer)
	for at, roots := range map[string][]byte{
		plain.URL: nil, secure.URL: pemOf(secure.Server), strings.Replace(plain.URL, "127.0.0.1", "localhost", 1): nil,
	} {
		if err := ask(t, at, roots); err != nil {
			t.Errorf("%s: %v", at, err)
		}
	}
	if plain.calls.Load() != 2 || secure.calls.Load() != 1 {
		t.Errorf("%d calls and %d over TLS", plain.calls.Load(), secure.calls.Load())
	}
}

// TestOwnerTokenIsNotSentToImpostors checks that a program of another user on the port receives
// only the challenge, whatever it answers, even if it relays the challenge to the service.
func TestOwnerTokenIsNotSentToImpostors(t *testing.T) {
	real := newProver(t, ownerToken, httptest.NewServer)
	relay := func(w http.ResponseWriter, r *http.Request) {
		resp, err := http.Get(real.URL + r.URL.RequestURI())
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}
	proofOf := func(token, address string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_ = json.NewEncoder(w).Encode(client.OwnerProof{
				Proof: client.ProofOfOwner(token, r.URL.Query().Get("nonce"), address),
			})
		}
	}
	for name, answer := range map[string]http.HandlerFunc{
		"a relay":         relay,
		"another token":   proofOf("curfew_owner_"+strings.Repeat("cd", 32), "127.0.0.1:1"),
		"without a token": proofOf("", "127.0.0.1:1"),
		"an echo": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"proof":"`+r.URL.Query().Get("nonce")+`"}`)
		},
		"an empty proof": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"proof":""}`) },
		"not found":      http.NotFound,
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, real.URL+r.URL.RequestURI(), http.StatusTemporaryRedirect)
		},
		"a very long proof": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"proof":"`+strings.Repeat("a", 1<<20)+`"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var seen strings.Builder
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				_ = r.Write(&seen)
				mu.Unlock()
				if r.URL.Path != client.OwnerProofPath {
					t.Errorf("it was asked for %s", r.URL.Path)
				}
				answer(w, r)
			}))
			defer s.Close()
			err := ask(t, s.URL, nil)
			var unproven *client.Unproven
			if !errors.As(err, &unproven) || strings.Contains(err.Error(), ownerToken) {
				t.Errorf("got %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(seen.String(), ownerToken) ||
				strings.Count(seen.String(), client.OwnerProofPath) != 1 {
				t.Errorf("it saw %s", seen.String())
			}
		})
	}
	if real.calls.Load() != 0 {
		t.Error("a call was passed on")
	}
}

// TestOwnerTokenIsNotSentToSilentListener checks that a canceled call to a listener that never
// answers ends and sends nothing after the challenge.
func TestOwnerTokenIsNotSentToSilentListener(t *testing.T) {
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	rest := make(chan string, 1)
	go func() {
		defer close(rest)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		if _, err := http.ReadRequest(in); err != nil {
			t.Error(err)
		}
		cancel()
		text, _ := io.ReadAll(in)
		rest <- string(text)
	}()
	u := &url.URL{Scheme: "http", Host: l.Addr().String()}
	c, err := client.New(client.Options{URL: u, Token: ownerToken, Owner: true, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err := client.Get[struct{}](ctx, c, "x", "/api/v1/x", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if text := <-rest; text != "" {
		t.Errorf("after the challenge it was sent %q", text)
	}
}

// pemOf returns a server's certificate in PEM.
func pemOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}
