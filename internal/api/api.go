// Package api serves the operations of the application over HTTP, as [New] documents. It
// authenticates and authorizes callers, and returns the documents of operations in the form of the
// command line.
package api

import (
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/time/rate"

	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/store"
)

// Options configure a server.
type Options struct {
	// Process is the service's process, of which each call is a request.
	Process *runtime.Process
	// State is the service's state, open while the server runs.
	State *store.Store
	// PublicURL is the server's public address, such as https://curfew.example.com; empty for a
	// server reachable only under its loopback names.
	PublicURL string
	// OIDC is the sign-in provider; zero for none.
	OIDC OIDC
	// Owner is the owner token, whose bearer acts as the user of the service; nil for none.
	Owner *identity.Owner
	// Rate is the number of calls per second of one caller, Burst the number at once; 0 means 20
	// and 60. Unauthenticated callers share them per address.
	Rate  float64
	Burst int
	// Poll is the interval of reading the audit log for events, Heartbeat that of lines to waiting
	// clients; 0 means 1s and 15s. BodyTime bounds the time to receive a body; 0 means 10s.
	Poll, Heartbeat, BodyTime time.Duration
	// Streams bounds the event clients; 0 means 64.
	Streams int
	// Done ends event streams when the service drains; nil for never.
	Done <-chan struct{}
	// Version is the program's version.
	Version string
	// Now is the clock of sign-ins if that of the process is simulated; nil uses the process's.
	Now func() time.Time
	// Log receives errors; nil discards them. It never receives a secret.
	Log *slog.Logger
}

// OIDC is a sign-in provider.
type OIDC struct {
	// Issuer is the URL of the provider, ClientID this service's client ID.
	Issuer, ClientID, ClientSecret string
}

// Server is a server of the API.
type Server struct {
	Options
	handler http.Handler
	public  *url.URL
	api     huma.API
	spec    []byte
	// callers limits authenticated callers, strangers others by address, freezes freezes by others,
	// and signIns sign-ins that call the provider or AWS.
	callers, strangers, freezes, signIns *limits
	// tokens caches valid tokens; searches limits how often they are read again.
	tokens   tokenSet
	searches *rate.Limiter
	// freeze is the operation exempt from limits.
	freeze   ops.Info
	signIn   *provider
	verified verified
	stateKey []byte
	// links holds sign-in links of the owner, browsers signed-in browsers.
	links, browsers secrets
	// streams counts event streams by caller.
	streams   map[string]int
	streaming int
	mu        sync.Mutex
	// secrets holds the paths with secret responses.
	secrets map[string]bool
}

// New returns the handler of the API: /api/v1/…, /auth/… and /openapi.json. It serves no other
// path. The caller must set timeouts for headers and idle connections, and use TLS unless it
// listens only on loopback.
//
// Every API call needs a credential, from any address: the owner token, a token of the state, an ID
// token of the sign-in provider, or a browser session. The OpenAPI document is public, because it
// is the same for every service of a version.
func New(o Options) (*Server, error) {
	if o.Process == nil || o.State == nil {
		return nil, errors.New("serve the API: it needs the process of a service and its open state")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		at    *time.Duration
		usual time.Duration
	}{{&o.Poll, time.Second}, {&o.Heartbeat, 15 * time.Second}, {&o.BodyTime, 10 * time.Second}} {
		if *d.at <= 0 {
			*d.at = d.usual
		}
	}
	if o.Streams <= 0 {
		o.Streams = 64
	}
	if o.Now == nil {
		o.Now = o.Process.Now
	}
	if o.Rate <= 0 {
		o.Rate = 20
	}
	if o.Burst <= 0 {
		o.Burst = 60
	}
	s := &Server{
		Options: o, streams: map[string]int{}, secrets: map[string]bool{}, signIn: newProvider(o.OIDC, o.Now),
		stateKey: stateKey(o.OIDC),
		freeze:   ops.Freeze.Describe(),
		callers:  newLimits(o.Rate, o.Burst), strangers: newLimits(o.Rate, o.Burst),
		freezes:  newLimits(o.Rate, o.Burst),
		signIns:  newLimits(o.Rate/100, o.Burst/6),
		searches: rate.NewLimiter(rate.Limit(o.Rate/10), max(1, o.Burst/6))}
	if o.PublicURL != "" {
		u, err := url.Parse(o.PublicURL)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" ||
			strings.Trim(u.Path, "/") != "" ||
			u.RawQuery != "" || u.User != nil {
			return nil, errors.New("serve the API: its public URL is one such as https://curfew.example.com")
		}
		s.public = u
	}
	mux := http.NewServeMux()
	config := huma.DefaultConfig("curfew", "v1")
	config.Info.Description = "What curfew knows and does, as the command line prints it."
	config.DocsPath, config.OpenAPIPath, config.SchemasPath, config.CreateHooks = "", "", "", nil
	config.RejectUnknownQueryParameters = true
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token": {
			Type: "http", Scheme: "bearer",
			Description: "a token of `curfew token create`, the owner token of the data directory, or an ID token of the " +
				"sign-in provider",
		},
		"cookie": {Type: "apiKey", In: "cookie", Name: cookieName, Description: "the session of a browser"},
	}
	config.Security = []map[string][]string{{"token": {}}, {"cookie": {}}}
	s.api = humago.New(mux, config)
	s.register()
	s.registerSignIn(mux)
	s.registerOwner(mux)
	var err error
	if s.spec, err = specOf(s.api); err != nil {
		return nil, err
	}
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(s.spec)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if methods := methodsAt(mux, r); len(methods) > 0 {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			writeProblem(w, problemOf(http.StatusMethodNotAllowed, "method_not_allowed",
				r.URL.Path+" takes "+strings.Join(methods, " and ")+", not "+r.Method,
				"GET /openapi.json lists what there is"))
			return
		}
		writeProblem(w, problemOf(http.StatusNotFound, "not_found", "there is nothing at "+r.URL.Path,
			"GET /openapi.json lists what there is"))
	})
	s.handler = s.guard(mux)
	return s, nil
}

// methodsAt returns the methods allowed at the path of a request.
func methodsAt(mux *http.ServeMux, r *http.Request) (out []string) {
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
		asked := *r
		asked.Method = method
		if _, pattern := mux.Handler(&asked); pattern != "" && pattern != "/" {
			out = append(out, method)
		}
	}
	return out
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }
