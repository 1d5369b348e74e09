package web

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
)

// documents keeps what operations answered for a moment, so that many open pages do not read the
// same document at the same time. What one caller may see is never given to another.
type documents struct {
	mu sync.Mutex
	of map[string]*document
}

// document is one answer.
type document struct {
	ready chan struct{}
	at    time.Time
	doc   any
	err   error
}

const (
	// documentsFor is the lifetime of an answer, and maxDocuments bounds the answers that are kept.
	documentsFor = time.Second
	maxDocuments = 500
	// readTimeout bounds the reading of one.
	readTimeout = 30 * time.Second
)

// get returns the answer under a key, which one of those who ask for it at a time makes.
func (d *documents) get(key string, read func() (any, error)) (any, error) {
	d.mu.Lock()
	if d.of == nil || len(d.of) >= maxDocuments {
		d.of = map[string]*document{}
	}
	one := d.of[key]
	if one != nil {
		select {
		case <-one.ready:
			if time.Since(one.at) >= documentsFor {
				one = nil
			}
		default:
		}
	}
	if one != nil {
		d.mu.Unlock()
		<-one.ready
		return one.doc, one.err
	}
	one = &document{ready: make(chan struct{})}
	d.of[key] = one
	d.mu.Unlock()
	defer func() {
		one.at = time.Now()
		close(one.ready)
	}()
	one.doc, one.err = read()
	if one.err != nil {
		d.mu.Lock()
		delete(d.of, key)
		d.mu.Unlock()
	}
	return one.doc, one.err
}

// forget ends what is kept, after something was changed.
func (d *documents) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of = nil
}

// read returns the document of an operation, as far as the visitor may see it.
func read[I, D any](v *visit, o *ops.Operation[I, D], in I) (D, error) {
	c := v.Call
	key := fmt.Sprintf("%s %+v %s %t %v", o.ID, in, c.Who.Name, c.Owner, c.Roles)
	doc, err := v.pages.docs.get(key, func() (any, error) {
		// Others wait for the answer, who are there when the first has left.
		ctx, end := context.WithTimeout(context.WithoutCancel(v.context()), readTimeout)
		defer end()
		r, err := o.Read(ctx, c, in)
		return r.Doc, err
	})
	if err != nil {
		var none D
		return none, err
	}
	d, ok := doc.(D)
	if !ok {
		return d, fmt.Errorf("read %s: it answered with another document", o.ID)
	}
	return d, nil
}

// may reports whether the visitor may call an operation in some team.
func (v *visit) may(o ops.Info) bool { return v.Call.May(o) }

// mayIn reports whether the visitor may call an operation on what belongs to a team.
func (v *visit) mayIn(o ops.Info, team string) bool {
	_, all := v.Call.Teams(o.Role)
	return all || o.Scoped && v.Call.Sees(o.Role, team)
}

// shown is the text of an error.
func shown(err error) string { return plain.Line(action.Redact(err.Error())) }

func escape(s string) string { return url.QueryEscape(s) }

// machineAddress returns the address of the page of a resource.
func machineAddress(id string) string {
	parts := strings.Split(id, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return "/machines/" + strings.Join(parts, "/")
}
