package web

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
)

// documents keeps the answers of operations for a moment, so that many open pages do not read the
// same document at the same time. An answer is given to its caller alone, or to callers of the same
// roles where nothing else decides about it.
type documents struct {
	now func() time.Time

	mu sync.Mutex
	of map[string]*document
	// changes counts the changes after which kept answers do not count.
	changes int
}

// document is one answer.
type document struct {
	ready chan struct{}
	// at is the time of the answer, took the time that it took.
	at   time.Time
	took time.Duration
	doc  any
	err  error
	// version is that of the observations that the answer is from; empty is unknown.
	version string
	// renewed is true while a newer answer is read.
	renewed bool
}

const (
	// documentsFor is the lifetime of an answer, and maxDocuments bounds the answers that are kept.
	documentsFor = time.Second
	maxDocuments = 500
	// slowRead is the duration of a read from which on pages take an answer of up to staleFor while a
	// newer one is read.
	slowRead = 50 * time.Millisecond
	staleFor = 15 * time.Second
	// unchangedFor is the lifetime of an answer from unchanged observations.
	unchangedFor = time.Minute
	// readShare bounds the share of time in which a slow document is read again, as one in so many.
	readShare = 10
	// readTimeout bounds the reading of one.
	readTimeout = 30 * time.Second
)

// get returns the answer under a key, which one of those who ask for it at a time reads. version is
// that of the observations it is read from; empty is unknown.
func (d *documents) get(key, version string, read func() (any, error)) (any, error) {
	d.mu.Lock()
	if d.of == nil || len(d.of) >= maxDocuments {
		d.of = map[string]*document{}
	}
	one := d.of[key]
	if one != nil && one.isReady() {
		switch age := d.now().Sub(one.at); {
		case age < documentsFor, version != "" && one.version == version && age < unchangedFor:
		case one.took >= slowRead && age < staleFor:
			if !one.renewed && age >= min(readShare*one.took, staleFor/2) {
				one.renewed = true
				go d.read(key, &document{ready: make(chan struct{}), version: version}, d.changes, read)
			}
		default:
			one = nil
		}
	}
	if one != nil {
		d.mu.Unlock()
		<-one.ready
		return one.doc, one.err
	}
	one = &document{ready: make(chan struct{}), version: version}
	d.of[key] = one
	changes := d.changes
	d.mu.Unlock()
	d.read(key, one, changes, read)
	return one.doc, one.err
}

func (one *document) isReady() bool {
	select {
	case <-one.ready:
		return true
	default:
		return false
	}
}

// read reads an answer and keeps it. An error reaches only the callers that wait for it.
func (d *documents) read(key string, one *document, changes int, read func() (any, error)) {
	began := d.now()
	one.err = errors.New("the document was not read")
	defer func() {
		one.at = d.now()
		one.took = one.at.Sub(began)
		close(one.ready)
		d.mu.Lock()
		defer d.mu.Unlock()
		switch {
		case d.changes != changes: // the answer may be of before
		case one.err != nil:
			delete(d.of, key)
		default:
			d.of[key] = one
		}
	}()
	one.doc, one.err = read()
}

// forget ends what is kept, after something was changed.
func (d *documents) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of = nil
	d.changes++
}

// read returns the document of an operation, as far as the visitor may see it.
func read[I, D any](v *visit, o *ops.Operation[I, D], in I) (D, error) {
	c := *v.Call
	caller, version := v.roles(), ""
	if byRoles[o.ID] {
		version = v.observations()
	} else {
		caller = c.Who.Name + " " + caller
	}
	key := fmt.Sprintf("%s %+v %s", o.ID, in, caller)
	doc, err := v.pages.docs.get(key, version, func() (any, error) {
		// Others wait for the answer, who are there when the first has left.
		ctx, end := context.WithTimeout(context.WithoutCancel(v.context()), readTimeout)
		defer end()
		own := ops.Call{Request: c.Request, Who: c.Who, Owner: c.Owner, Roles: c.Roles}
		r, err := o.Read(ctx, &own, in)
		return r.Doc, errors.Join(err, own.Close())
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

// byRoles are the operations whose answers depend on the roles of the caller and not on the name. Of
// a large fleet each takes megabytes.
var byRoles = map[string]bool{ops.ListResources.ID: true, ops.GetLastScan.ID: true}

// roles identifies the roles of the visitor in the keys of kept documents.
func (v *visit) roles() string { return fmt.Sprintf("%t %q", v.Call.Owner, v.Call.Roles) }

// observations returns the version of the observations: when each account was last read. It is empty
// for a visitor who may not know.
func (v *visit) observations() string {
	if !v.may(ops.ListAccounts.Info) {
		return ""
	}
	doc, err := read(v, ops.ListAccounts, ops.Paging{})
	if err != nil {
		return ""
	}
	version := ""
	for _, a := range doc.Accounts {
		version += a.ID + a.SeenAt.Format(time.RFC3339Nano)
	}
	return version
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
