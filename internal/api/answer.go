package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// problem is an error as RFC 9457 has it, with the code and the hint that the command line
// gives.
type problem struct {
	huma.ErrorModel
	// Code is the error's stable name: "not_found".
	Code string `json:"code,omitempty" doc:"The stable name of the error."`
	// Hint is what to do about it.
	Hint string `json:"hint,omitempty" doc:"What to do about it."`
	// Exit is the exit code with which the command line ends.
	Exit int `json:"exit,omitempty" doc:"The exit code of the command line."`
	// Shown says that the document says all there is to say.
	Shown bool `json:"shown,omitempty" doc:"The document says all there is to say."`
	// Document is what was done all the same.
	Document any `json:"document,omitempty" doc:"What was done all the same."`
}

// partly is an error of what was done in part, with the document of that.
type partly struct {
	error
	doc any
}

// Unwrap returns the error itself.
func (p *partly) Unwrap() error { return p.error }

// inPart is the error of an operation that shows a document all the same; shown says whether
// it did.
func inPart(doc any, shown bool, err error) error {
	if err == nil || !shown {
		return err
	}
	return &partly{err, doc}
}

// exits says with which exit code the command line ends.
func (p *problem) exits(code int) *problem {
	p.Exit = code
	return p
}

func problemOf(status int, code, detail, hint string) *problem {
	return &problem{ErrorModel: huma.ErrorModel{Title: http.StatusText(status), Status: status, Detail: detail}, Code: code, Hint: hint}
}

// What the framework itself refuses has the same form.
func init() {
	huma.NewError = func(status int, detail string, errs ...error) huma.StatusError {
		p := problemOf(status, "invalid", detail, "")
		for _, err := range errs {
			if err != nil {
				p.Add(err)
			}
		}
		for _, e := range p.Errors {
			e.Value = nil // what was sent may be a secret
		}
		return p
	}
}

// statuses are those of the wiring's classes of errors. What depends on something outside
// that failed is no error of this server.
var statuses = map[daemon.Class]int{daemon.Failed: http.StatusFailedDependency, daemon.Usage: http.StatusBadRequest, daemon.Denied: http.StatusForbidden,
	daemon.Held: http.StatusConflict, daemon.Partial: http.StatusFailedDependency}

// exits are the exit codes of the command line for these classes.
var exits = map[daemon.Class]int{daemon.Failed: 1, daemon.Usage: 2, daemon.Held: 3, daemon.Denied: 4, daemon.Partial: 5}

// codes are those that say more than their class.
var codes = map[string]int{"not_found": http.StatusNotFound, "no_scan": http.StatusNotFound, "no_state": http.StatusServiceUnavailable,
	"no_policies": http.StatusNotFound, "no_budgets": http.StatusNotFound, "no_session": http.StatusNotFound, "taken": http.StatusConflict, "ending": http.StatusConflict,
	"over": http.StatusConflict, "other_session": http.StatusConflict}

// failed is the problem of an error. What is no error of the wiring is not shown: it may
// hold what callers must not see.
func (s *server) failed(ctx context.Context, err error) *problem {
	var p *problem
	var done *partly
	var wired *daemon.Error
	var broken *document.Error
	var cut *daemon.CutOff
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &done):
		p := s.failed(ctx, done.error)
		p.Document = done.doc
		return p
	case errors.As(err, &wired):
		status, ok := codes[wired.Code]
		if !ok {
			status = statuses[wired.Class]
		}
		detail := plain.Line(action.Redact(err.Error()))
		if detail == "" {
			detail = "it could not be done as a whole"
		}
		p := problemOf(status, wired.Code, detail, wired.Hint)
		p.Exit, p.Shown = exits[wired.Class], wired.Err == nil
		return p
	case errors.As(err, &broken):
		return problemOf(http.StatusBadRequest, "invalid_file", plain.Line(action.Redact(broken.Error())), "").exits(exits[daemon.Usage])
	case errors.As(err, &cut):
		return problemOf(http.StatusFailedDependency, "cut_off", plain.Line(action.Redact(err.Error()))+"; "+cut.Done(), "")
	case ctx.Err() != nil:
		return problemOf(http.StatusServiceUnavailable, "interrupted", "the call ended before it was done", "")
	}
	s.Log.ErrorContext(ctx, "a call failed", "error", action.Redact(err.Error()))
	return problemOf(http.StatusInternalServerError, "error", "the service could not do it; its log says why", "")
}

