// Package web serves the pages of the service: the documents of the operations, drawn with the
// components of the reports, and forms that call operations. It is a binding of the operations as
// the API is. It decides nothing and computes no figure.
package web

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/curfew-dev/curfew/internal/api"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/report/layout"
)

// Options configure the pages.
type Options struct {
	// API is the server whose guard and operations the pages use.
	API *api.Server
	// Process is that of the service.
	Process *runtime.Process
	// Now is the clock by which answers are kept, where that of the process is simulated; nil is the
	// process's.
	Now func() time.Time
	// Log takes errors; nil drops them.
	Log *slog.Logger
}

// Pages are the pages of a service.
type Pages struct {
	Options
	mux   *http.ServeMux
	files map[string]file
	docs  documents
}

//go:embed static
var static embed.FS

// file is one file that browsers fetch besides pages.
type file struct {
	content []byte
	kind    string
	// version is a part of its address, so that browsers keep it until it changes.
	version string
}

// New returns the pages. They take every path that nothing else of the service has.
func New(o Options) (*Pages, error) {
	if o.API == nil || o.Process == nil {
		return nil, errors.New("serve the pages: they need the API and the process of a service")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = o.Process.Now
	}
	p := &Pages{Options: o, docs: documents{now: o.Now}, mux: http.NewServeMux(), files: map[string]file{}}
	if err := p.readFiles(); err != nil {
		return nil, err
	}
	p.routes()
	return p, nil
}

// kinds are the media types of files.
var kinds = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// readFiles reads the files that are embedded. The style sheet begins with that of the reports.
func (p *Pages) readFiles() error {
	names, err := fs.Glob(static, "static/*.*")
	for _, name := range names {
		kind, served := kinds[path.Ext(name)]
		if !served {
			continue
		}
		content, failed := static.ReadFile(name)
		err = errors.Join(err, failed)
		if name == "static/curfew.css" {
			content = append([]byte(layout.CSS()), content...)
		}
		sum := sha256.Sum256(content)
		p.files[path.Base(name)] = file{content, kind, hex.EncodeToString(sum[:6])}
	}
	return err
}

// address returns the address of a file.
func (p *Pages) address(name string) string { return "/static/" + name + "?v=" + p.files[name].version }

// routes adds every page.
func (p *Pages) routes() {
	p.mux.HandleFunc("GET /static/{name}", p.file)
	p.mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, p.address("curfew.svg"), http.StatusSeeOther)
	})
	p.mux.HandleFunc("GET "+api.SignInPath, p.signInPage)
	p.mux.HandleFunc("POST "+api.SignInPath, p.signIn)
	for _, one := range pages {
		p.mux.HandleFunc("GET "+one.pattern, p.serve(one.draw))
	}
	p.mux.HandleFunc("POST /do/{action}", p.act)
	p.mux.HandleFunc("POST /sign-out", p.signOut)
	p.mux.HandleFunc("/", p.serve(func(v *visit) (templ.Component, error) { return nil, notFound(v.r.URL.Path) }))
}

// draw returns what a page shows in its frame.
type draw func(v *visit) (templ.Component, error)

// pages are all pages by their patterns.
var pages = []struct {
	pattern string
	draw    draw
}{
	{"/{$}", nowPage},
	{"/machines", machinesPage},
	{"/machines/{id...}", machinePage},
	{"/mine", minePage},
	{"/findings", findingsPage},
	{"/findings/{id}", findingPage},
	{"/plan", planPage},
	{"/why", whyPage},
	{"/why/{figure...}", whyPage},
	{"/jobs", jobsPage},
	{"/jobs/{id}", jobPage},
	{"/jobs/{id}/log", jobLogPage},
	{"/costs", costsPage},
	{"/costs.csv", costsPage},
	{"/budgets", budgetsPage},
	{"/approvals", approvalsPage},
	{"/policies", policiesPage},
	{"/policies/backtests/{id}", backtestPage},
	{"/gateways", gatewaysPage},
	{"/fleets", fleetsPage},
	{"/fleets/{id...}", fleetPage},
	{"/alerts", alertsPage},
	{"/audit", auditPage},
	{"/settings", settingsPage},
}

