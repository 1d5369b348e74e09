package storm

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"sync"
)

// memory keeps what the provider answered to questions. The provider changes by nothing but
// calls, so an answer holds until the next call that is no question. It makes schedules
// cheap; the checks ask the provider itself.
type memory struct {
	// everywhere answers what is the same in every account.
	everywhere *sync.Map
	// calling is held by what changes something, and shared by questions.
	calling sync.RWMutex
	of      sync.Map // *httptest.ResponseRecorder by question
}

// change lets something change, and forgets what it was before.
func (m *memory) change(do func()) {
	m.calling.Lock()
	defer m.calling.Unlock()
	do()
	m.of.Clear()
}

// ask answers a question from memory, or lets the provider do it.
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
	if got.Code == http.StatusOK && service != "monitoring" { // which goes by the time
		of.Store(question, got)
	}
	return got
}

// asks reports whether an operation changes nothing.
func asks(operation string) bool {
	return strings.HasPrefix(operation, "Describe") || strings.HasPrefix(operation, "List") ||
		strings.HasPrefix(operation, "Get")
}

// called returns the service and the operation of a call, as far as its request names them;
// what is asked of a path is "Get".
func called(r *http.Request, body []byte) (service, operation string) {
	if _, scope, ok := strings.Cut(r.Header.Get("Authorization"), "Credential="); ok {
		if parts := strings.Split(scope, "/"); len(parts) > 3 {
			service = parts[3]
		}
	}
	form, _ := url.ParseQuery(string(body)) // what is no form has no action
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
