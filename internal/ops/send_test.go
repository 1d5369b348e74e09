package ops

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/client"
	"github.com/curfew-dev/curfew/internal/view"
)

// TestRereadsCollectionAfterGoneCursor checks that a collection is read again if the item at a page
// boundary disappears, a limited number of times.
func TestRereadsCollectionAfterGoneCursor(t *testing.T) {
	for _, tc := range []struct {
		name        string
		gone, calls int
	}{
		{"once", 1, 4}, {"each time", 1 << 20, 8},
	} {
		t.Run(tc.name, func(t *testing.T) {
			calls, gone := 0, 0
			page := func(next string, ids ...string) func(http.ResponseWriter) {
				return func(w http.ResponseWriter) {
					doc := view.Accounts{Schema: view.AccountsSchema, Accounts: []view.Account{}}
					for _, id := range ids {
						doc.Accounts = append(doc.Accounts, view.Account{ID: id})
					}
					w.Header().Set("Content-Type", "application/json")
					if next != "" {
						w.Header().Set("Next-Cursor", next)
					}
					_ = json.NewEncoder(w).Encode(doc)
				}
			}
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				calls++
				switch {
				case r.URL.Query().Get("cursor") == "":
					page("two", "a", "b")(w)
				case gone < tc.gone:
					gone++
					w.Header().Set("Content-Type", "application/problem+json")
					w.WriteHeader(http.StatusGone)
					_ = json.NewEncoder(w).Encode(map[string]any{
						"status": http.StatusGone, "code": client.CursorGone, "detail": "it is gone",
					})
				default:
					page("", "c")(w)
				}
			}))
			t.Cleanup(srv.Close)
			u, err := url.Parse(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			c, err := client.New(client.Options{URL: u, Token: "curfew_secret", Timeout: time.Minute, Version: "test"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			doc, err := ListAccounts.Call(t.Context(), &Place{Service: c}, Paging{})
			var refused *client.Error
			switch {
			case calls != tc.calls:
				t.Errorf("%d calls, want %d", calls, tc.calls)
			case tc.gone == 1 && (err != nil || len(doc.Accounts) != 3):
				t.Errorf("read %+v, %v", doc.Accounts, err)
			case tc.gone > 1 && (!errors.As(err, &refused) || refused.Code != client.CursorGone):
				t.Errorf("gives up with %v", err)
			}
		})
	}
}
