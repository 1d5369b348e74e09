package govern_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/app/govern"
)

func TestTestMessagesAreInTheAuditLog(t *testing.T) {
	answer := http.StatusOK
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(answer)
	}))
	defer hook.Close()
	req := apptest.Request(t,
		"notify: {webhook: {url: "+hook.URL+"/hook, secret_env: HOOK}, names: {oncall: [webhook]}}\n")
	env := req.Lookup
	req.Process.Lookup = func(name string) (string, bool) {
		if name == "HOOK" {
			return "a-secret-of-the-test-0123456789abcdef", true
		}
		return env(name)
	}
	if _, err := govern.TestNotifier(t.Context(), req, "webhook"); err != nil {
		t.Fatal(err)
	}
	answer = http.StatusNotFound
	if _, err := govern.TestNotifier(t.Context(), req, "webhook"); err == nil {
		t.Fatal("a message that was refused counts as sent")
	}
	_, s, err := req.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var got []string
	err = s.Actions().Entries(t.Context(), action.Query{What: action.EventTestMessage}, func(e action.Entry) error {
		got = append(got, e.Actor+" "+e.Resource+" "+e.Outcome)
		return nil
	})
	if err != nil || len(got) != 2 || got[0] != "ana notifier/webhook accepted" ||
		!strings.HasPrefix(got[1], "ana notifier/webhook not delivered: ") {
		t.Errorf("the audit log has %q, %v", got, err)
	}
}