// ServeHTTP implements http.Handler.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/static/") {
		p.API.Pages(p.mux).ServeHTTP(w, r)
		return
	}
	p.mux.ServeHTTP(w, r)
}

// file serves a file. It is the same for everyone, so that no caller is looked for.
func (p *Pages) file(w http.ResponseWriter, r *http.Request) {
	f, ok := p.files[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-cache")
	if r.URL.Query().Get("v") == f.version {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	p.send(w, r, http.StatusOK, func(out writer) error { _, err := out.Write(f.content); return err })
}

// writer takes the body of an answer.
type writer interface{ Write(p []byte) (int, error) }

// send writes an answer, compressed where the browser takes that.
func (p *Pages) send(w http.ResponseWriter, r *http.Request, status int, write func(writer) error) {
	w.Header().Set("Vary", "Accept-Encoding")
	var err error
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(status)
		packed := gzip.NewWriter(w)
		err = errors.Join(write(packed), packed.Close())
	} else {
		w.WriteHeader(status)
		err = write(w)
	}
	if err != nil && r.Context().Err() == nil {
		p.Log.WarnContext(r.Context(), "a page was not sent whole", "path", r.URL.Path, "error", err)
	}
}

// show writes a page.
func (p *Pages) show(w http.ResponseWriter, r *http.Request, status int, c templ.Component) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	p.send(w, r, status, func(out writer) error { return c.Render(r.Context(), out) })
}

// visit is one request of a page by a person who is signed in.
type visit struct {
	api.Visit
	pages *Pages
	w     http.ResponseWriter
	r     *http.Request
	now   time.Time
}

// context is that of the request.
func (v *visit) context() context.Context { return v.r.Context() }

// serve returns the handler of a page.
func (p *Pages) serve(draw draw) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := &visit{Visit: api.VisitOf(r.Context()), pages: p, w: w, r: r, now: p.Process.Now().UTC()}
		switch {
		case v.Refusal != nil:
			p.refuse(v, *v.Refusal)
			return
		case v.Call == nil:
			http.Redirect(w, r, api.SignInPath+"?to="+escape(r.URL.RequestURI()), http.StatusSeeOther)
			return
		}
		content, err := draw(v)
		if errors.Is(err, errSent) {
			return
		}
		if err != nil {
			p.refuse(v, refusalFor(err))
			return
		}
		f := v.frame()
		p.show(w, r, http.StatusOK, whole(f, content))
	}
}

// errSent ends a page that has written its answer itself.
var errSent = errors.New("the answer is written")

// refuse shows why a request is not carried out, and the next step.
func (p *Pages) refuse(v *visit, why api.Refusal) {
	if v.Call == nil {
		p.show(v.w, v.r, why.Status, bare(p, "Not served", refusal(why)))
		return
	}
	f := v.frame()
	f.title = "Not shown"
	if v.r.Method == http.MethodPost {
		f.title = "Not done"
	}
	p.show(v.w, v.r, why.Status, whole(f, refusal(why)))
}

// refusalFor is an error as pages show it.
func refusalFor(err error) api.Refusal {
	var wired *runtime.Error
	if errors.As(err, &wired) {
		status := http.StatusFailedDependency
		switch {
		case wired.Code == "not_found", wired.Code == "no_session":
			status = http.StatusNotFound
		case wired.Class == runtime.Denied:
			status = http.StatusForbidden
		case wired.Class == runtime.Usage:
			status = http.StatusBadRequest
		}
		return api.Refusal{Status: status, Code: wired.Code, Detail: shown(err), Hint: wired.Hint}
	}
	return api.Refusal{Status: http.StatusInternalServerError, Code: "error", Detail: shown(err)}
}

func notFound(what string) error {
	return &runtime.Error{Code: "not_found", Err: fmt.Errorf("there is no page %s", what),
		Hint: "the navigation leads to every page"}
}
