package objectstore

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/checkpoint"
)

// TestPrefixAloneMayBeListed: S3 answers 403 for an object that is not there to whoever may list a
// prefix alone, and refuses to list the uploads of a prefix.
func TestPrefixAloneMayBeListed(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		prefix := r.URL.Query().Get("prefix")
		if r.URL.Query().Get("list-type") == "2" && strings.HasPrefix(prefix, "sessions/work/demo/") {
			key := ""
			if there := "sessions/work/demo/there"; strings.HasPrefix(there, prefix) {
				key = "<Contents><Key>" + there + "</Key></Contents>"
			}
			fmt.Fprintf(w, `<ListBucketResult><IsTruncated>false</IsTruncated>%s</ListBucketResult>`, key)
			return
		}
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `<Error><Code>AccessDenied</Code></Error>`)
	}))
	defer s.Close()
	t.Setenv("AWS_ENDPOINT_URL", s.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	t.Setenv("AWS_REGION", "us-east-1")
	for _, tc := range []struct {
		prefix, key string
		absent      bool
	}{{"demo", "HEAD", true}, {"demo", "the", true}, {"demo", "there", false}, {"demo2", "HEAD", false}} {
		b, err := Open(t.Context(), "s3://bucket/sessions/work/"+tc.prefix, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Get(t.Context(), tc.key, 1); err == nil || errors.Is(err, checkpoint.ErrNotFound) != tc.absent {
			t.Errorf("%s/%s: %v", tc.prefix, tc.key, err)
		}
		if uploads, err := b.Abandoned(t.Context()); err != nil || len(uploads) > 0 {
			t.Errorf("uploads of %s: %v, %v", tc.prefix, uploads, err)
		}
	}
}