// writeProblem writes a problem outside of the framework.
func writeProblem(w http.ResponseWriter, p *problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// answer is what a call is answered.
type answer struct {
	status int
	// doc is a document of view.
	doc any
	// next is the cursor of the next page; empty for the last.
	next string
	// headers are further ones.
	headers map[string]string
}

// write writes an answer. What is only read has an entity tag.
func (a answer) write(ctx huma.Context) {
	var body bytes.Buffer
	if err := view.WriteJSON(&body, a.doc); err != nil {
		writeError(ctx, problemOf(http.StatusInternalServerError, "error", "the document cannot be written", ""))
		return
	}
	ctx.SetHeader("Content-Type", "application/json")
	for name, value := range a.headers {
		ctx.SetHeader(name, value)
	}
	if a.next != "" {
		u := ctx.URL()
		q := u.Query()
		q.Set("cursor", a.next)
		ctx.SetHeader("Link", "<"+u.Path+"?"+q.Encode()+`>; rel="next"`)
		ctx.SetHeader("Next-Cursor", a.next)
	}
	if ctx.Method() == http.MethodGet {
		sum := sha256.Sum256(append(body.Bytes(), a.next...))
		tag := `"` + hex.EncodeToString(sum[:16]) + `"`
		ctx.SetHeader("ETag", tag)
		ctx.SetHeader("Cache-Control", "private, no-cache")
		if matches(ctx.Header("If-None-Match"), tag) {
			ctx.SetStatus(http.StatusNotModified)
			return
		}
	}
	ctx.SetStatus(max(a.status, http.StatusOK))
	_, _ = ctx.BodyWriter().Write(body.Bytes())
}

// writeError writes a problem through the framework.
func writeError(ctx huma.Context, p *problem) {
	ctx.SetHeader("Content-Type", "application/problem+json")
	ctx.SetStatus(p.Status)
	_ = json.NewEncoder(ctx.BodyWriter()).Encode(p)
}

// matches says whether If-None-Match names a tag.
func matches(header, tag string) bool {
	for one := range strings.SplitSeq(header, ",") {
		if one = strings.TrimPrefix(strings.TrimSpace(one), "W/"); one == tag || one == "*" {
			return true
		}
	}
	return false
}

// Paging is how much of a collection is asked for.
type Paging struct {
	Cursor string `query:"cursor" maxLength:"400" doc:"Where the page begins: Next-Cursor of the one before."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The most items of a page."`
}

// after is the key that the cursor stands for; empty is the beginning.
func (p Paging) after() (string, error) {
	key, err := base64.RawURLEncoding.DecodeString(p.Cursor)
	if err != nil || p.Cursor != "" && len(key) == 0 {
		return "", badCursor()
	}
	return string(key), nil
}

func badCursor() *problem {
	return problemOf(http.StatusBadRequest, "invalid_cursor", "the cursor is none of this collection, or its item is gone", "begin without a cursor")
}

func cursor(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }

// page cuts a list at a cursor; key names an item.
func page[T any](p Paging, all []T, key func(T) string) (items []T, next string, err error) {
	after, err := p.after()
	if err != nil {
		return nil, "", err
	}
	if after != "" {
		i := slices.IndexFunc(all, func(v T) bool { return key(v) == after })
		if i < 0 {
			return nil, "", badCursor()
		}
		all = all[i+1:]
	}
	if len(all) > p.Limit {
		all = all[:p.Limit]
		next = cursor(key(all[len(all)-1]))
	}
	return append([]T{}, all...), next, nil
}

// only are the items that a filter takes.
func only[T any](all []T, take func(T) bool) []T {
	out := []T{}
	for _, v := range all {
		if take(v) {
			out = append(out, v)
		}
	}
	return out
}

// missing is the answer about an item that is not there, or not for the caller to see.
func missing(what, id string) error {
	return problemOf(http.StatusNotFound, "not_found", "there is no "+what+" "+plain.Line(action.Redact(id)), "")
}
