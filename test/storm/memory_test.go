package storm

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"sync"
)

// memory caches the provider's responses to read-only calls. Only calls change the provider, so a
// response is valid until the next mutating call. This makes schedules cheap; the checks query the
// provider itself.
type memory struct {
	// everywhere caches responses that are equal in every account.
	everywhere *sync.Map
	// calling is held by mutating calls, and shared by others.
	calling sync.RWMutex
	of      sync.Map // *httptest.ResponseRecorder by request
}

// change runs a change, and clears the cache.
func (m *memory) change(do func()) {
	m.calling.Lock()
	defer m.calling.Unlock()
	do()
	m.of.Clear()
}

// ask responds from the cache, or calls the provider.
func (m *memory) ask(r *http.Request, body []byte, provider http.Handler) *httptest.ResponseRecorder {
	service, operation := called(r, body)
	of := &m.of
	if service != "ec2" && service != "sts" && service != "logs" || operation == "DescribeInstanceTypes" ||
		operation == "DescribeRegions" {
		of = m.everywhere
	}
	m.calling.RLock()
	defer m.calling.RUnlock()
	question := service + " " + operation + " " + r.Method + r.URL.RequestURI() + string(body)
	if old, ok := of.Load(question); ok {
		return old.(*httptest.ResponseRecorder)
	}
	got := httptest.NewRecorder()
	provider.ServeHTTP(got, r)
	if got.Code == http.StatusOK && service != "monitoring" { // which depends on the time
		of.Store(question, got)
	}
	return got
}

// asks reports whether an operation changes nothing.
func asks(operation string) bool {
	return strings.HasPrefix(operation, "Describe") || strings.HasPrefix(operation, "List") ||
		strings.HasPrefix(operation, "Get")
}

// called returns the service and the operation of a call, if its request names them; a request for
// a path is "Get".
func called(r *http.Request, body []byte) (service, operation string) {
	if _, scope, ok := strings.Cut(r.Header.Get("Authorization"), "Credential="); ok {
		if parts := strings.Split(scope, "/"); len(parts) > 3 {
			service = parts[3]
		}
	}
	form, _ := url.ParseQuery(string(body)) // other bodies have no action
	_, target, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	switch {
	case form.Get("Action") != "":
		return service, form.Get("Action")
	case target != "":
		return service, target
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return service, "Get"
	}
	return service, path.Base(r.URL.Path)
}
