package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/client"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// problem is an error as in RFC 9457, with the code and hint of the command line.
type problem struct {
	huma.ErrorModel
	// Code is the error's stable name: "not_found".
	Code string `json:"code,omitempty" doc:"The stable name of the error."`
	// Hint is the suggested next step.
	Hint string `json:"hint,omitempty" doc:"What to do about it."`
	// Exit is the exit code of the command line.
	Exit int `json:"exit,omitempty" doc:"The exit code of the command line."`
	// Shown is true if the document explains everything.
	Shown bool `json:"shown,omitempty" doc:"The document says all there is to say."`
	// Document is the partial result of a request that failed.
	Document any `json:"document,omitempty" doc:"What was done all the same."`
}

// exits sets the exit code of the command line.
func (p *problem) exits(code int) *problem {
	p.Exit = code
	return p
}

func problemOf(status int, code, detail, hint string) *problem {
	return &problem{
		ErrorModel: huma.ErrorModel{Title: http.StatusText(status), Status: status, Detail: detail}, Code: code,
		Hint: hint,
	}
}

// init gives errors of the framework the same form.
func init() {
	huma.NewError = func(status int, detail string, errs ...error) huma.StatusError {
		p := problemOf(status, "invalid", detail, "")
		for _, err := range errs {
			if err != nil {
				p.Add(err)
			}
		}
		for _, e := range p.Errors {
			e.Value = nil // the value may be a secret
		}
		return p
	}
}

// statuses are the HTTP statuses of the application's error classes. Failures of external
// dependencies are not errors of this server.
var statuses = map[runtime.Class]int{
	runtime.Failed: http.StatusFailedDependency, runtime.Usage: http.StatusBadRequest,
	runtime.Denied: http.StatusForbidden,
	runtime.Held:   http.StatusConflict, runtime.Partial: http.StatusFailedDependency}

// exits maps these classes to exit codes of the command line.
var exits = map[runtime.Class]int{
	runtime.Failed: 1, runtime.Usage: 2, runtime.Held: 3, runtime.Denied: 4, runtime.Partial: 5,
}

// codes maps problem types to a status more specific than that of their class.
var codes = map[string]int{
	"not_found": http.StatusNotFound, "no_scan": http.StatusNotFound, "no_state": http.StatusServiceUnavailable,
	"no_policies": http.StatusNotFound, "no_budgets": http.StatusNotFound, "no_session": http.StatusNotFound,
	"taken": http.StatusConflict, "ending": http.StatusConflict,
	"over": http.StatusConflict, "other_session": http.StatusConflict,
	client.CursorGone: http.StatusGone}

// failed returns the problem of an error. A failed freeze explains how to stop all actions without
// it.
func (s *Server) failed(ctx context.Context, err error) *problem {
	p := s.problem(ctx, err)
	if r, _ := ctx.Value(requestKey{}).(request); p.Status >= http.StatusInternalServerError && p.Hint == "" &&
		r.operation == ops.Freeze.Method+" "+ops.Freeze.Path {
		p.Hint = action.FreezeByHand
	}
	return p
}

// problem returns the problem of an error. Unexpected errors are not shown, because they may
// contain what callers must not see.
func (s *Server) problem(ctx context.Context, err error) *problem {
	var p *problem
	var input *ops.InputError
	var wired *runtime.Error
	var broken *document.Error
	var cut *runtime.CutOff
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &input):
		return problemOf(http.StatusUnprocessableEntity, input.Code, plain.Line(action.Redact(err.Error())),
			"").exits(exits[runtime.Failed])
	case errors.As(err, &wired):
		status, ok := codes[wired.Code]
		if !ok {
			status = statuses[wired.Class]
		}
		detail := plain.Line(action.Redact(err.Error()))
		if detail == "" {
			detail = "it could not be done as a whole"
		}
		if status >= http.StatusInternalServerError {
			s.logFailed(ctx, err)
		}
		p := problemOf(status, wired.Code, detail, wired.Hint)
		p.Exit, p.Shown = exits[wired.Class], wired.Err == nil
		return p
	case errors.As(err, &broken):
		return problemOf(http.StatusBadRequest, "invalid_file", plain.Line(action.Redact(broken.Error())),
			"").exits(exits[runtime.Usage])
	case errors.As(err, &cut):
		return problemOf(http.StatusFailedDependency, "cut_off",
			plain.Line(action.Redact(err.Error()))+"; "+cut.Done(), "")
	case ctx.Err() != nil:
		return problemOf(http.StatusServiceUnavailable, "interrupted", "the call ended before it was done", "")
	}
	s.logFailed(ctx, err)
	return problemOf(http.StatusInternalServerError, "error", "the service could not do it; its log says why", "")
}

// logFailed logs the cause of a failed call.
func (s *Server) logFailed(ctx context.Context, err error) {
	caller := ""
	if c := callOf(ctx); c != nil {
		caller = c.Who.Name
	}
	r, _ := ctx.Value(requestKey{}).(request)
	s.Log.ErrorContext(ctx, "a call failed", "operation", r.operation, "caller", caller, "request", r.id, "error",
		action.Redact(err.Error()))
}

// writeProblem writes a problem outside of the framework.
func writeProblem(w http.ResponseWriter, p *problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// write writes a reply. Responses to reads have an entity tag.
func write(hc huma.Context, r ops.Reply[any]) {
	var body bytes.Buffer
	if err := view.WriteJSON(&body, r.Doc); err != nil {
		writeError(hc, problemOf(http.StatusInternalServerError, "error", "the document cannot be written", ""))
		return
	}
	hc.SetHeader("Content-Type", "application/json")
	for name, value := range headers(r) {
		hc.SetHeader(name, value)
	}
	if r.Next != "" {
		u := hc.URL()
		q := u.Query()
		q.Set("cursor", r.Next)
		hc.SetHeader("Link", "<"+u.Path+"?"+q.Encode()+`>; rel="next"`)
	}
	if hc.Method() == http.MethodGet {
		sum := sha256.Sum256(append(body.Bytes(), r.Next...))
		tag := `"` + hex.EncodeToString(sum[:16]) + `"`
		hc.SetHeader("ETag", tag)
		hc.SetHeader("Cache-Control", "private, no-cache")
		if matches(hc.Header("If-None-Match"), tag) {
			hc.SetStatus(http.StatusNotModified)
			return
		}
	}
	hc.SetStatus(http.StatusOK)
	_, _ = hc.BodyWriter().Write(body.Bytes())
}

// writeError writes a problem through the framework.
func writeError(ctx huma.Context, p *problem) {
	ctx.SetHeader("Content-Type", "application/problem+json")
	ctx.SetStatus(p.Status)
	_ = json.NewEncoder(ctx.BodyWriter()).Encode(p)
}

// matches reports whether If-None-Match names a tag.
func matches(header, tag string) bool {
	for one := range strings.SplitSeq(header, ",") {
		if one = strings.TrimPrefix(strings.TrimSpace(one), "W/"); one == tag || one == "*" {
			return true
		}
	}
	return false
}
